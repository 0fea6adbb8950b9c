"""YOLACT and YOLACT++ in PyTorch, from their published formulas: what ours is timed against.

It does the work of the original on a CPU, in the original's order: BatchNorm as a layer, softmax of
all anchors, a full sort per class, masks cropped at prototype size and then resized.  Parameters
have the names of its state_dict.  One stand-in: PyTorch has no deformable convolution, so
``DeformConv`` samples with ``grid_sample``, as ports of the original to CPUs do.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

RATIOS = (1.0, 0.5, 2.0)
SCALES = (24, 48, 96, 192, 384)
MEAN, STD = (103.94, 116.78, 123.68), (57.38, 57.12, 58.40)  # B, G, R
PROTOTYPES = 32
# blocks of the stages, deformable ones of them, their interval
RESNET50, RESNET101 = (3, 4, 6, 3), (3, 4, 23, 3)
BACKBONES = {
    "yolact_resnet50": (RESNET50, (0, 0, 0, 0), 1),
    "yolact_resnet101": (RESNET101, (0, 0, 0, 0), 1),
    "yolact_base": (RESNET101, (0, 0, 0, 0), 1),
    "yolact_plus_resnet50": (RESNET50, (0, 4, 6, 3), 1),
    "yolact_plus_resnet101": (RESNET101, (0, 4, 23, 3), 3),
    "yolact_plus_base": (RESNET101, (0, 4, 23, 3), 3),
}


class DeformConv(nn.Conv2d):
    """DCNv2, 3x3: nine displaced and weighted samples per pixel, then a matrix product."""

    def __init__(self, before, after, stride):
        super().__init__(before, after, 3, stride, 1)
        self.conv_offset_mask = nn.Conv2d(before, 27, 3, stride, 1)

    def forward(self, x):
        batch, channels, height, width = x.shape
        moves = self.conv_offset_mask(x)
        rows, columns = moves.shape[2:]
        dy, dx = moves[:, :18].reshape(batch, 9, 2, rows, columns).unbind(2)
        tap = torch.arange(9).reshape(9, 1, 1)
        y = dy + torch.arange(rows).reshape(1, rows, 1) * self.stride[0] - 1 + tap // 3
        x_ = dx + torch.arange(columns).reshape(1, 1, columns) * self.stride[0] - 1 + tap % 3
        grid = torch.stack([(2 * x_ + 1) / width - 1, (2 * y + 1) / height - 1], dim=-1)
        samples = F.grid_sample(x, grid.reshape(batch, 9 * rows, columns, 2), align_corners=False)
        samples = samples.reshape(batch, channels, 9, rows * columns)
        samples = samples * torch.sigmoid(moves[:, 18:]).reshape(batch, 1, 9, -1)
        out = self.weight.flatten(1) @ samples.reshape(batch, channels * 9, -1)
        return (out + self.bias[:, None]).reshape(batch, -1, rows, columns)


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1, each with BatchNorm, beside a shortcut."""

    def __init__(self, before, width, stride, project, deformable):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = (DeformConv(width, width, stride) if deformable
                      else nn.Conv2d(width, width, 3, stride, 1, bias=False))
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3, self.relu = nn.BatchNorm2d(4 * width), nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(
            nn.Conv2d(before, 4 * width, 1, stride, bias=False),
            nn.BatchNorm2d(4 * width)) if project else None

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """(B, 3, H, W) -> C3, C4, C5."""

    def __init__(self, blocks, deformable, interval):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        self.layers, before = nn.ModuleList(), 64
        for stage, (count, last) in enumerate(zip(blocks, deformable)):
            width, stage_blocks = 64 * 2 ** stage, []
            for i in range(count):
                stride = 2 if stage and not i else 1
                moved = i + last >= count and i % interval == 0
                stage_blocks.append(Bottleneck(before, width, stride, not i, moved))
                before = 4 * width
            self.layers.append(nn.Sequential(*stage_blocks))

    def forward(self, x):
        x = self.layers[0](self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        outputs = []
        for layer in self.layers[1:]:
            x = layer(x)
            outputs.append(x)
        return outputs


class FPN(nn.Module):
    """C3, C4, C5 -> P3..P7 of 256 channels."""

    def __init__(self, channels=(512, 1024, 2048)):
        super().__init__()
        self.lat_layers = nn.ModuleList(nn.Conv2d(c, 256, 1) for c in reversed(channels))
        self.pred_layers = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in channels)
        self.downsample_layers = nn.ModuleList(nn.Conv2d(256, 256, 3, 2, 1) for _ in range(2))

    def forward(self, features):
        levels, x = [], None
        for feature, lateral, output in zip(reversed(features), self.lat_layers, self.pred_layers):
            side = lateral(feature)
            x = side if x is None else side + F.interpolate(x, size=side.shape[2:], mode="bilinear")
            levels.insert(0, F.relu(output(x)))
        for layer in self.downsample_layers:
            levels.append(layer(levels[-1]))
        return levels


