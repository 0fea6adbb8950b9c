"""Rewriting of graphs: BatchNorm folded, convolutions in 16 bits, constants worked out.

A pass takes a symbol and returns one that computes the same from the same variables, up to
rounding.  What it makes of weights is part of the graph; :func:`bake` works it out for good.
"""

import json
import warnings
from collections import Counter, namedtuple

import mxnet as mx

# symbol: Symbol; params: {name: NDArray} of all its variables but the inputs
Graph = namedtuple("Graph", "symbol params")

INPUT = "data"  # the pictures, in every graph of a network
# Where the weight is among the inputs of a layer; its bias comes after it
_WEIGHT_AT = {"Convolution": 1, "_contrib_ModulatedDeformableConvolution": 3}
# Operators that oneDNN and CUDA have in 16 bits and that lose nothing more by it; clip does: its
# gradient in bfloat16 is not finite
_16_BITS = ("Activation", "Concat", "Pooling", "elemwise_add")


def graph_of(outputs, block):
    """The graph of symbols that an initialised block has made of symbols."""
    symbol = mx.sym.Group(list(outputs))
    return _used(symbol, {p.name: p.list_data()[0] for p in block.collect_params().values()})


def fold_batchnorm(symbol, training=False):
    """Every BatchNorm that follows a convolution becomes part of its weight and bias.

    y = gamma (w * x - mean) / sqrt(var + eps) + beta.  For ``training`` only those with fixed
    statistics; gamma gets no gradient then.
    """
    nodes = content_of(symbol)["nodes"]
    readers = Counter(source for node in nodes for source, *_ in node["inputs"])

    def fold(node, inputs):
        source_id = node["inputs"][0][0]
        source, attributes = nodes[source_id], node["attrs"]
        at = _WEIGHT_AT.get(source["op"])
        fixed = attributes.get("use_global_stats", "False") in ("True", "1")
        if at is None or readers[source_id] > 1 or training and not fixed:
            return make(node, inputs)
        layer, gamma, beta, mean, variance = inputs
        *data, weight, bias = list(layer.get_children())[: at + 2] + [None] * (
            source["attrs"].get("no_bias", "False") in ("True", "1")
        )
        scale = 1 / mx.sym.sqrt(variance + float(attributes.get("eps", 1e-3)))
        if attributes.get("fix_gamma", "True") not in ("True", "1"):
            scale = gamma * scale
        scale = mx.sym.BlockGrad(scale)
        # not broadcast_mul, whose gradient for the scale takes longer than all this saves
        weight = weight * mx.sym.broadcast_like(mx.sym.reshape(scale, (-1, 1, 1, 1)), weight)
        shift = mx.sym.BlockGrad(beta - mean * scale)
        bias = shift if bias is None else shift + bias * scale
        source = dict(source, name=node["name"], attrs=dict(source["attrs"], no_bias="False"))
        return make(source, data + [weight, bias])

    return _rebuild(symbol, {"BatchNorm": fold})


def to_16_bits(symbol, dtype, exact=()):
    """Convolutions and what only lies between them in ``dtype``; inputs and outputs in float32.

    dtype: bfloat16 or float16.
    exact: names of parameters whose convolutions stay in float32.
    The first layer stays in float32: with three channels it would be slower, and less exact.
    Written out because MXNet's own pass leaves the layers between some activations in float32.
    """
    low, casts = set(), {}

    def cast(value, wanted):
        key = value.list_outputs()[0]
        if (key in low) == (wanted == dtype):
            return value
        if (key, wanted) not in casts:
            casts[key, wanted] = mx.sym.amp_cast(value, dtype=wanted)
            low.update(casts[key, wanted].list_outputs() if wanted == dtype else ())
        return casts[key, wanted]

    def convert(node, inputs):
        if node["op"] == "Convolution":
            names = [name for value in inputs[1:] for name in value.list_inputs()]
            lowered = not (_is_variable(inputs[0]) or any(name in exact for name in names))
        else:
            lowered = node["op"] in _16_BITS and all(v.list_outputs()[0] in low for v in inputs)
        if not lowered:
            return make(node, [cast(value, "float32") for value in inputs])
        made = make(node, [cast(value, dtype) for value in inputs])
        low.update(made.list_outputs())
        return made

    rebuilt = _rebuild(symbol, {}, convert)
    return mx.sym.Group([cast(output, "float32") for output in rebuilt])


