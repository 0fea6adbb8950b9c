"""The training loop, in the open: batches, one static graph, one update, a log, checkpoints."""

import logging
import warnings
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import mxnet as mx
from mxnet import autograd, gluon
from tqdm import tqdm

from .checkpoint import (
    latest_checkpoint,
    load_weights,
    read_state,
    restore,
    save_checkpoint,
    save_weights,
)
from .config import save_config
from .data.loader import build_loader
from .distributed import Workers, last_words
from .errors import CheckpointError, DatasetError, UserError
from .evaluate import CocoEvaluator
from .input_shapes import PerShape
from .loss_scale import LossScale
from .losses import loss_terms
from .models import build_yolact
from .nn.dynamic_conv import set_temperature, temperature_at
from .predict import predictor_of
from .schedule import build_schedule, lr_at
from .stopper import Stopper
from .train_step import build_step, training_dtype
from .training_data import build_batches, build_samples
from .training_log import TrainingLog
from .updater import Updater

logger = logging.getLogger(__name__)

BATCH_INPUTS = ("images", "match", "gt_boxes", "gt_labels", "gt_masks", "gt_semantic")
_STATE = ("step", "best", "stale", "validated")
_FREEZE_BELOW = 6  # images per device, as in the reference


class Trainer:
    """One training run.

    Parameters
    ----------
    config : Config
        With ``classes`` filled in.
    train_set, val_set : CocoDataset
        ``val_set`` may be None: no validation then.
    out_dir : path
        Gets config.yml, log.jsonl, checkpoints/ and best.params.
    contexts : list of Context
        The batch is split evenly over them.
    steps : int, optional
        Length of the run, instead of the schedule's.
    augmented : bool
        False switches all augmentation off.
    workers : Workers, optional
        The batch is split evenly over them too.
    """

    def __init__(
        self,
        config,
        train_set,
        val_set,
        out_dir,
        contexts,
        steps=None,
        augmented=True,
        workers=None,
    ):
        self.config, self.contexts = config, contexts
        self.workers = workers or Workers()
        self.train_set, self.val_set = train_set, val_set
        self.out_dir = Path(out_dir)
        settings = config.train
        parts = self.workers.size * len(contexts) * settings.accumulate
        if settings.batch_size % parts:
            raise UserError(
                "key 'train.batch_size': expected a multiple of {} (devices times "
                "train.accumulate), found {}".format(parts, settings.batch_size)
            )
        self.schedule = build_schedule(settings, settings.batch_size)
        self.steps = steps or self.schedule.steps
        self.schedule = self.schedule._replace(steps=self.steps)
        mx.random.seed(settings.seed)
        classes = len(config.classes)
        self.net = build_yolact(
            config, classes, contexts, training=True, freeze_bn=_freeze_bn(settings, parts)
        )
        self.terms = loss_terms(self.net.mask_iou)
        self.dtype = training_dtype(settings, contexts)
        self.graph = PerShape(
            partial(build_step, config, self.net, classes, contexts, self.dtype)
        )
        loss_scale = LossScale() if self.dtype == "float16" else None
        self.updater = Updater(self.net, contexts, settings, self.workers, loss_scale)
        self.samples = build_samples(config, train_set, augmented)
        # best mask AP, validations since then, and the step of the last one
        self._validate_every = settings.validate_every * (len(train_set) // settings.batch_size)
        self.step, self.best, self.stale, self.validated = 0, None, 0, 0
        # built now, so that a validation set without objects is found before the first step
        self.evaluator = None
        if val_set is not None:
            self.evaluator = CocoEvaluator(val_set.coco_ground_truth(), val_set.category_ids)

    def load_pretrained(self, path):
        """Start from any parameters: what fits is loaded, the rest is listed and stays new."""
        skipped = load_weights(self.net, path, partial=True)
        total = len(self.net._collect_params_with_prefix())
        logger.info("pretrained %s: %d of %d parameters loaded", path, total - len(skipped), total)
        for line in skipped:
            logger.info("  not loaded: %s", line)

    def resume(self):
        """Continue the run in ``out_dir`` from its last checkpoint."""
        checkpoint = latest_checkpoint(self.out_dir / "checkpoints")
        if checkpoint is None:
            raise CheckpointError("'{}' has no checkpoint to resume from".format(self.out_dir))
        state = read_state(checkpoint)
        if state["classes"] != list(self.config.classes):
            raise CheckpointError(
                "checkpoint {} was trained for classes {}, the data set has {}".format(
                    checkpoint, state["classes"], list(self.config.classes)
                )
            )
        finished = state["step"] >= self.steps and not self._validation_due(**state)
        if finished or self._is_stale(state["stale"]):
            raise CheckpointError(
                "checkpoint {} is at step {}: the run of {} steps {}; "
                "--pretrained starts a new one from its weights".format(
                    checkpoint,
                    state["step"],
                    self.steps,
                    "is finished" if finished else "has ended early (train.patience)",
                )
            )
        restore(checkpoint, self.net, self.updater, self.updater.average)
        for name in _STATE:
            setattr(self, name, state[name])
        if self.updater.loss_scale and "loss_scale" in state:
            self.updater.loss_scale = LossScale(*state["loss_scale"])
        logger.info("resumed from %s", checkpoint)

    def fit(self):
        """Train to the end, or to Ctrl-C, which saves first; returns the last metrics (or None)."""
        if not self.step and latest_checkpoint(self.out_dir / "checkpoints"):
            raise CheckpointError(
                "'{}' holds an earlier run: --resume continues it, another --out starts a new "
                "one".format(self.out_dir)
            )
        settings, workers = self.config.train, self.workers
        part = workers.rank, workers.size
        batches = build_batches(self.config, self.train_set, self.step, self.steps, part)
        self.updater.start()
        workers.require_equal({"images": len(self.samples), "steps done": self.step})
        if workers.rank == 0:
            self.out_dir.mkdir(parents=True, exist_ok=True)
            save_config(self.config, self.out_dir / "config.yml")
        stopper = Stopper(workers.size > 1 and partial(last_words, self.out_dir, workers))
        annealed = settings.temperature_epochs * batches.steps_per_epoch
        try:
            with stopper, TrainingLog(self, batches.steps_per_epoch) as log:
                # stopped between a checkpoint and the validation that was to follow it
                metrics = self._validate_if_due(log)
                for batch in self._batches(batches, stopper):
                    if self.step <= annealed:
                        set_temperature(self.net, temperature_at(self.step, annealed))
                    log.add(self.update(batch), batch["image_ids"])
                    if self.step % settings.checkpoint_every == 0 or self.step == self.steps:
                        self._save(log)
                    if workers.agree_to_stop(stopper.asked):
                        break
                    metrics = self._validate_if_due(log)
                    if self._is_stale(self.stale):
                        logger.info("no better mask AP in %d validations: stopped", self.stale)
                        self._save(log)
                        return metrics
                else:
                    if self.step == self.steps:
                        return metrics  # else stopped while it waited for a batch
                if self.step:
                    self._save(log)
                raise KeyboardInterrupt
        finally:
            mx.nd.waitall()  # an engine at work does not survive the end of the process

    def _batches(self, batches, stopper):
        """Batches of the run.  A signal to the whole process group ends the loader's processes
        too: that is a stop, not a fault."""
        try:
            yield from build_loader(self.samples, batches, self.config.train.workers)
        except DatasetError:
            if not stopper.asked:
                raise

    def update(self, batch):
        """One update; returns lr and the loss terms, still being computed."""
        # random choices within the graph depend on the step alone, also after a resume
        mx.random.seed(self.config.train.seed + self.step)
        lr = lr_at(self.step, self.schedule)
        self.step += 1
        totals = self.workers.total(
            "totals", mx.nd.array([batch["num_positives"], len(batch["image_ids"])])
        )
        contexts = self.contexts * self.config.train.accumulate
        parts = [gluon.utils.split_and_load(batch[name], contexts) for name in BATCH_INPUTS]
        parts = list(zip(contexts, zip(*parts)))
        terms = []
        while parts:
            parts, now = parts[len(self.contexts) :], parts[: len(self.contexts)]
            with autograd.record():
                outputs = [
                    self.graph(*inputs, totals.as_in_context(ctx)) for ctx, inputs in now
                ]
            self.updater.backward([total for total, _ in outputs])
            terms += [part for _, part in outputs]
        self.updater.step(lr)
        return lr, self.workers.total_terms(terms)

    def _validate_if_due(self, log):
        if not self._validation_due(self.step, self.validated):
            return None
        log.flush()  # raises on a bad loss before anything is written
        self.updater.require_finite(self.step)
        metrics = None
        if self.workers.rank == 0:
            with self.updater.average.applied() if self.updater.average else nullcontext():
                metrics = self._validate(log)
            log.validation(metrics)
        self.stale, self.validated = self.workers.of_first(self.stale), self.step
        return metrics

    def _validate(self, log):
        """COCO metrics on the validation set; keeps the best weights."""
        predictor = predictor_of(self.config, self.net, self.config.classes, self.contexts[0])
        self.evaluator.reset()
        # the semantic branch is trained only
        warnings.filterwarnings("ignore", "Parameter .* is not used by any computation")
        batch_size = max(1, self.config.train.batch_size // len(self.contexts))
        results = tqdm(
            predictor.over(self.val_set, batch_size), "validate", len(self.val_set), leave=False
        )
        for index, (image_id, found) in enumerate(results):
            self.evaluator.process(image_id, found)
            log.picture(index, found)
        metrics = self.evaluator.evaluate()
        score = metrics["segm"]["AP"] or 0.0
        self.stale, self.validated = self.stale + 1, self.step
        if self.best is None or score > self.best:
            self.best, self.stale = score, 0
            save_weights(self.net, self.out_dir / "best.params")
        return metrics

    def _validation_due(self, step, validated, **_):
        due = step == self.steps or self._validate_every and step % self._validate_every == 0
        return self.evaluator and step and step != validated and due

    def _is_stale(self, stale):
        return 0 < self.config.train.patience <= stale

    def _save(self, log):
        log.flush()  # raises on a bad loss before anything is written
        self.updater.require_finite(self.step)
        state = {name: getattr(self, name) for name in _STATE}
        state.update(classes=list(self.config.classes), seed=self.config.train.seed)
        if self.updater.loss_scale:
            state["loss_scale"] = self.updater.loss_scale.value, self.updater.loss_scale.updates
        if self.workers.rank == 0:
            save_checkpoint(
                self.out_dir / "checkpoints", self.net, self.updater, state, self.updater.average
            )
        self.workers.barrier()  # who stops now leaves a checkpoint that is complete


def _freeze_bn(settings, devices):
    per_device = settings.batch_size // devices
    if settings.freeze_bn == "auto" and per_device < _FREEZE_BELOW:
        logger.info(
            "BatchNorm is frozen: %d images per device are too few for its statistics "
            "(train.freeze_bn=no trains it)",
            per_device,
        )
        return True
    return settings.freeze_bn == "yes"
