"""Every option of the framework, with its default and its meaning."""

from dataclasses import dataclass, field
from typing import List


@dataclass
class InputConfig:
    """What the network sees."""

    size: int = 550  # images are resized to size x size, whatever their aspect
    # Instead to the nearest of eleven shapes from 1:2 to 2:1 of as many pixels (input_shapes.py);
    # by the whole image: augmentation then stretches what it cut out to that shape
    keep_ratio: bool = False
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
    # Convolutions compute in 16 bits, weights stay in 32: float16 on GPUs, bfloat16 on CPUs that
    # have it (AVX-512 BF16; others stay in float32)
    amp: bool = False
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
