"""Fixtures for the golden figures: ``pytest tests/test_golden*.py --golden-dir DIR``.

Nothing about a set of figures is known beforehand: seeds, sizes and calls are read from the
``meta`` of each file, so the same tests run on any set made by the same rules.
"""
import ast
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

# What a call written down in ``meta`` may consist of.
_ALLOWED = (ast.Expression, ast.Call, ast.Attribute, ast.Name, ast.Load, ast.Constant, ast.List,
            ast.Tuple, ast.UnaryOp, ast.USub, ast.Subscript, ast.Slice, ast.Index, ast.ExtSlice)


def pytest_addoption(parser):
    parser.addoption("--golden-dir", default=str(Path(__file__).parent / "golden"),
                     help="folder of the golden figures and their rules (tests/golden)")
    parser.addoption("--golden-table", action="store_true",
                     help="print how many golden figures were compared, and the worst errors")


def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--golden-table"):
        from golden_support import TABLE
        terminalreporter.section("golden figures")
        line = "{:28s} {:24s} {:>8} {:>12} {:>10}"
        terminalreporter.line(line.format("file", "figures", "number", "worst error", "tolerance"))
        for (file, kind), (number, worst, tolerance) in sorted(TABLE.items()):
            terminalreporter.line(line.format(file, kind, number, "{:.1e}".format(worst),
                                              "{:.0e}".format(tolerance)))


@pytest.fixture(scope="session")
def golden_dir(request):
    """Folder of the golden figures."""
    return Path(request.config.getoption("--golden-dir"))


@pytest.fixture(scope="session")
def golden(golden_dir):
    """``golden('augment.npz')`` -> (the open npz, its meta as a dict)."""
    def load(name):
        figures = np.load(str(golden_dir / name))
        return figures, json.loads(str(figures["meta"]))
    return load


@pytest.fixture(scope="session")
def inputs_rule(golden_dir):
    """The module that makes the inputs, from the same folder as the figures if it is there."""
    return _load_module(golden_dir, "inputs_rule.py")


@pytest.fixture(scope="session")
def weights_rule(golden_dir):
    """The module that makes the weights, from the same folder as the figures if it is there."""
    return _load_module(golden_dir, "weights_rule.py")


@pytest.fixture(scope="session")
def evaluate(inputs_rule):
    """``evaluate("inputs_rule.photo(1, 97, 131) uint8 BGR")`` -> what the leading call returns."""
    def run(text):
        return evaluate_call(text, {"inputs_rule": inputs_rule,
                                    "RandomState": np.random.RandomState})
    return run


def evaluate_call(text, names):
    """Value of the call that ``text`` begins with; a remark may follow it.

    Only calls of the public functions of ``names`` with literal arguments, and slices of their
    results, are evaluated; anything else raises ValueError.
    """
    tree = _leading_expression(text)
    for node in ast.walk(tree):
        chained = isinstance(node, ast.Attribute) and (
            node.attr.startswith("_") or isinstance(node.value, ast.Attribute))
        unknown = isinstance(node, ast.Name) and node.id not in names
        if chained or unknown or not isinstance(node, _ALLOWED):
            raise ValueError("not a plain call of {}: {!r}".format(sorted(names), text))
    return eval(compile(tree, "<meta>", "eval"), {"__builtins__": {}}, dict(names))


def _leading_expression(text):
    for end in range(len(text), 0, -1):
        try:
            return ast.parse(text[:end].strip(), mode="eval")
        except SyntaxError:
            continue
    raise ValueError("no expression at the start of {!r}".format(text))


def _load_module(folder, name):
    path = folder / name
    if not path.is_file():  # both rules are the same for every set
        path = Path(__file__).parent / "golden" / name
    spec = importlib.util.spec_from_file_location(path.stem, str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
