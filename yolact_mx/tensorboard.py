"""What TensorBoard shows of a training run: losses, learning rate, AP and validated pictures."""

from .errors import UserError
from .visualize import draw_detections

_PICTURES = 4  # of the validation set, drawn at each validation
_SHOWN_ABOVE = 0.3  # score


class TensorBoard:
    """Event files in ``RUN_DIR/tensorboard``.

    Parameters
    ----------
    folder : Path
        The run folder.
    first : int
        Step that the run starts or continues at: what an earlier try wrote beyond it is hidden.

    Raises
    ------
    UserError
        If tensorboardX is not installed.
    """

    def __init__(self, folder, first):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UserError(
                "key 'train.tensorboard': expected tensorboardX to be installed "
                "(pip install tensorboardX)"
            ) from None
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first + 1)

    def losses(self, record):
        """A record of log.jsonl."""
        step = record["step"]
        for name, value in record["loss"].items():
            self._writer.add_scalar("loss/" + name, value, step)
        self._writer.add_scalar("lr", record["lr"], step)
        self._writer.add_scalar("images_per_second", record["images_per_second"], step)

    def validation(self, step, metrics):
        """AP, AP50 and AP75 of boxes and masks."""
        for kind in ("bbox", "segm"):
            for name in ("AP", "AP50", "AP75"):
                if metrics[kind][name] is not None:
                    self._writer.add_scalar("{}/{}".format(kind, name), metrics[kind][name], step)
        self._writer.flush()

    def picture(self, step, index, dataset, found):
        """ImageDetections of a picture of the validation set; the first few are drawn."""
        if index < _PICTURES:
            drawn = draw_detections(
                dataset.read_image(index), found, dataset.classes, _SHOWN_ABOVE
            )
            tag = "validation/{}".format(dataset.image_ids[index])
            self._writer.add_image(tag, drawn[:, :, ::-1], step, dataformats="HWC")

    def close(self):
        self._writer.close()
