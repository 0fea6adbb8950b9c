"""Progress bar, log.jsonl and TensorBoard of a training run."""
import json
import math
import os
import time
from collections import deque

import mxnet as mx
from tqdm import tqdm

from .errors import NonFiniteLoss
from .tensorboard import TensorBoard


class TrainingLog:
    """Progress bar and log.jsonl.  Losses are read one step late, so no step waits for them."""

    def __init__(self, trainer, steps_per_epoch):
        self._trainer, self._steps_per_epoch = trainer, steps_per_epoch
        self._terms, self._pending = trainer.terms, deque()
        self._sums, self._count, self._since = [0.0] * len(self._terms), 0, time.time()

    def __enter__(self):
        trainer = self._trainer
        writes = trainer.workers.rank == 0
        path = trainer.out_dir / "log.jsonl"
        if writes:
            _cut(path, trainer.step, trainer.validated)
        self._file = open(str(path) if writes else os.devnull, "a", encoding="utf-8")
        self._board = None
        if trainer.config.train.tensorboard and writes:
            self._board = TensorBoard(trainer.out_dir, trainer.step)
        self._bar = tqdm(
            total=self._trainer.steps,
            initial=self._trainer.step,
            unit="step",
            dynamic_ncols=True,
            mininterval=1.0,
            disable=not writes,
        )
        return self

    def __exit__(self, *_):
        self._bar.close()
        self._file.close()
        if self._board:
            self._board.close()

    def add(self, result, image_ids):
        self._pending.append((self._trainer.step, result, image_ids))
        if len(self._pending) > 1:
            self._read()

    def flush(self):
        while self._pending:
            self._read()

    def picture(self, index, found):
        """ImageDetections of a picture of the validation set."""
        if self._board:
            self._board.picture(self._trainer.step, index, self._trainer.val_set, found)

    def validation(self, metrics):
        self._write({"step": self._trainer.step, "val": metrics})
        if self._board:
            self._board.validation(self._trainer.step, metrics)
        self._bar.write(
            "step {}: box AP {} mask AP {}".format(
                self._trainer.step,
                *("{:.3f}".format(metrics[kind]["AP"] or 0) for kind in ("bbox", "segm")),
            )
        )
        self._since = time.time() if not self._count else self._since

    def _read(self):
        step, (lr, parts), image_ids = self._pending.popleft()
        values = [float(v) for v in sum(part.as_in_context(mx.cpu()) for part in parts).asnumpy()]
        named = dict(zip(self._terms, values))
        if not all(math.isfinite(v) for v in values):
            raise NonFiniteLoss(
                "loss is not finite at step {}: {}; images {}".format(step, named, image_ids)
            )
        self._sums = [a + b for a, b in zip(self._sums, values)]
        self._count += 1
        self._bar.update()
        settings = self._trainer.config.train
        if step % settings.log_every == 0 or step == self._trainer.steps:
            self._report(step, lr, settings.batch_size)

    def _report(self, step, lr, batch_size):
        means = {name: total / self._count for name, total in zip(self._terms, self._sums)}
        means["total"] = sum(means.values())
        speed = self._count * batch_size / max(time.time() - self._since, 1e-9)
        record = {
            "step": step,
            "epoch": (step - 1) // self._steps_per_epoch,
            "lr": lr,
            "loss": means,
            "images_per_second": round(speed, 2),
        }
        self._write(record)
        if self._board:
            self._board.losses(record)
        self._bar.set_postfix_str(
            "{} lr {:.2g} {:.1f} img/s".format(
                " ".join("{} {:.3f}".format(name, value) for name, value in means.items()),
                lr,
                speed,
            )
        )
        self._sums, self._count, self._since = [0.0] * len(self._terms), 0, time.time()

    def _write(self, record):
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


def _cut(path, step, validated):
    """Drop what an earlier try logged beyond the checkpoint that the run continues from, and a
    line that it was killed in."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines(True):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record["step"] <= (validated if "val" in record else step):
            kept.append(line)
    partial = path.with_suffix(".partial")
    partial.write_text("".join(kept), encoding="utf-8")
    os.replace(str(partial), str(path))
