"""One update of the parameters from the gradients of a batch, and what can be added to it."""

from contextlib import contextmanager

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn

from .distributed import Workers
from .errors import CheckpointError, ConfigError, NonFiniteLoss


class Updater:
    """Optimizer step over all devices and workers, with gradient clipping and averaged weights.

    Parameters
    ----------
    net : HybridBlock
        Initialised; gradients of its parameters are summed over the parts of a batch.
    contexts : list of Context
    settings : TrainConfig
    workers : Workers, optional
    loss_scale : LossScale, optional
        Of the loss whose gradients these are.
    """

    def __init__(self, net, contexts, settings, workers=None, loss_scale=None):
        self.loss_scale = loss_scale
        self._workers = workers or Workers()
        self._net, self._contexts, self._settings = net, contexts, settings
        freeze(net, settings.freeze)
        self._trained = _trained(net)
        if not self._trained:
            raise ConfigError("key 'train.freeze': nothing is left to be trained")
        for parameter in self._trained.values() if settings.accumulate > 1 else ():
            parameter.grad_req = "add"
        options = {"learning_rate": settings.lr, "wd": settings.weight_decay}
        if settings.optimizer == "sgd":
            options["momentum"] = settings.momentum
        self._options = options
        self._trainer = gluon.Trainer(
            net.collect_params(),
            settings.optimizer,
            options,
            kvstore=self._workers.store or ("device" if len(contexts) > 1 else None),
            # with True the servers would keep the first learning rate for ever
            update_on_kvstore=False,
        )
        self.average = WeightAverage(self._trained, settings.ema) if settings.ema else None

    def start(self):
        """All workers take the weights of the first, for whom they have to be final by now."""
        trainer, store = self._trainer, self._workers.store
        if not store or trainer._kv_initialized:
            return
        trainer._init_kvstore()
        for key, parameter in enumerate(trainer._params):
            # Copied: MXNet may hold weights in the layout of its CPU kernels, which the store
            # refuses without a word
            store.broadcast(key, parameter.list_data()[0].copy(), parameter.list_data())
        trainer._params_to_init = []
        # or a fast worker's gradients can reach a server before a slow one has its weights
        self._workers.barrier()

    def backward(self, totals):
        """Gradients of losses, one a device, are added up or take the place of the last ones."""
        heads = self.loss_scale and [
            mx.nd.full((1,), self.loss_scale.value, ctx=total.context) for total in totals
        ]
        mx.autograd.backward(totals, heads)

    def step(self, lr):
        """Change the parameters; the loss is normalised already."""
        self._trainer.set_learning_rate(lr)
        self._trainer.allreduce_grads()
        scale = self.loss_scale.value if self.loss_scale else 1
        # reads a number back from the device, so only where the loss is scaled
        if not self.loss_scale or self.loss_scale.accept(self._gradients_finite()):
            self._update(scale)
        if self._settings.accumulate > 1:
            self._net.collect_params().zero_grad()

    def _update(self, scale):
        for ctx in self._contexts if self._settings.clip_norm else ():
            gradients = [parameter.grad(ctx) for parameter in self._trained.values()]
            gluon.utils.clip_global_norm(
                gradients, self._settings.clip_norm * scale, check_isfinite=False
            )
        self._trainer.update(scale)
        if self.average:
            self.average.update()

    def require_finite(self, step):
        """Raises NonFiniteLoss if a weight is not finite after ``step`` updates.

        The loss does not always tell: ReLU makes 0 of NaN, so spoilt weights can look well.
        """
        if not _all_finite(p.data(self._contexts[0]) for p in self._net.collect_params().values()):
            raise NonFiniteLoss(
                "weights are not finite after step {} (train.lr too high?); the checkpoints "
                "before it are good".format(step)
            )

    def _gradients_finite(self):
        # of one device: what is not finite on another has come here with the sum
        return _all_finite(p.grad(self._contexts[0]) for p in self._trained.values())

    def save_states(self, path):
        self._trainer.save_states(path)

    def load_states(self, path):
        """State of the optimizer; its settings are those of the configuration at hand.

        Raises CheckpointError when another optimizer wrote it.
        """
        self.start()
        self._trainer.load_states(path)
        optimizer = self._trainer._optimizer
        found = type(optimizer).__name__.lower()
        if found != self._settings.optimizer:
            raise CheckpointError(
                "{}: is the state of '{}', key 'train.optimizer' is '{}'".format(
                    path, found, self._settings.optimizer
                )
            )
        # MXNet restores the optimizer with the values it was saved with
        optimizer.wd = self._options["wd"]
        optimizer.momentum = self._options.get("momentum")


