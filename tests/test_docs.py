"""Links, commands and configuration names in the documentation are real."""
import argparse
import importlib
import re
import shlex
from collections import Counter

import pytest
from tiny import ROOT

from yolact_mx.command import COMMANDS, find_command, is_group
from yolact_mx.config import configs_dir, load_config
from yolact_mx.errors import UserError

PAGES = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md")) + [ROOT / "weights/README.md"]
# Words that a command begins with; `python` may stand before a script
STARTS = r"(?:(?:python |\./)?(?:tools|examples|benchmarks)/\w+\.py|yolact-mx|make)(?= |$)"


def text_of(page):
    return page.read_text(encoding="utf-8")


def anchors(page):
    """The #names of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    seen = Counter()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        heading = re.sub(r"\]\([^)]*\)", "", heading).lower()
        name = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        seen[name] += 1
        yield name if seen[name] == 1 else "{}-{}".format(name, seen[name] - 1)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and not (target.exists() and (
                not anchor or anchor in anchors(target))):
            missing.append(link)
    assert not missing


def test_the_readme_links_every_page():
    text = text_of(ROOT / "README.md")
    assert not [page.name for page in ROOT.glob("docs/*.md") if "](docs/" + page.name not in text]


def commands(text):
    """(command, whole) of a page; ``whole``: a line of its own, to be typed as it stands."""
    text = re.sub(r"\\\n\s*", " ", text)
    fenced = r"^```(?:sh|bash|console)?\n(.*?)^```$"
    lines = "\n".join(re.findall(fenced, text, re.MULTILINE | re.DOTALL)).splitlines()
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines += re.findall(r"^(?: {4})+(.+)$", text, re.MULTILINE)
    for line in lines:
        for part in re.split(r" && | \| |; ", re.split(r"\s#", line)[0]):
            part = re.sub(r"^\$ ", "", part.strip())
            if re.match(STARTS, re.sub(r"^(\w+=\S* )+", "", part)):
                yield re.sub(r"^(\w+=\S* )+", "", part), True
    for code in re.findall(r"`([^`]+)`", text):
        if re.match(STARTS, code.replace("\n", " ")):
            yield code.replace("\n", " "), False


class Parser(Exception):
    """Carries the parser that a command has built."""


def parser_of(module, monkeypatch):
    """The parser of a module of commands/, as its ``main`` builds it."""
    def stop(self, *_):
        raise Parser(self)

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        patch.setattr(argparse.ArgumentParser, "parse_intermixed_args", stop)
        with pytest.raises(Parser) as found:
            module.main([])
    return found.value.args[0]


def check_command(words, whole, monkeypatch):
    """Raise something if the command doesn't exist or doesn't take its arguments."""
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", text_of(ROOT / "Makefile"), re.MULTILINE)
        assert all(word in targets for word in words[1:] if "=" not in word)
        return
    words = words[1:] if words[0] == "python" else words
    path = ROOT / words[0]
    if words[0] == "yolact-mx":
        if len(words) == 1 or words[1].startswith(("-", "...")) or is_group(words[1:]):
            return
        name, words = find_command(words[1:])
        module = COMMANDS[name][0]
    else:
        assert path.is_file()
        module, words = path.stem if path.parent.name == "tools" else None, words[1:]
    own = words[:words.index("--")] if "--" in words else words  # the rest is another command's
    options = [word.split("=")[0] for word in own if re.match(r"--?[a-z]", word)]
    if module is None:  # examples and benchmarks parse within main()
        assert all('"{}"'.format(option) in text_of(path) for option in options)
        return
    module = importlib.import_module("yolact_mx.commands." + module)
    parser = parser_of(module, monkeypatch)
    if not whole or {"...", "…", "--help"} & set(words):
        assert set(options) <= set(parser._option_string_actions)
    elif hasattr(module, "parse"):
        module.parse(words)
    else:
        parser.parse_intermixed_args(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_exist_and_take_their_arguments(page, monkeypatch, capsys):
    for command, whole in commands(text_of(page)):
        try:
            check_command(shlex.split(command), whole, monkeypatch)
        except (Exception, SystemExit) as error:
            raise AssertionError("{}: {} {}".format(
                command, error, capsys.readouterr().err)) from None


@pytest.mark.parametrize("command, whole", [
    ("tools/nothing.py", False), ("tools/train.py --nothing", False), ("make nothing", True),
    ("yolact-mx trian", False), ("yolact-mx convert data labelme photos", True),
    ("tools/train.py", True), ("tools/train.py shapes --steps 0", True),
    ("python benchmarks/selection.py --nothing", False)])
def test_a_wrong_command_is_found(command, whole, monkeypatch, capsys):
    with pytest.raises((AssertionError, SystemExit, UserError)):
        check_command(shlex.split(command), whole, monkeypatch)


def test_commands_are_found():
    text = ("`tools/eval.py runs\n--ann x` and `yolact-mx train ...`\n\n    make demo  # it\n"
            "    OMP_NUM_THREADS=1 yolact-mx shapes \\\n        d --val 1 && make test\n"
            "```python\nmake = 1\n```\n```sh\n$ python benchmarks/x.py\n```\n")
    assert list(commands(text)) == [
        ("python benchmarks/x.py", True), ("make demo", True),
        ("yolact-mx shapes  d --val 1", True), ("make test", True),
        ("tools/eval.py runs --ann x", False), ("yolact-mx train ...", False)]


def test_readme_lists_every_configuration():
    names = set(re.findall(r"`((?:yolact|shapes)[a-z0-9_]*)`", text_of(ROOT / "README.md")))
    assert names - {"yolact_mx"} == {
        path.stem for path in configs_dir().glob("*.yml")} - {"yolact_plus_base"}


def test_configuration_keys_in_the_documentation_exist():
    sections = "model|anchors|train|input|detect|loss|augment"
    keys = r"(?<![\w./-])((?:{})\.[a-z_.]+=)(\[[\w.,]+\]|[\w./]*\w)(?=[\s`).,;:])".format(sections)
    found = {key + value for page in PAGES for key, value in re.findall(keys, text_of(page))}
    assert len(found) > 20
    for item in found:
        load_config("shapes", [item])


def test_yaml_in_the_documentation_can_be_read(tmp_path):
    for page in PAGES:
        for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", text_of(page), re.DOTALL)):
            path = tmp_path / "{}_{}.yml".format(page.stem, number)
            path.write_text(text, encoding="utf-8")
            load_config(path)


def test_contributing_places_every_module():
    text = text_of(ROOT / "CONTRIBUTING.md")
    names = {path.relative_to(ROOT / "yolact_mx").parts[0].replace(".py", "")
             for path in (ROOT / "yolact_mx").rglob("*.py")} - {"__init__"}
    missing = sorted(name for name in names if not re.search(r"\b{}\b".format(name), text))
    assert not missing, "say in CONTRIBUTING.md what these are for"