def bake(graph):
    """What is made of parameters alone becomes a parameter, where layers use it as a weight."""
    made, shared = [], {}

    def collect(node, inputs):
        made.extend(v for v in inputs[_WEIGHT_AT[node["op"]] :] if _is_made(v, graph.params))
        return make(node, inputs)

    _rebuild(graph.symbol, dict.fromkeys(_WEIGHT_AT, collect))
    if not made:
        return graph
    together = mx.sym.Group(made + made[:1])  # at least two, so that a list comes back
    needed = {name: graph.params[name] for name in together.list_inputs()}
    values = iter(mx.nd.CachedOp(together)(*needed.values()))
    params = dict(graph.params)

    def replace(node, inputs):
        at = _WEIGHT_AT[node["op"]]
        for place, name in zip(range(at, len(inputs)), ("_weight", "_bias")):
            if _is_made(inputs[place], graph.params):
                value = next(values)
                # layers called several times have their weights once
                content = mx.nd.cast(value, "float32").asnumpy().tobytes()
                key = (str(value.dtype), value.shape, content)
                if key not in shared:
                    shared[key] = mx.sym.var(node["name"] + name, shape=value.shape)
                    params[shared[key].name] = value
                inputs[place] = shared[key]
        return make(node, inputs)

    shapes = {name: value.shape for name, value in params.items()}  # quantisation asks for them
    rules = dict.fromkeys(_WEIGHT_AT, replace)
    return _used(_rebuild(graph.symbol, rules, shapes=shapes), params)


def symbol_block(symbol, params=None):
    """A SymbolBlock whose one input is ``INPUT``; ``params``: those that it shares, if any."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the type of the input is decided by the first call
        return mx.gluon.SymbolBlock(symbol, mx.sym.var(INPUT), params=params)


def content_of(symbol):
    """The json of a symbol as a dict, with the casts that MXNet leaves out of it unasked."""
    return json.loads(symbol.tojson(remove_amp_cast=False))


def make(node, inputs):
    """The symbol of one node of a graph's json."""
    name = node["op"]
    if name.startswith("_contrib_"):
        operator = getattr(mx.sym.contrib, name[len("_contrib_") :])
    else:
        operator = getattr(mx.sym, name, None) or getattr(mx.sym._internal, name)
    attributes = {k: v for k, v in node.get("attrs", {}).items() if not k.startswith("__")}
    return operator(*inputs, name=node["name"], **attributes)


def _is_variable(value):
    return value.list_inputs() == [value.name]


def _is_made(value, params):
    """Whether a symbol is no variable and depends on parameters only."""
    return not _is_variable(value) and all(name in params for name in value.list_inputs())


def _rebuild(symbol, rules, default=make, shapes=None):
    """The same graph, but nodes of the operators in ``rules`` are made by them.

    rules: {operator: function of (json of the node, its input symbols) -> Symbol}.
    default: the rule of all others.
    shapes: {name: shape} of variables, as far as they are to be stated.
    Names become unique: fusion takes operators of one name for one another.
    """
    content = content_of(symbol)
    made, count = [], Counter()
    for node in content["nodes"]:
        count[node["name"]] += 1
        if count[node["name"]] > 1:
            node["name"] += "_{}".format(count[node["name"]])
        inputs = [made[source][output] for source, output, *_ in node["inputs"]]
        if node["op"] == "null":
            made.append(mx.sym.var(node["name"], shape=(shapes or {}).get(node["name"])))
        else:
            made.append(rules.get(node["op"], default)(node, inputs))
    return mx.sym.Group([made[source][output] for source, output, *_ in content["heads"]])


def _used(symbol, params):
    return Graph(symbol, {name: params[name] for name in symbol.list_inputs() if name in params})
