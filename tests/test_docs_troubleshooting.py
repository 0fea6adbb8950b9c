"""docs/troubleshooting.md quotes messages that the package has."""
import ast
import re

from tiny import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
FOREIGN = {"module 'numpy' has no attribute 'bool'"}  # NumPy's own
FIELD = re.compile(r"\{[^{}]*\}|%[sd]")
FEWEST = 10  # characters around the fields; a shorter text would fit anything


def texts():
    """All string constants of the package: literals side by side are one."""
    for path in (ROOT / "yolact_mx").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def quoted():
    """The messages in bold at the head of the entries."""
    return {message for head in re.findall(r"^(\*\*.*\*\*)", PAGE, re.MULTILINE)
            for message in re.findall(r"`([^`]{3,})`", head)} - FOREIGN


def has(message, text):
    """Whether ``message`` is (a part of) ``text`` with its fields filled in or left as "…"."""
    if message.rstrip("…") in FIELD.sub("…", text):  # "…" at the end: and so on
        return True
    literal = FIELD.split(text)
    pattern = ".*".join(map(re.escape, literal))
    return len("".join(literal)) >= FEWEST and any(
        re.fullmatch(pattern, start + message) for start in ("", "…: "))


def test_quoted_messages_exist():
    messages, known = quoted(), list(texts())
    assert len(messages) > 30
    assert not [message for message in messages if not any(has(message, t) for t in known)]


def test_has():
    assert has("no image …", "{}: no image {!r} there") and has("n/a", "n/a")
    assert has("cut image of … bytes", "{}: {} of {} bytes")
    assert not has("no picture …", "{}: no image {!r} there") and not has("anything", "{}: {}")