class WeightAverage:
    """Exponential moving average of the trained parameters, often better than the last ones.

    At update t (from 0): average = d average + (1 - d) weights, d = min(decay, t / (t + 10)),
    so that the first updates, far from the goal, are soon forgotten.

    Parameters
    ----------
    parameters : dict of Parameter
    decay : float
        0..1, near 1.
    """

    def __init__(self, parameters, decay):
        self._parameters, self._decay, self._updates = parameters, decay, 0
        self._average = {name: p.list_data()[0].copy() for name, p in parameters.items()}

    def update(self):
        decay = min(self._decay, self._updates / (self._updates + 10))
        for name, parameter in self._parameters.items():
            average = self._average[name]
            average *= decay
            average += (1 - decay) * parameter.list_data()[0]
        self._updates += 1

    @contextmanager
    def applied(self):
        """The network has the averaged weights in a ``with`` block."""
        own = {name: p.list_data()[0].copy() for name, p in self._parameters.items()}
        self._set(self._average)
        try:
            yield
        finally:
            self._set(own)

    def save(self, path):
        mx.nd.save(path, dict(self._average, updates=mx.nd.array([self._updates])))

    def load(self, path):
        """Continue an average that was saved; raises CheckpointError if it does not fit."""
        found = mx.nd.load(path)
        updates = found.pop("updates", None)
        shapes = {name: value.shape for name, value in found.items()}
        if updates is None or shapes != {n: v.shape for n, v in self._average.items()}:
            raise CheckpointError(
                "{}: is not the average of the parameters that are trained "
                "(key 'train.freeze' changed?)".format(path)
            )
        self._average = {
            name: found[name].as_in_context(value.context)
            for name, value in self._average.items()
        }
        self._updates = int(updates.asscalar())

    def _set(self, values):
        for name, parameter in self._parameters.items():
            parameter.set_data(values[name])


def freeze(net, paths):
    """Parts of the network that training leaves as they are, BatchNorm statistics included.

    Parameters
    ----------
    net : HybridBlock
        Not run yet.
    paths : list of str
        Attribute paths: ``backbone``, ``backbone.layer1``, ``fpn``.

    Raises
    ------
    ConfigError
        For a path that leads nowhere; the names that lead somewhere are listed.
    """
    for path in paths:
        part = net
        for name in path.split("."):
            if name not in part._children:
                raise ConfigError(
                    "key 'train.freeze': no part '{}'; expected one of {}".format(
                        path, ", ".join(part._children)
                    )
                )
            part = part._children[name]
        part.collect_params().setattr("grad_req", "null")
        part.apply(_fix_statistics)


def _all_finite(arrays):
    # one array each: multi_all_finite writes past its end from 200 arrays on
    return mx.nd.concat(*map(mx.nd.all_finite, arrays), dim=0).min().asscalar() == 1


def _trained(net):
    """{name: parameter} of what is trained, each once: GluonCV registers some blocks twice."""
    found = {}
    for name, parameter in net._collect_params_with_prefix().items():
        if parameter.grad_req != "null" and all(parameter is not p for p in found.values()):
            found[name] = parameter
    return found


def _fix_statistics(block):
    if isinstance(block, nn.BatchNorm):
        block._kwargs["use_global_stats"] = True
