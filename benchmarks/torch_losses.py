"""The training step of YOLACT in PyTorch: matching, losses and update, as the original has them."""
import torch
import torch.nn.functional as F
from torch_yolact import area, corners, crop, pairwise_iou

BOX, MASK, MASK_IOU = 1.5, 6.125, 25.0  # weights of the losses
MASKS_TO_TRAIN = 100
MIN_AREA = 25  # pixels at prototype size of a mask whose IoU is learnt


def match(boxes, labels, priors):
    """Targets of one image: box offsets (N, 4), classes (N,) (0: background, -1: none), object."""
    overlap = pairwise_iou(boxes, corners(priors))
    best, objects = overlap.max(dim=0)
    for _ in range(len(boxes)):
        values, places = overlap.max(dim=1)
        row = values.argmax()
        place = places[row]
        overlap[:, place] = -1
        overlap[row] = -1
        best[place], objects[place] = 2, row
    classes = labels[objects] + 1
    classes[best < 0.5] = -1
    classes[best < 0.4] = 0
    own = boxes[objects]
    centre = ((own[:, :2] + own[:, 2:]) / 2 - priors[:, :2]) / (0.1 * priors[:, 2:])
    size = torch.log((own[:, 2:] - own[:, :2]) / priors[:, 2:]) / 0.2
    return torch.cat([centre, size], dim=1), classes, objects


def class_loss(logits, classes):
    """Cross-entropy of the positives and the three times as many hardest negatives, summed."""
    positive, ignored = classes > 0, classes < 0
    hardness = torch.logsumexp(logits.detach(), dim=-1) - logits.detach()[..., 0]
    hardness[positive | ignored] = 0
    rank = hardness.argsort(dim=1, descending=True).argsort(dim=1)
    count = (3 * positive.sum(dim=1, keepdim=True)).clamp(max=classes.shape[1] - 1)
    chosen = (rank < count) & ~ignored | positive
    return F.cross_entropy(logits[chosen], classes.clamp(min=0)[chosen], reduction="sum")


def resize_masks(masks, size):
    """(n, S, S) -> (n, h, w), 0 or 1."""
    return (F.interpolate(masks[None], size, mode="bilinear")[0] > 0.5).float()


def mask_loss(net, proto, coefs, positive, objects, boxes, labels, masks):
    """Mask and mask-IoU loss of one image, both summed over its positives."""
    height, width = proto.shape[:2]
    masks = resize_masks(masks, (height, width)).permute(1, 2, 0)
    rows = positive.nonzero()[:, 0]
    found = len(rows)
    if found > MASKS_TO_TRAIN:
        rows = rows[torch.randperm(found)[:MASKS_TO_TRAIN]]
    objects = objects[rows]
    own, target = boxes[objects], masks[:, :, objects]
    probs = crop(torch.sigmoid(proto @ coefs[rows].t()), own)
    pixels = F.binary_cross_entropy(probs.clamp(0, 1), target, reduction="none")
    total = (pixels.sum(dim=(0, 1)) / area(own)).sum() / (height * width) * found / len(rows)
    if not net.plus:
        return total, 0.0
    return total, mask_iou_loss(net, probs, target, labels[objects])


def mask_iou_loss(net, probs, target, labels):
    large = target.sum(dim=(0, 1)) > MIN_AREA
    if not large.any():
        return 0.0
    probs, target, labels = probs[:, :, large], target[:, :, large], labels[large]
    with torch.no_grad():
        ones = (probs > 0.5).float()
        overlap = (ones * target).sum(dim=(0, 1))
        iou = overlap / (ones.sum(dim=(0, 1)) + target.sum(dim=(0, 1)) - overlap)
    found = net.maskiou_net(probs.permute(2, 0, 1)[:, None]).gather(1, labels[:, None])[:, 0]
    return F.smooth_l1_loss(found, iou, reduction="sum")


def semantic_loss(logits, labels, masks):
    """Binary cross-entropy of every class, averaged over the pixels of one image."""
    target = torch.zeros_like(logits)
    for label, mask in zip(labels, resize_masks(masks, logits.shape[1:])):
        target[label] = torch.maximum(target[label], mask)
    loss = F.binary_cross_entropy_with_logits(logits, target, reduction="sum")
    return loss / logits[0].numel()


def losses(net, outputs, targets, masks):
    """Weighted terms {box, mask, class, semantic, mask_iou} of a batch without crowds.

    targets : per image (n, 5), x1 y1 x2 y2 relative and label 0..C-1
    masks : per image (n, S, S) float, 0 or 1
    """
    loc, conf, coefs, proto, semantic = outputs
    labels = [target[:, 4].long() for target in targets]
    boxes = [target[:, :4] for target in targets]
    with torch.no_grad():
        matches = [match(b, l, net.priors) for b, l in zip(boxes, labels)]
        offsets, classes, objects = (torch.stack(part) for part in zip(*matches))
    positive = classes > 0
    count = positive.sum()
    terms = {"box": BOX * F.smooth_l1_loss(loc[positive], offsets[positive], reduction="sum"),
             "class": class_loss(conf, classes)}
    parts = [mask_loss(net, proto[i], coefs[i], positive[i], objects[i], boxes[i], labels[i],
                       masks[i]) for i in range(len(targets))]
    terms["mask"] = MASK * sum(part for part, _ in parts)
    if net.plus:
        terms["mask_iou"] = MASK_IOU * sum(part for _, part in parts)
    terms = {name: value / count for name, value in terms.items()}
    terms["semantic"] = sum(semantic_loss(*image) for image in zip(semantic, labels, masks))
    terms["semantic"] = terms["semantic"] / len(targets)
    return terms


def optimizer(net, lr):
    return torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=lr, momentum=0.9,
                           weight_decay=5e-4)


def train_step(net, sgd, images, targets, masks):
    """One update, left out if the loss is not finite; returns the terms."""
    sgd.zero_grad()
    terms = losses(net, net(images), targets, masks)
    total = sum(terms.values())
    total.backward()
    if torch.isfinite(total).item():
        sgd.step()
    return {name: value.item() for name, value in terms.items()}
