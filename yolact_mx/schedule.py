"""The learning rate of a step (reference.md section 4)."""

from typing import List, NamedTuple


class Schedule(NamedTuple):
    """Warm-up, then steps; already scaled to the real batch size."""

    steps: int
    lr: float
    warmup_lr: float
    warmup_steps: int
    lr_steps: List[int]
    lr_gamma: float


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
    )


def lr_at(step, schedule):
    """Learning rate of a step, counted from 0.

    Linear from ``warmup_lr`` to ``lr`` over the first ``warmup_steps``; from step k of
    ``lr_steps`` on times ``lr_gamma`` each.
    """
    if schedule.warmup_steps and step <= schedule.warmup_steps:
        share = step / schedule.warmup_steps
        return (schedule.lr - schedule.warmup_lr) * share + schedule.warmup_lr
    return schedule.lr * schedule.lr_gamma ** sum(step >= s for s in schedule.lr_steps)
