"""docs/selection.md and docs/dynamic_conv.md: the example runs, the operator lists are complete."""
import json
import re
from pathlib import Path

import mxnet as mx

from yolact_mx.nn import DynamicConv2D, select_positives, unsorted_topk

DOCS = Path(__file__).resolve().parent.parent / "docs"


def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def listed_operators(text):
    """The names in backticks that follow the word "operators", up to the first that is none."""
    run = re.search(r"[Oo]perators[^`]*?((?:`\w+`[,\s]*)+)", text)
    return set(re.findall(r"`(\w+)`", run.group(1)))


def operators(symbols):
    nodes = json.loads(mx.sym.Group(symbols).tojson())["nodes"]
    return {node["op"] for node in nodes} - {"null"}


def test_example_runs():
    code = re.search(r"```python\n(.*?)```", page("selection.md"), re.S).group(1)
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    exec(compile(code, "docs/selection.md", "exec"), {"__name__": "example"})


def test_selection_lists_every_operator_of_its_graphs():
    x, a = mx.sym.var("x"), mx.sym.var("a")
    graphs = [unsorted_topk(mx.sym, x, 2, axis=1, ret_typ=ret_typ)
              for ret_typ in ("value", "indices", "mask")]
    for random in (False, True):
        graphs += select_positives(mx.sym, a, x, k=2, random=random)
    assert operators(graphs) == listed_operators(page("selection.md"))


def test_dynamic_convolution_lists_every_operator_of_its_graph():
    conv = DynamicConv2D(4, 3, in_channels=4, activation="relu")
    assert operators([conv(mx.sym.var("x"))]) == listed_operators(page("dynamic_conv.md"))
