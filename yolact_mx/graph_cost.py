"""Multiply-adds and parameters of a graph, counted from its operators and their shapes."""

import json
import re
import warnings
from collections import Counter
from typing import Dict, NamedTuple

import mxnet as mx
import numpy as np

from .errors import ConfigError

# Which input is the weight, of (outputs, ...)
_WEIGHT = {
    "Convolution": 1,
    "FullyConnected": 1,
    "_contrib_DeformableConvolution": 2,
    "_contrib_ModulatedDeformableConvolution": 3,
}
_PRODUCTS = ("batch_dot", "dot")


class Cost(NamedTuple):
    """What a graph costs; one multiply-add is two floating-point operations (FLOPs).

    multiply_adds: {operator: how many, over all of its nodes}.
    parameters: elements of all arguments that are no inputs.
    """

    multiply_adds: Dict[str, int]
    parameters: int

    @property
    def flops(self):
        return 2 * sum(self.multiply_adds.values())


def count(symbol, **shapes):
    """Cost of one run of a graph.

    Counted are convolutions (deformable ones like plain ones of their size: what their sampling
    adds is not) and matrix products.  Everything else, sub-graphs of ``foreach`` included,
    counts as nothing.  A parameter that several nodes share counts once; running statistics of
    BatchNorm are no parameters.

    Parameters
    ----------
    symbol : Symbol
    shapes : ``data=(1, 3, 550, 550)``
        Of the inputs.  Constants that are given here too are not counted as parameters.

    Returns
    -------
    Cost

    Raises
    ------
    ConfigError
        When the shapes do not determine those of the whole graph, or contradict it.
    """
    unknown = sorted(set(shapes) - set(symbol.list_inputs()))
    if unknown:
        raise ConfigError("shapes: the graph has no input '{}'; it has {}".format(
            unknown[0], ", ".join(symbol.list_inputs())))
    nodes = json.loads(symbol.tojson())["nodes"]
    found = _output_shapes(symbol, shapes)
    total = Counter()
    for number, node in enumerate(nodes):
        if node["op"] in _WEIGHT or node["op"] in _PRODUCTS:
            inputs = [found[source][output] for source, output, _ in node["inputs"]]
            total[node["op"]] += _size(found[number][0]) * _summands(node, inputs)
    arguments = set(symbol.list_arguments()) - set(shapes)
    parameters = sum(_size(found[number][0]) for number, node in enumerate(nodes)
                     if node["name"] in arguments)
    return Cost(dict(total), parameters)


def _output_shapes(symbol, shapes):
    """[shapes of its outputs] by the number of the node.  Nodes share names (a block that is
    called twice), so each gets one of its own first."""
    graph = json.loads(symbol.tojson())
    numbers = {}
    for number, node in enumerate(graph["nodes"]):
        if node["op"] == "null":
            numbers[node["name"]] = number
        else:
            node["name"] = "node{}".format(number)
    inner = mx.sym.load_json(json.dumps(graph)).get_internals()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is missing; that is an error here
            _, outputs, _ = inner.infer_shape(**shapes)
    except mx.MXNetError as error:
        raise ConfigError("shapes {} do not fit the graph: {}".format(
            shapes, str(error).strip().splitlines()[-1])) from None
    if outputs is None:
        raise ConfigError("shapes {} do not determine those of the whole graph".format(shapes))
    found = [[] for _ in graph["nodes"]]
    for name, shape in zip(inner.list_outputs(), outputs):
        number = numbers[name] if name in numbers else int(re.match(r"node(\d+)_", name).group(1))
        found[number].append(shape)
    return found


def _summands(node, inputs):
    """How many products each element of the node's output is the sum of."""
    if node["op"] in _WEIGHT:
        return _size(inputs[_WEIGHT[node["op"]]][1:])
    if node.get("attrs", {}).get("transpose_a") in ("True", "1"):
        return inputs[0][1 if node["op"] == "batch_dot" else 0]
    return inputs[0][-1]


def _size(shape):
    return int(np.prod(shape, dtype=np.int64))
