"""Configuration files: bases, overrides, and one plain line for every mistake."""
from pathlib import Path

import pytest

from yolact_mx.config import configs_dir, load_config, save_config
from yolact_mx.errors import ConfigError
from yolact_mx.options import Config

CONFIGS = sorted(path.stem for path in configs_dir().glob("*.yml"))


@pytest.fixture
def config_file(tmp_path):
    """``config_file("text")`` -> path of a YAML file with it."""
    def write(text, name="mine.yml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def message(*arguments):
    with pytest.raises(ConfigError) as error:
        load_config(*arguments)
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("text", ["", "# nothing but a remark", "# lines\n\n"])
def test_an_empty_file_is_the_defaults(config_file, text):
    config = load_config(config_file(text))
    assert config == Config(name="mine")
    assert config.input.size == 550 and config.train.lr == 1e-3


@pytest.mark.parametrize("name", CONFIGS)
def test_files_that_come_with_the_package(name):
    config = load_config(name)
    assert config.name == name and config.classes == []


def test_by_name_or_by_path():
    assert load_config(configs_dir() / "yolact_base.yml") == load_config("yolact_base")


def test_bases_apply_from_the_furthest_to_the_nearest(config_file):
    config_file("input: {size: 300}\ntrain: {lr: 0.5, seed: 3}\n", "first.yml")
    config_file("base: first\ntrain: {lr: 0.25, workers: 1}\n", "second.yml")
    config = load_config(config_file("base: second.yml\ntrain: {workers: 0}\n"))
    assert (config.input.size, config.train.lr, config.train.seed, config.train.workers) == (
        300, 0.25, 3, 0)
    assert config.train.momentum == 0.9  # not mentioned by any


def test_a_base_may_be_one_of_the_package_and_the_file_one_line(config_file):
    config = load_config(config_file("base: yolact_im400"))  # without an end of line
    assert config.input.size == 400 and config.name == "mine"


def test_a_base_that_leads_back(config_file):
    first, _ = config_file("base: b\n", "a.yml"), config_file("base: a\n", "b.yml")
    assert "'base' leads back to itself" in message(first)


def test_overrides(config_file):
    path = config_file("train: {lr: 1e-2, batch_size: 4}\n")
    assert load_config(path).train.lr == 0.01
    config = load_config(path, ["train.lr=1e-3", "model.backbone.dcn_blocks=[0, 0, 1, 2]",
                                "classes=[cat, hot dog]", "augment.crop=false", "name=other",
                                "anchors.scales=[[8], [16], [32], [64], [128]]"])
    assert config.train.lr == 1e-3 and isinstance(config.train.lr, float)
    assert config.train.batch_size == 4
    assert config.model.backbone.dcn_blocks == [0, 0, 1, 2]
    assert config.classes == ["cat", "hot dog"]
    assert config.augment.crop is False and config.name == "other"
    assert config.anchors.scales[1] == [16.0] and isinstance(config.anchors.scales[1][0], float)


@pytest.mark.parametrize("word", ["no", "yes", "auto"])
def test_yes_and_no_are_words(config_file, word):
    """YAML reads a bare ``no`` as False."""
    path = config_file("train: {freeze_bn: " + word + "}\n")
    assert load_config(path).train.freeze_bn == word
    assert load_config(config_file(""), ["train.freeze_bn=" + word]).train.freeze_bn == word


@pytest.mark.parametrize("override, parts", [
    ("train.lrr=1", ["unknown key 'train.lrr'", "did you mean 'train.lr'?"]),
    ("tran.lr=1", ["unknown key 'tran'", "did you mean 'train'?"]),
    ("xyz=1", ["unknown key 'xyz'", "known: name, classes"]),
    ("train.lr=fast", ["key 'train.lr'", "'fast'"]),
    ("train.lr=", ["key 'train.lr'", "None"]),
    ("train=3", ["key 'train'", "expected a section with keys batch_size", "found 3"]),
    ("train.lr", ["override 'train.lr'", "expected key.sub=value"]),
    ("name=a: b", ["not valid YAML"]),
    ("name=${nobody}", ["key 'name'", "nobody"]),
    ("classes=lesion", ["key 'classes'"]),
    ("anchors.scales=[1, 2, 3, 4, 5]", ["key 'anchors"]),
    ("anchors.scales=[[1], [2], [3]]", ["key 'anchors.scales'", "expected 5 entries, found 3"]),
    ("anchors.scales=[[1], [2], [3], [4], [5, 6]]", ["key 'anchors.scales'", "same number"]),
    ("detect.nms=soft", ["key 'detect.nms'", "fast, cross_class, greedy", "found 'soft'"]),
    ("train.batch_size=0", ["key 'train.batch_size'", "above 0", "found 0"]),
    ("train.log_every=0", ["key 'train.log_every'", "above 0", "found 0"]),
    ("train.workers=-1", ["key 'train.workers'", "not below 0", "found -1"]),
])
def test_mistakes_in_overrides(config_file, override, parts):
    text = message(config_file(""), [override])
    assert all(part in text for part in parts), text


@pytest.mark.parametrize("content, parts", [
    ("input: {size: big}\n", ["key 'input.size'", "'big'"]),
    ("input: {sice: 300}\n", ["unknown key 'input.sice'", "did you mean 'input.size'?"]),
    ("input: 300\n", ["key 'input'", "expected a section with keys size, keep_ratio", "found 300"]),
    ("train: {lr_steps: [1, x]}\n", ["key 'train.lr_steps[1]'", "'x'"]),
    ("base: 3\n", ["key 'base'", "found 3"]),
    ("300\n", ["expected 'key: value' lines"]),
    ("- a\n- b\n", ["expected 'key: value' lines"]),
    ("input: [\n", ["not valid YAML"]),
])
def test_mistakes_in_files_name_the_file(config_file, content, parts):
    path = config_file(content)
    text = message(path)
    assert text.startswith(str(path) + ": ") and all(part in text for part in parts), text


@pytest.mark.parametrize("name", ["shape", "yolact_resnet5", "none.yml", "folder/shapes"])
def test_unknown_configuration(name):
    text = message(name)
    assert "'{}' not found".format(name) in text and "yolact_resnet101" in text
    assert ("did you mean 'shapes'?" in text) == ("shape" in name)


def test_saved_and_loaded_again(tmp_path):
    config = load_config("yolact_base", ["classes=[a, 'no', '3', été]", "train.lr=2.5e-5",
                                         "anchors.ratios=[1]"])
    path = Path(tmp_path) / "config.yml"
    save_config(config, path)
    assert load_config(path) == config
