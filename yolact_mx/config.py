"""Every option of the framework: typed dataclasses, YAML files and ``key.sub=value`` overrides.

A file in ``configs/`` states only what differs from its ``base``; :func:`load_config`
merges defaults <- base files <- file <- overrides and checks names, types and values.
"""

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from .errors import ConfigError


@dataclass
class InputConfig:
    """What the network sees."""

    size: int = 550  # images are resized to size x size, whatever their aspect
    # ImageNet statistics of the reference, RGB, 0..255
    mean: List[float] = field(default_factory=lambda: [123.68, 116.78, 103.94])
    std: List[float] = field(default_factory=lambda: [58.40, 57.12, 57.38])


@dataclass
class BackboneConfig:
    """A GluonCV classification network, cut after strides 8, 16 and 32."""

    name: str = "resnet50_v1b"
    weights: str = ""  # .params file of the GluonCV network; empty: random initialisation
    # Deformable 3x3 convolutions (DCNv2): how many of the last blocks of each of the four
    # stages, and every how many blocks.  All zero: none.
    dcn_blocks: List[int] = field(default_factory=lambda: [0, 0, 0, 0])
    dcn_interval: int = 1


@dataclass
class FpnConfig:
    channels: int = 256


@dataclass
class ProtonetConfig:
    channels: int = 256
    prototypes: int = 32
    conv: str = "plain"  # plain | dynamic (DynamicConv2D)


@dataclass
class HeadConfig:
    channels: int = 256
    conv: str = "plain"  # plain | dynamic (DynamicConv2D)


@dataclass
class ModelConfig:
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    fpn: FpnConfig = field(default_factory=FpnConfig)
    protonet: ProtonetConfig = field(default_factory=ProtonetConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    # Channels of the mask-IoU net's stride-2 layers (YOLACT++); empty: no mask re-scoring.
    # Five layers need an input of at least 249 pixels.
    mask_iou: List[int] = field(default_factory=list)


@dataclass
class AnchorsConfig:
    """Anchor sizes in pixels of the network input, a list for each of P3..P7."""

    scales: List[List[float]] = field(
        default_factory=lambda: [[24.0], [48.0], [96.0], [192.0], [384.0]]
    )
    ratios: List[float] = field(default_factory=lambda: [1.0, 0.5, 2.0])
    # The reference's YOLACT configs make every anchor square: h = w = scale * sqrt(ratio)
    square: bool = True


@dataclass
class LossConfig:
    class_weight: float = 1.0
    box_weight: float = 1.5
    mask_weight: float = 6.125
    semantic_weight: float = 1.0
    mask_iou_weight: float = 25.0
    positive_iou: float = 0.5  # an anchor with at least this IoU is positive
    negative_iou: float = 0.4  # below: background; between the two: ignored
    crowd_iou: float = 0.7  # share of an anchor inside a crowd above which it is ignored
    negative_ratio: int = 3  # hard negatives kept for each positive (OHEM)
    masks_to_train: int = 100  # positives per image that get a mask loss
    mask_iou_min_area: int = 25  # smaller masks (pixels at prototype size) are not re-scored


@dataclass
class AugmentConfig:
    photometric: bool = True
    expand: bool = True
    crop: bool = True
    mirror: bool = True
    min_side: float = 4.0 / 550.0  # smaller boxes (share of the image side) are dropped


@dataclass
class TrainConfig:
    batch_size: int = 8
    steps: int = 800000
    lr: float = 1e-3
    optimizer: str = "sgd"  # sgd (with momentum, as in the paper) | adam (from scratch, quickly)
    momentum: float = 0.9  # of sgd
    weight_decay: float = 5e-4
    # Largest norm of the gradient of all parameters together, a longer one is scaled down; 0: any
    clip_norm: float = 0.0
    # Each batch in so many parts, one after the other: the memory of a part, the gradient of the
    # whole (statistics of a trained BatchNorm excepted)
    accumulate: int = 1
    # Parts of the network that stay as they are: [backbone], [backbone.layer1, fpn]
    freeze: List[str] = field(default_factory=list)
    # Decay of the exponential moving average of the weights (0.999, say) that is then validated
    # and kept as the best; 0: none
    ema: float = 0.0
    warmup_lr: float = 1e-4
    warmup_steps: int = 500
    lr_policy: str = "steps"  # steps | cosine (to 0 at the last step)
    lr_steps: List[int] = field(default_factory=lambda: [280000, 600000, 700000, 750000])
    lr_gamma: float = 0.1
    # lr, steps and lr_steps are stated for this batch size and scaled to the real one
    # (linear scaling rule); 0 switches the scaling off.
    reference_batch: int = 8
    # BatchNorm statistics and affine parameters stay fixed: yes | no | auto (fixed below
    # 6 images per device, where batch statistics are too noisy to train with)
    freeze_bn: str = "auto"
    # Epochs in which the softmax temperature of dynamic convolutions falls from 30 to 1
    temperature_epochs: int = 10
    keep_empty: bool = True  # images without objects are used as negatives
    workers: int = 2
    validate_every: int = 2  # epochs; 0: only at the end
    patience: int = 0  # validations without a better mask AP that end the run; 0: never
    tensorboard: bool = False  # losses, lr, AP and pictures for TensorBoard too (tensorboardX)
    checkpoint_every: int = 1000  # steps
    log_every: int = 10  # steps
    seed: int = 0


@dataclass
class DetectConfig:
    score_threshold: float = 0.05
    nms: str = "fast"  # fast | cross_class | greedy
    nms_iou: float = 0.5
    top_k: int = 200  # candidates per class that enter NMS
    max_detections: int = 100
    crop_masks: bool = True  # cut each mask at its box


@dataclass
class Config:
    """The whole of a run; saved beside its weights."""

    name: str = "yolact"
    classes: List[str] = field(default_factory=list)  # from the data set, when empty
    # Behave as the PyTorch reference also where it is wrong but its official weights were
    # trained or evaluated so (docs/differences.md).
    reference_compatible: bool = False
    input: InputConfig = field(default_factory=InputConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    anchors: AnchorsConfig = field(default_factory=AnchorsConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    detect: DetectConfig = field(default_factory=DetectConfig)


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
