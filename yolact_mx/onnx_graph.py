"""An MXNet graph as an ONNX model: walks its nodes and calls the converters of ``onnx_ops``."""

import ast
import inspect
import json
import re

import mxnet as mx
import onnx
from onnx import helper, numpy_helper

from .errors import ConfigError
from .onnx_ops import CONVERTERS, Untranslatable

OPSET = 16  # the first with GridSample
_IR_VERSION = 8  # of ONNX 1.11, which brought opset 16: runtimes refuse newer ones than theirs


def to_onnx(outputs, params, inputs):
    """Translate a graph.

    Parameters
    ----------
    outputs : dict of str -> Symbol
        By the names that they get in the model.
    params : dict of str -> NDArray
        Values of the graph's variables that are no inputs.  No operator may be running that
        reads them (``mx.nd.waitall()``).
    inputs : dict of str -> tuple of int
        Shape of each input (float32) without the batch, which is of any size.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    ConfigError
        Names an operator that has no translation.
    """
    symbol = mx.sym.Group(list(outputs.values()))
    nodes = json.loads(symbol.tojson())
    shapes, dtypes = _infer(symbol, inputs)
    writer = _Writer(names=list(inputs) + list(outputs))
    values = {}  # (node, output) -> name of the ONNX value
    for number, node in enumerate(nodes["nodes"]):
        if node["op"] == "null":
            if node["name"] not in inputs:
                writer.weights[node["name"]] = params[node["name"]].asnumpy()
            results = [node["name"]]
        else:
            places = [tuple(place[:2]) for place in node["inputs"]]
            writer.start(node["name"], shapes[number, 0], [shapes[p] for p in places],
                         [dtypes[p] for p in places])
            results = _convert(writer, node, [values[p] for p in places])
        values.update({(number, i): name for i, name in enumerate(results)})
    for name, head in zip(outputs, nodes["heads"]):
        writer.nodes.append(helper.make_node("Identity", [values[tuple(head[:2])]], [name]))
    results = {name: shapes[tuple(head[:2])][1:] for name, head in zip(outputs, nodes["heads"])}
    return _model(writer, inputs, results)


class _Writer:
    """Collects ONNX nodes and constants; it is the ``g`` of the converters."""

    def __init__(self, names):
        self.nodes, self.weights = [], {}
        self._taken, self._constants = set(names), {}

    def start(self, name, shape, shapes, dtypes):
        """The MXNet node that the next ONNX nodes stand for."""
        self._name, self.shape, self.shapes, self.dtypes = name, shape, shapes, dtypes

    def add(self, op_type, inputs, outputs=1, **attributes):
        names = [self._new(self._name) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, name=names[0],
                                           **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value):
        key = (str(value.dtype), value.shape, value.tobytes())
        if key not in self._constants:
            self._constants[key] = self._new("constant")
            self.weights[self._constants[key]] = value
        return self._constants[key]

    def _new(self, name):
        count, wanted = 0, name
        while name in self._taken or name in self.weights:
            count += 1
            name = "{}_{}".format(wanted, count)
        self._taken.add(name)
        return name


def _infer(symbol, inputs):
    """{(node, output): shape}, None for a dimension that grows with the batch; and dtypes."""
    internals = symbol.get_internals()
    two, three = (
        internals.infer_shape(**{name: (batch,) + shape for name, shape in inputs.items()})[1]
        for batch in (2, 3)
    )
    dtypes = internals.infer_type(**{name: "float32" for name in inputs})[1]
    places = []  # several nodes may have one name, so only the order tells
    for name in internals.list_outputs():
        node, output = places[-1] if places else (-1, 0)
        further = re.search("_output[1-9][0-9]*$", name)
        places.append((node, output + 1) if further else (node + 1, 0))
    shapes = [tuple(m if m == n else None for m, n in zip(a, b)) for a, b in zip(two, three)]
    return dict(zip(places, shapes)), dict(zip(places, dtypes))


def _convert(writer, node, inputs):
    """Names of the values that stand for the node's outputs."""
    try:
        if node["op"] not in CONVERTERS:
            raise Untranslatable("any attributes")
        converter = CONVERTERS[node["op"]]
        attributes = {
            key: _literal(value)
            for key, value in node.get("attrs", {}).items()
            if not key.startswith("__")
        }
        known = inspect.signature(converter).parameters.values()
        unknown = sorted(set(attributes) - {parameter.name for parameter in known})
        if unknown and not any(parameter.kind == parameter.VAR_KEYWORD for parameter in known):
            raise Untranslatable(", ".join("{}={}".format(k, attributes[k]) for k in unknown))
        results = converter(writer, *inputs, **attributes)
    except Untranslatable as error:
        raise ConfigError(
            "operator '{}' with {} has no ONNX translation (node '{}')".format(
                node["op"], error, node["name"]
            )
        ) from None
    return results if isinstance(results, list) else [results]


def _literal(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _model(writer, inputs, outputs):
    def described(shapes):
        return [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ("batch",) + shape)
                for name, shape in shapes.items()]

    used = {name for node in writer.nodes for name in node.input}
    weights = [numpy_helper.from_array(value, name) for name, value in writer.weights.items()
               if name in used]
    graph = helper.make_graph(writer.nodes, "yolact", described(inputs), described(outputs),
                              weights)
    model = helper.make_model(graph, producer_name="yolact_mx", ir_version=_IR_VERSION,
                              opset_imports=[helper.make_opsetid("", OPSET)])
    onnx.checker.check_model(model)
    return model
