"""Pictures of any source -> ``instances_NAME.json`` and ``images/``, as training expects them."""
import filecmp
import hashlib
import json
import shutil
from pathlib import Path

from pycocotools import mask as mask_utils
from tqdm import tqdm

from ...errors import DatasetError
from ..annotations import check_segmentation, to_rle
from ..images import decode_image, read_image
from ..report import REASONS
from .common import SPLITS


def write_coco(out, splits, classes, faults, val_share=0.0):
    """Write the json files, and the images as links to the source's files.

    Image i of the json depends on the source and the options only: same input, same bytes.

    Parameters
    ----------
    out : Path
        Folder, made if needed; json files of the same names are overwritten, images are not.
    splits : dict
        Name (of ``SPLITS``) -> iterable of ``Picture``.
    classes : list of str or None
        Names in the order of the category ids 1, 2, ...; None takes the labels found, sorted.
    faults : Faults
        Gets what is left out.
    val_share : float
        Share of the training pictures, below 1, that becomes ``instances_val.json``.

    Returns
    -------
    dict: path of each json file -> its content.

    Raises
    ------
    DatasetError
        When no picture has a usable object, or ``out`` holds a json of another conversion.
    """
    _refuse_leftovers(out, list(splits) + ["val"] * (val_share > 0))  # before the work
    converted = {split: list(_convert(tqdm(pictures, desc=split, unit=" pictures", disable=None),
                                      out / "images", classes, faults))
                 for split, pictures in splits.items()}
    _note_shared(converted, faults)
    if val_share:
        converted = _share_out(converted["train"], val_share)
    for split in [split for split in converted if not converted[split]]:
        faults.note("no usable picture, so no json", split)
        del converted[split]
    _refuse_leftovers(out, converted)
    labels = {entry["label"] for pictures in converted.values()
              for _, objects in pictures for entry in objects}
    if not labels:
        raise DatasetError("nothing usable: {} pictures could be read, none has a usable object"
                           .format(sum(map(len, converted.values()))))
    contents = _number(converted, sorted(labels) if classes is None else classes)
    contents = {out / _json_name(split): content for split, content in contents.items()}
    for path, content in contents.items():
        path.write_text(json.dumps(content), encoding="utf-8")
    return contents


def _json_name(split):
    return "instances_{}.json".format(split)


def _refuse_leftovers(out, written):
    """A json of an earlier conversion with another split would have some of these pictures."""
    for split in SPLITS:
        if split not in written and (out / _json_name(split)).exists():
            raise DatasetError("{} exists and would not be written again; expected another "
                               "folder, or delete it".format(out / _json_name(split)))


def _convert(pictures, folder, classes, faults):
    """(image entry, annotation entries) of each usable picture, as yet without ids."""
    seen = set()
    for picture in pictures:
        name = picture.file_name
        if name in seen:
            faults.drop("picture whose name was used before", name)
            continue
        seen.add(name)
        if isinstance(picture.content, Path) and not picture.content.is_file():
            faults.drop("image that is missing", picture.content)
            continue
        try:
            height, width = _read(picture).shape[:2]
            objects = picture.objects(width, height)
            _place(picture.content, folder / name)
        except DatasetError as error:
            faults.drop("picture that cannot be used", error)
            continue
        entries = [_annotation(item, width, height, classes, faults) for item in objects]
        yield (dict(file_name=name, width=width, height=height),
               [entry for entry in entries if entry])


def _read(picture):
    if isinstance(picture.content, bytes):
        return decode_image(picture.content, picture.file_name, picture.size)
    return read_image(picture.content, picture.size)


def _place(content, path):
    """Make ``path`` the picture: a link to the source's file, or a file of the embedded bytes."""
    embedded = isinstance(content, bytes)
    if path.exists():
        same = (path.read_bytes() == content if embedded else
                path.samefile(content) or filecmp.cmp(str(path), str(content), shallow=False))
        if same:
            return
    if path.is_symlink():  # of an earlier conversion
        path.unlink()
    elif path.exists():
        raise DatasetError("{}: exists and is another picture".format(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    if embedded:
        path.write_bytes(content)
        return
    try:
        path.symlink_to(content.resolve())
    except OSError:  # a file system without links
        shutil.copyfile(str(content), str(path))


def _annotation(item, width, height, classes, faults):
    """Annotation without ids, its class as ``label``; None when it is not usable."""
    if classes is not None and item.label not in classes:
        faults.drop("object whose label is not among the classes",
                    "{} {!r}".format(item.where, item.label))
        return None
    segmentation, box, reasons = check_segmentation(item.segmentation, width, height)
    for reason in reasons:
        if reason == "polygon_clipped":
            faults.note("polygon that reaches outside the image", item.where)
        else:
            faults.drop(REASONS[reason], item.where)
    if segmentation is None:
        return None
    area = float(mask_utils.area(to_rle(segmentation, width, height)))
    if not isinstance(segmentation, dict):
        segmentation = [polygon.tolist() for polygon in segmentation]
    else:
        segmentation = item.segmentation  # its counts are text, as json needs them
    return dict(label=item.label, iscrowd=0, bbox=list(box), area=area, segmentation=segmentation)


def _note_shared(converted, faults):
    """Tell of pictures that are in more than one split: scores on them mean little."""
    seen = {}
    for split, pictures in converted.items():
        for image, _ in pictures:
            first = seen.setdefault(image["file_name"], split)
            if first != split:
                faults.note("picture both in {} and in {}".format(first, split),
                            image["file_name"])


def _share_out(pictures, share):
    """Split by a hash of the names, so that a picture more moves hardly any of the others."""
    ranked = sorted(pictures, key=lambda picture: hashlib.sha256(
        picture[0]["file_name"].encode("utf-8", "surrogateescape")).digest())
    count = min(max(1, round(share * len(pictures))), len(pictures) - 1)
    held_out = {image["file_name"] for image, _ in ranked[:max(count, 0)]}
    return {split: [picture for picture in pictures
                    if (picture[0]["file_name"] in held_out) == (split == "val")]
            for split in ("train", "val")}


def _number(converted, classes):
    """{split: COCO dict}; ids are unique over the splits, so that the files can be merged."""
    ids = {name: number for number, name in enumerate(classes, 1)}
    categories = [dict(id=number, name=name) for name, number in ids.items()]
    contents, image_id, annotation_id = {}, 0, 0
    for split, pictures in converted.items():
        content = contents[split] = dict(
            info={}, images=[], categories=categories, annotations=[])
        for image, objects in pictures:
            image_id += 1
            content["images"].append(dict(image, id=image_id))
            for entry in objects:
                annotation_id += 1
                label = entry.pop("label")
                content["annotations"].append(dict(
                    entry, id=annotation_id, image_id=image_id, category_id=ids[label]))
    return contents
