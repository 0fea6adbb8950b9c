"""Data sets of other formats -> COCO json: one module a format, ``writer`` for all of them."""
from pathlib import Path

from ...errors import DatasetError
from .common import Faults, read_class_names
from .labelme import read_labelme
from .pascal import read_sbd, read_voc
from .writer import write_coco
from .yolo import read_yolo

__all__ = ["FORMATS", "Faults", "convert_dataset"]

# Format -> function of (folder, class names or None, faults) -> (class names or None,
# {split: pictures}); the pictures are read while they are consumed
FORMATS = {"labelme": read_labelme, "sbd": read_sbd, "voc": read_voc, "yolo": read_yolo}


def convert_dataset(kind, folder, out, faults, class_file=None, val_share=0.0):
    """Write ``instances_*.json`` and ``images/`` of a data set in another format.

    Parameters
    ----------
    kind : str
        Key of ``FORMATS``.
    folder, out : str or Path
        The data set, and the folder that gets the files; it may be the same.
    faults : Faults
        Gets what is left out.
    class_file : str or Path, optional
        Names of the classes in their order, one a line.
    val_share : float
        Share of the pictures that becomes the validation set; 0 for a set that has its own.

    Returns
    -------
    dict: path of each json file written -> its content.

    Raises
    ------
    DatasetError
        When nothing of it can be used, or it has splits and ``val_share`` is given.
    """
    folder, out = Path(folder), Path(out)
    if not folder.is_dir():
        raise DatasetError("{}: expected a folder, there is none".format(folder))
    names = None if class_file is None else read_class_names(class_file)
    classes, splits = FORMATS[kind](folder, names, faults)
    if val_share and list(splits) != ["train"]:
        raise DatasetError("{}: has splits of its own ({}), so a share for validation cannot be "
                           "taken".format(folder, ", ".join(splits)))
    return write_coco(out, splits, classes, faults, val_share)
