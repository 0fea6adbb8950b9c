"""A trained network made fast for inference: BatchNorm folded, operators fused, bfloat16, int8."""

import mxnet as mx

from .graph_passes import (
    INPUT,
    Graph,
    bake,
    content_of,
    fold_batchnorm,
    graph_of,
    symbol_block,
    to_16_bits,
)


def compile_network(net, ctx, dtype="float32", calibration=None):
    """A network's faster twin with its present weights.

    Parameters
    ----------
    net : Yolact
    ctx : Context
        One of those that the network is on.
    dtype : {'float32', 'bfloat16', 'int8'}
        Of the convolutions; inputs and outputs are float32.  bfloat16 and int8 run on CPUs only.
    calibration : (n, 3, S, S) NumPy, for int8
        Normalised pictures as the network will meet them: their ranges are those of its values.

    Returns
    -------
    SymbolBlock
        images (B, 3, S, S), normalised -> class_logits, box_deltas, mask_coefs, proto.
    """
    predictions = net(mx.sym.var(INPUT))[:4]  # without what only training needs
    symbol, params = graph_of(predictions, net)
    symbol = fold_batchnorm(symbol)
    if dtype == "bfloat16":
        symbol = to_16_bits(symbol, dtype)
    graph = bake(Graph(symbol, params))
    if dtype == "int8":  # fuses as well
        graph = to_int8(graph, calibration, net.head.boxes)
    else:
        graph = fuse(graph, ctx)
    return block_of(graph, ctx)


def fuse(graph, ctx):
    """Convolutions take over the operators that follow them, where MXNet has oneDNN (CPUs)."""
    if ctx.device_type != "cpu" or not mx.runtime.Features().is_enabled("MKLDNN"):
        return graph
    # not optimize_for: it takes some arguments for one another in larger graphs
    return Graph(graph.symbol.get_backend_symbol("MKLDNN"), graph.params)


def inference_graph(graph):
    """An exported graph with BatchNorm folded and all weights worked out.

    Not fused: in whole graphs oneDNN's backend makes inputs of what are no inputs.
    """
    return bake(Graph(fold_batchnorm(graph.symbol), graph.params))


def to_int8(graph, calibration, exact):
    """Convolutions in int8, with the ranges that values have on the ``calibration`` pictures.

    What reads the pictures, and the layer ``exact``, stay in float32: in 8 bits they alone cost
    more AP than all the others.
    """
    from mxnet.contrib.quantization import quantize_model_mkldnn

    weights = {parameter.name for parameter in exact.collect_params().values()}
    nodes = content_of(graph.symbol)["nodes"]
    keep = [
        node["name"]
        for node in nodes
        if node["op"] == "Convolution"
        and not weights.union([INPUT]).isdisjoint(nodes[i]["name"] for i, *_ in node["inputs"])
    ]
    symbol, arguments, states = quantize_model_mkldnn(
        graph.symbol,
        *_separate(graph),
        data_names=(INPUT,),
        label_names=None,
        excluded_sym_names=keep,
        excluded_op_names=["Activation", "Concat"],  # conversions around them cost more
        calib_mode="naive",
        calib_data=mx.io.NDArrayIter(calibration, batch_size=1),
        quantized_dtype="auto",
        quantize_mode="full",
        logger=None,
    )
    return Graph(symbol, dict(arguments, **states))


def exported_graph(symbol_file, params_file, outputs, ctx):
    """What ``HybridBlock.export`` has written; raises MXNetError or ValueError if it can't be read.

    outputs: names of the outputs in the wanted order, which files do not keep.
    """
    params = mx.nd.load(str(params_file))
    params = {name.split(":", 1)[-1]: value.as_in_context(ctx) for name, value in params.items()}
    symbol = mx.sym.load(str(symbol_file))
    symbol = mx.sym.Group([symbol[name + "_output"] for name in outputs])
    return Graph(symbol, params)


def block_of(graph, ctx):
    """A SymbolBlock that runs a graph on a context; its parameters are taken out of ``graph``."""
    block = symbol_block(graph.symbol)
    for name, parameter in block.collect_params().items():
        value = graph.params.pop(name)  # copied: two sets of weights would be in memory
        parameter.shape, parameter.dtype = value.shape, value.dtype
        parameter.grad_req = "null"
        parameter._load_init(value, ctx)
    # static_shape: fused operators keep their weights as they use them, not made in every run
    block.hybridize(static_alloc=True, static_shape=True)
    return block


def _separate(graph):
    """(arguments, auxiliary states) of a graph, as MXNet's own passes want them."""
    states = set(graph.symbol.list_auxiliary_states())
    arguments = {name: value for name, value in graph.params.items() if name not in states}
    return arguments, {name: graph.params[name] for name in states}