class Head(nn.Module):
    """One level -> box offsets (B, n, 4), class logits (B, n, C + 1), coefficients (B, n, 32)."""

    def __init__(self, anchors, classes):
        super().__init__()
        self.upfeature = nn.Sequential(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True))
        self.widths = (4, classes + 1, PROTOTYPES)
        self.bbox_layer, self.conf_layer, self.mask_layer = (
            nn.Conv2d(256, anchors * width, 3, padding=1) for width in self.widths)

    def forward(self, level):
        x = self.upfeature(level)
        loc, conf, coefs = (
            layer(x).permute(0, 2, 3, 1).reshape(len(x), -1, width) for layer, width
            in zip((self.bbox_layer, self.conf_layer, self.mask_layer), self.widths))
        return loc, conf, torch.tanh(coefs)


class MaskIoUNet(nn.Module):
    """Cropped masks (n, 1, h, w) -> predicted IoU with the object per class (n, C)."""

    def __init__(self, classes, channels=(1, 8, 16, 32, 64, 128)):
        super().__init__()
        layers = []
        for before, after in zip(channels, channels[1:]):
            layers += [nn.Conv2d(before, after, 3, 2), nn.ReLU(inplace=True)]
        layers += [nn.Conv2d(channels[-1], classes, 1), nn.ReLU(inplace=True)]
        self.maskiou_net = nn.Sequential(*layers)

    def forward(self, masks):
        scores = self.maskiou_net(masks)
        return F.max_pool2d(scores, scores.shape[2:]).flatten(1)


class Yolact(nn.Module):
    """The network of a configuration; BatchNorm always has its running statistics.

    forward: (B, 3, S, S) normalised RGB -> loc (B, N, 4), conf (B, N, C + 1) (logits in training,
    else probabilities), coefs (B, N, 32), proto (B, h, w, 32) [, semantic logits in training].
    """

    def __init__(self, name, classes=80, size=550):
        super().__init__()
        self.size, self.plus = size, "plus" in name
        self.backbone = ResNet(*BACKBONES[name])
        self.fpn = FPN()
        layers = []
        for _ in range(3):
            layers += [nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True)]
        layers += [nn.Upsample(scale_factor=2, mode="bilinear"), nn.ReLU(inplace=True),
                   nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True),
                   nn.Conv2d(256, PROTOTYPES, 1), nn.ReLU(inplace=True)]
        self.proto_net = nn.Sequential(*layers)
        octaves = 3 if self.plus else 1
        self.prediction_layers = nn.ModuleList([Head(octaves * len(RATIOS), classes)])
        self.semantic_seg_conv = nn.Conv2d(256, classes, 1)
        self.maskiou_net = MaskIoUNet(classes) if self.plus else None
        self.priors = make_priors(size, octaves, square=not self.plus)

    def train(self, mode=True):
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
                module.requires_grad_(False)
        return self

    def forward(self, images):
        levels = self.fpn(self.backbone(images))
        proto = self.proto_net(levels[0]).permute(0, 2, 3, 1).contiguous()
        parts = zip(*[self.prediction_layers[0](level) for level in levels])
        loc, conf, coefs = (torch.cat(part, dim=1) for part in parts)
        if self.training:
            return loc, conf, coefs, proto, self.semantic_seg_conv(levels[0])
        return loc, F.softmax(conf, dim=-1), coefs, proto


