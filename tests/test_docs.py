"""Links, commands and configuration names in the documentation are real."""
import re
from pathlib import Path

import pytest

from yolact_mx.config import configs_dir, load_config

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md")) + [ROOT / "weights/README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_name_existing_tools_and_options(page):
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"(?:tools|examples|benchmarks)/\w+\.py[^\n`]*", text):
        path = ROOT / line.split()[0].rstrip(",.):]")
        assert path.is_file(), line
        command = ROOT / "yolact_mx" / "commands" / path.name  # that a tool runs
        source = (command if command.is_file() else path).read_text(encoding="utf-8")
        for option in re.findall(r"(?<!\S)(--[a-z-]+)", line.split("#")[0]):
            assert option == "--help" or '"{}"'.format(option) in source, (option, line)


def test_readme_lists_every_configuration():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:yolact|shapes)[a-z0-9_]*)`", text)) - {"yolact_mx"}
    assert names == {path.stem for path in configs_dir().glob("*.yml")} - {"yolact_plus_base"}


def test_configuration_keys_in_the_documentation_exist():
    keys = r"(?<![\w./-])((?:model|train|input|detect|loss)\.[a-z_.]+)=(\S+)"
    for page in PAGES:
        for key, value in re.findall(keys, page.read_text(encoding="utf-8")):
            if re.match(r"[A-Za-z0-9._/]+$", value.rstrip("`).")):
                load_config("shapes", ["{}={}".format(key, value.rstrip("`)."))])
