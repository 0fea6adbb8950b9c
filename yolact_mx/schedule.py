"""The learning rate of a step (reference.md section 4)."""

import math
from typing import List, NamedTuple


class Schedule(NamedTuple):
    """Warm-up, then steps or half a cosine; already scaled to the real batch size."""

    steps: int
    lr: float
    warmup_lr: float
    warmup_steps: int
    lr_steps: List[int]
    lr_gamma: float
    policy: str


def build_schedule(settings, batch_size):
    """Schedule of a TrainConfig for a batch of ``batch_size`` images over all devices.

    By the linear scaling rule lr grows with the batch, steps shrink (rounded down); the
    warm-up stays as it is.
    """
    factor = batch_size / settings.reference_batch if settings.reference_batch else 1
    return Schedule(
        int(settings.steps // factor),
        settings.lr * factor,
        settings.warmup_lr,
        settings.warmup_steps,
        [int(step // factor) for step in settings.lr_steps],
        settings.lr_gamma,
        settings.lr_policy,
    )


def lr_at(step, schedule):
    """Learning rate of a step, counted from 0.

    Linear from ``warmup_lr`` to ``lr`` over the first ``warmup_steps``; then by policy: from step
    k of ``lr_steps`` on times ``lr_gamma`` each, or half a cosine from ``lr`` to 0 at ``steps``.
    """
    if schedule.warmup_steps and step <= schedule.warmup_steps:
        share = step / schedule.warmup_steps
        return (schedule.lr - schedule.warmup_lr) * share + schedule.warmup_lr
    if schedule.policy == "cosine":
        share = (step - schedule.warmup_steps) / max(1, schedule.steps - schedule.warmup_steps)
        return schedule.lr * (1 + math.cos(math.pi * min(share, 1))) / 2
    return schedule.lr * schedule.lr_gamma ** sum(step >= s for s in schedule.lr_steps)