def make_priors(size, octaves, square):
    """(N, 4) cx cy w h of P3..P7, relative to the image."""
    sides, levels = [size], []
    for _ in range(7):
        sides.append((sides[-1] + 1) // 2)
    for side, scale in zip(sides[3:], SCALES):
        centres = (np.arange(side) + 0.5) / side
        shapes = [(s * r ** 0.5, s * r ** (0.5 if square else -0.5))
                  for s in (scale * 2 ** (j / 3) for j in range(octaves)) for r in RATIOS]
        cells = np.zeros((side, side, len(shapes), 4))
        cells[..., 0], cells[..., 1] = centres[:, None], centres[:, None, None]
        cells[..., 2:] = np.array(shapes) / size
        levels.append(cells.reshape(-1, 4))
    return torch.from_numpy(np.concatenate(levels).astype(np.float32))


def load_arrays(net, arrays):
    """Set the parameters: {name in the state_dict: array}."""
    state = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
    missing, unexpected = net.load_state_dict(state, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        raise ValueError("missing {}, not part of it {}".format(missing, unexpected))


def prepare(image, size):
    """(H, W, 3) BGR uint8 -> (1, 3, size, size) normalised RGB."""
    x = torch.from_numpy(image).float().permute(2, 0, 1)[None]
    x = F.interpolate(x, (size, size), mode="bilinear")
    x = (x - torch.tensor(MEAN).reshape(1, 3, 1, 1)) / torch.tensor(STD).reshape(1, 3, 1, 1)
    return x[:, (2, 1, 0)].contiguous()


def corners(boxes):
    """cx cy w h -> x1 y1 x2 y2."""
    return torch.cat([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], dim=1)


def pairwise_iou(a, b):
    """(..., n, 4), (..., m, 4) x1 y1 x2 y2 -> (..., n, m)."""
    low = torch.maximum(a[..., :, None, :2], b[..., None, :, :2])
    high = torch.minimum(a[..., :, None, 2:], b[..., None, :, 2:])
    sides = (high - low).clamp(min=0)
    overlap = sides[..., 0] * sides[..., 1]
    return overlap / (area(a)[..., :, None] + area(b)[..., None, :] - overlap)


def area(boxes):
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def crop(masks, boxes):
    """Zero outside the boxes, one pixel of margin: (h, w, n), (n, 4) relative -> (h, w, n)."""
    height, width = masks.shape[:2]
    inside = []
    for first, length in ((0, width), (1, height)):
        ends = boxes[:, (first, first + 2)] * length
        grid = torch.arange(length, dtype=masks.dtype)[:, None]
        low = (ends.min(dim=1).values - 1).clamp(min=0)
        high = (ends.max(dim=1).values + 1).clamp(max=length)
        inside.append((grid >= low) & (grid < high))
    return masks * (inside[0][None] & inside[1][:, None]).float()


def fast_nms(scores, boxes, iou=0.5, top_k=200, most=100):
    """(C, n) scores, (n, 4) boxes -> scores, classes, rows of the detections, best first."""
    scores, rows = scores.sort(dim=1, descending=True)
    scores, rows = scores[:, :top_k], rows[:, :top_k]
    candidates = boxes[rows]  # (C, k, 4)
    worst = pairwise_iou(candidates, candidates).triu_(diagonal=1).amax(dim=1)
    kept = worst <= iou
    classes = torch.arange(len(scores))[:, None].expand_as(kept)[kept]
    scores, order = scores[kept].sort(descending=True)
    order = order[:most]
    return scores[:most], classes[order], rows[kept][order]


@torch.no_grad()
def detect(net, image, size, threshold=0.05):
    """The way of a picture: BGR uint8 -> boxes, scores, classes and masks (n, height, width).

    size : (width, height) of the picture that boxes and masks are for.
    """
    loc, conf, coefs, proto = (out[0] for out in net(prepare(image, net.size)))
    priors = net.priors
    wh = priors[:, 2:] * torch.exp(loc[:, 2:] * 0.2)
    low = priors[:, :2] + loc[:, :2] * 0.1 * priors[:, 2:] - wh / 2
    boxes = torch.cat([low, low + wh], dim=1)
    scores = conf[:, 1:].t()
    kept = scores.amax(dim=0) > threshold
    boxes, coefs = boxes[kept], coefs[kept]
    scores, classes, rows = fast_nms(scores[:, kept], boxes)
    boxes = boxes[rows]
    masks = crop(torch.sigmoid(proto @ coefs[rows].t()), boxes).permute(2, 0, 1).contiguous()
    if net.plus:
        quality = net.maskiou_net(masks[:, None])
        scores = scores * quality.gather(1, classes[:, None])[:, 0]
    width, height = size
    masks = F.interpolate(masks[None], (height, width), mode="bilinear")[0].gt_(0.5)
    ends = boxes.reshape(-1, 2, 2) * torch.tensor([width, height])
    low = ends.amin(dim=1).clamp(min=0)
    high = torch.minimum(ends.amax(dim=1), torch.tensor([width, height]).float())
    return torch.cat([low, high], dim=1).long(), scores, classes, masks
