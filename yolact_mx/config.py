"""Configurations: the typed options of ``options.py``, YAML files, ``key.sub=value`` overrides.

A file in ``configs/`` states only what differs from its ``base``; :func:`load_config`
merges defaults <- base files <- file <- overrides and checks names, types and values.
"""

import difflib
from pathlib import Path
from typing import List, Optional

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from .errors import ConfigError
from .options import Config

CHOICES = {
    "model.protonet.conv": ("plain", "dynamic"),
    "model.head.conv": ("plain", "dynamic"),
    "train.freeze_bn": ("yes", "no", "auto"),
    "train.optimizer": ("sgd", "adam"),
    "train.lr_policy": ("steps", "cosine"),
    "detect.nms": ("fast", "cross_class", "greedy"),
}
POSITIVE = (
    "input.size",
    "model.backbone.dcn_interval",
    "model.fpn.channels",
    "model.protonet.channels",
    "model.protonet.prototypes",
    "model.head.channels",
    "train.batch_size",
    "train.steps",
    "train.lr",
    "train.accumulate",
    "train.checkpoint_every",
    "train.log_every",
    "loss.masks_to_train",
    "detect.top_k",
    "detect.max_detections",
)
NOT_NEGATIVE = (
    "train.workers",
    "train.validate_every",
    "train.warmup_steps",
    "train.clip_norm",
    "train.ema",
    "train.patience",
)


def configs_dir():
    """Folder of the configurations that come with the package."""
    packaged = Path(__file__).resolve().parent / "configs"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parent.parent / "configs"


def load_config(name_or_path, overrides=()):
    """Read a configuration.

    Parameters
    ----------
    name_or_path : str or Path
        A YAML file, or the name of one in ``configs/`` (``yolact_resnet50``).
    overrides : sequence of str
        ``key.sub=value``, applied last.

    Returns
    -------
    Config

    Raises
    ------
    ConfigError
        Names the file and key, what was expected and what was found.
    """
    path = _find(name_or_path)
    config = OmegaConf.structured(Config)
    for source, values in _chain(path):
        config = _merge(config, values, str(source))
    for item in overrides:
        if "=" not in item:
            raise ConfigError("override '{}': expected key.sub=value".format(item))
        key, _, value = item.partition("=")
        values = _nest(key.strip(), _yaml("value: " + value, "override '{}'".format(item))["value"])
        config = _merge(config, values, "override '{}'".format(item))
    # YAML reads a bare yes or no as a truth value
    words = {"True": "yes", "False": "no"}
    config.train.freeze_bn = words.get(config.train.freeze_bn, config.train.freeze_bn)
    _check(config, str(path))
    result = OmegaConf.to_object(config)
    if result.name == Config.name:
        result.name = path.stem
    return result


def save_config(config, path):
    """Write every option, defaults included, as YAML."""
    Path(path).write_text(OmegaConf.to_yaml(OmegaConf.structured(config)), encoding="utf-8")


def _find(name_or_path):
    path = Path(name_or_path)
    if path.suffix in (".yml", ".yaml") and path.is_file():
        return path
    packaged = configs_dir() / (path.name if path.suffix else path.name + ".yml")
    if str(path) in (path.name, path.stem) and packaged.is_file():
        return packaged
    known = sorted(p.stem for p in configs_dir().glob("*.yml"))
    hint = difflib.get_close_matches(path.stem, known, n=1)
    raise ConfigError(
        "configuration '{}' not found{}; those that come with the package: {}".format(
            name_or_path, " (did you mean '{}'?)".format(hint[0]) if hint else "", ", ".join(known)
        )
    )


