"""Weights and training state on disk: written whole or not at all, checked when read."""

import hashlib
import json
import logging
import os
import re
import shutil
import uuid
from pathlib import Path

import mxnet as mx

from .errors import CheckpointError

logger = logging.getLogger(__name__)

AVERAGE = "average.params"
_NAME = "step-{:08d}"
_KEPT = 2  # the last checkpoint and the one before it


def save_checkpoint(folder, net, trainer, state, average=None):
    """Write parameters, optimizer state and ``state`` (JSON values, with its ``step``).

    A checkpoint is a folder ``step-00001000`` of ``model.params``, ``trainer.states``,
    ``average.params`` (of a WeightAverage, if there is one) and ``state.json`` (with the SHA-256
    of the others).  It is made under another name and renamed
    when complete, so an interrupted write leaves the checkpoints before it as they are.  The
    last two are kept.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Without it `save_parameters` can catch BatchNorm statistics of an earlier step.
    mx.nd.waitall()
    partial = folder / ".partial-{}".format(uuid.uuid4().hex[:8])
    partial.mkdir()
    net.save_parameters(str(partial / "model.params"))
    trainer.save_states(str(partial / "trainer.states"))
    if average:
        average.save(str(partial / AVERAGE))
    sums = {path.name: _sha256(path) for path in sorted(partial.iterdir())}
    _write(
        partial / "state.json", json.dumps(dict(state, sha256=sums), ensure_ascii=False, indent=1)
    )
    for name in sums:
        _sync(partial / name)
    final = folder / _NAME.format(state["step"])
    if final.exists():
        os.replace(str(final), str(folder / ".partial-replaced"))
    os.replace(str(partial), str(final))
    for old in _checkpoints(folder)[:-_KEPT]:
        shutil.rmtree(str(old))
    for left_over in folder.glob(".partial-*"):
        shutil.rmtree(str(left_over))
    return final


def latest_checkpoint(folder):
    """The newest checkpoint of a folder, or None; raises CheckpointError when it is damaged."""
    found = _checkpoints(Path(folder))
    if not found:
        return None
    try:
        read_state(found[-1])
    except CheckpointError as error:
        before = (
            "; the one before it is {}: remove the damaged one to use it".format(found[-2])
            if len(found) > 1
            else ""
        )
        raise CheckpointError("{}{}".format(error, before)) from None
    return found[-1]


def read_state(checkpoint):
    """``state`` of a checkpoint, after its files were compared with their checksums."""
    checkpoint = Path(checkpoint)
    try:
        state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
        sums = state.pop("sha256")
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            "checkpoint {} is damaged: state.json cannot be read ({})".format(
                checkpoint, type(error).__name__
            )
        ) from None
    for name, expected in sums.items():
        if not (checkpoint / name).is_file():
            raise CheckpointError(
                "checkpoint {} is damaged: {} is missing".format(checkpoint, name)
            )
        if _sha256(checkpoint / name) != expected:
            raise CheckpointError(
                "checkpoint {} is damaged: {} does not have the checksum it was saved with".format(
                    checkpoint, name
                )
            )
    return state


def restore(checkpoint, net, trainer, average=None):
    """Load a checkpoint into a network and its trainer; returns its state.

    ``average`` begins anew if the checkpoint has none.
    """
    checkpoint = Path(checkpoint)
    state = read_state(checkpoint)
    load_weights(net, checkpoint / "model.params")
    trainer.load_states(str(checkpoint / "trainer.states"))
    if average and (checkpoint / AVERAGE).is_file():
        average.load(str(checkpoint / AVERAGE))
    return state


def save_weights(net, path):
    """Write the parameters of a network, atomically."""
    mx.nd.waitall()
    partial = "{}.partial".format(path)
    net.save_parameters(partial)
    _sync(partial)
    os.replace(partial, str(path))


def load_weights(net, path, partial=False):
    """Load a .params file.

    With ``partial`` whatever fits by name and shape is loaded and the rest keeps its values
    (other classes: the layers that depend on them).  Otherwise every parameter of the network
    has to be there; training-only ones (the semantic head) may be left over.

    Returns
    -------
    list of str
        What was not loaded, with the reason.
    """
    try:
        found = mx.nd.load(str(path))
    except (mx.MXNetError, OSError) as error:
        raise CheckpointError(
            "weights '{}' cannot be read: {}".format(path, first_line(error))
        ) from None
    if not isinstance(found, dict):
        raise CheckpointError("weights '{}' hold no named parameters".format(path))
    found = {re.sub("^(arg|aux):", "", name): value for name, value in found.items()}
    parameters = net._collect_params_with_prefix()
    skipped = ["{}: not in the file".format(name) for name in parameters if name not in found]
    for name, parameter in parameters.items():
        if name in found and found[name].shape != parameter.shape:
            skipped.append(
                "{}: expected shape {}, found {}".format(name, parameter.shape, found[name].shape)
            )
    if skipped and not partial:
        raise CheckpointError(
            "weights '{}' do not fit this network ({} of {} parameters; {})".format(
                path, len(skipped), len(parameters), skipped[0]
            )
        )
    for name, parameter in parameters.items():
        if name in found and found[name].shape == parameter.shape:
            parameter.set_data(found[name])
    return skipped


def _checkpoints(folder):
    return sorted(path for path in folder.glob("step-*") if re.fullmatch(r"step-\d{8}", path.name))


def _sha256(path):
    digest = hashlib.sha256()
    with open(str(path), "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _write(path, text):
    with open(str(path), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(path):
    with open(str(path), "rb") as file:
        os.fsync(file.fileno())


def first_line(error):
    """The line of an error's message that says what happened; MXNet's begin with a stack trace."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