def _chain(path, seen=()):
    """[(file, values)] from the furthest base to the file itself."""
    if path in seen:
        raise ConfigError("{}: 'base' leads back to itself".format(path))
    values = _yaml(path.read_text(encoding="utf-8"), str(path)) or {}
    if not isinstance(values, dict):
        raise ConfigError("{}: expected 'key: value' lines".format(path))
    base = values.pop("base", None)
    if base is None:
        return [(path, values)]
    if not isinstance(base, str):
        raise ConfigError("{}: key 'base': expected a name or a file, found {}".format(path, base))
    beside = path.parent / (base if base.endswith(".yml") else base + ".yml")
    return _chain(beside if beside.is_file() else _find(base), seen + (path,)) + [(path, values)]


def _yaml(text, where):
    try:
        # OmegaConf's loader reads 1e-3 as a number, which PyYAML does not
        return OmegaConf.to_container(OmegaConf.create(text))
    except AssertionError:  # of OmegaConf, for a lone number
        return text
    except (YAMLError, OmegaConfBaseException) as error:
        raise ConfigError("{}: not valid YAML: {}".format(where, _one_line(error))) from None


def _nest(key, value):
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def _merge(config, values, where):
    _check_keys(values, config, "", where)
    try:
        merged = OmegaConf.merge(config, _float_lists(values))
        OmegaConf.resolve(merged)
        return merged
    except OmegaConfBaseException as error:
        # a fault within a list of lists comes without its key
        key = getattr(error, "full_key", None) or ", ".join(values)
        raise ConfigError("{}: key '{}': {}".format(where, key, _one_line(error))) from None


def _float_lists(value):
    """Whole numbers within lists of lists as floats: OmegaConf converts plain lists only."""
    if isinstance(value, dict):
        return {key: _float_lists(item) for key, item in value.items()}
    if isinstance(value, list) and all(isinstance(item, list) for item in value):
        return [[float(n) if isinstance(n, int) else n for n in item] for item in value]
    return value


def _check_keys(values, config, prefix, where):
    if not isinstance(values, dict):
        raise ConfigError(
            "{}: key '{}': expected a section with keys {}, found {!r}".format(
                where, prefix.rstrip("."), ", ".join(config), values
            )
        )
    for key, value in values.items():
        if key not in config:
            hint = difflib.get_close_matches(str(key), list(config), n=1)
            raise ConfigError(
                "{}: unknown key '{}{}'{}".format(
                    where,
                    prefix,
                    key,
                    "; did you mean '{}{}'?".format(prefix, hint[0])
                    if hint
                    else "; known: " + ", ".join(config),
                )
            )
        if OmegaConf.is_dict(config[key]):
            _check_keys(value, config[key], "{}{}.".format(prefix, key), where)


def _check(config, where):
    for key, allowed in CHOICES.items():
        found = OmegaConf.select(config, key)
        if found not in allowed:
            raise ConfigError(
                "{}: key '{}': expected one of {}, found '{}'".format(
                    where, key, ", ".join(allowed), found
                )
            )
    for key in POSITIVE + NOT_NEGATIVE:
        found = OmegaConf.select(config, key)
        if found < 0 or found == 0 and key in POSITIVE:
            raise ConfigError(
                "{}: key '{}': expected a number {}, found {}".format(
                    where, key, "above 0" if key in POSITIVE else "not below 0", found
                )
            )
    if config.train.ema >= 1:
        raise ConfigError(
            "{}: key 'train.ema': expected a decay below 1, found {}".format(
                where, config.train.ema
            )
        )
    lengths = {"anchors.scales": 5, "model.backbone.dcn_blocks": 4, "input.mean": 3, "input.std": 3}
    for key, length in lengths.items():
        found = len(OmegaConf.select(config, key))
        if found != length:
            raise ConfigError(
                "{}: key '{}': expected {} entries, found {}".format(where, key, length, found)
            )
    if len({len(level) for level in config.anchors.scales}) != 1:
        raise ConfigError(
            "{}: key 'anchors.scales': every level needs the same number of scales, "
            "since the prediction head is shared".format(where)
        )


def _one_line(error):
    return str(error).strip().splitlines()[0]


def class_names(config) -> Optional[List[str]]:
    """The configured class names, or None when they are to come from the data set."""
    return list(config.classes) or None
