"""Find everything wrong with a COCO-format data set, before it is trained on.

Prints what is dropped and what is repaired, by reason, with the first ids of each.
Exit code: 0 clean, 1 faults (the rest can be used), 2 unusable.
"""
import json
from multiprocessing.pool import ThreadPool
from pathlib import Path

import cv2
from tqdm import tqdm

from ..cli import command_parser
from ..data.coco import CocoDataset, require_trainable
from ..errors import DatasetError
from ..runtime import available_cores

EXAMPLES = """examples:
  %(prog)s instances_train.json --images images
  %(prog)s instances_train.json --images images --json report.json --draw truth
  %(prog)s instances_train.json --images images --no-read    (numbers only, seconds)
"""
FAULTS_SHOWN = 10


def main(argv=None, prog=None):
    args = parse(argv, prog)
    dataset = CocoDataset(args.annotations, args.images)
    broken = unreadable_images(dataset) if args.read else {}
    for index in broken:
        dataset.report.warn("image_unusable", dataset.image_ids[index])
    print("\n".join(dataset.report.summary()))
    print_faults(list(broken.values()))
    if args.json:
        write_json(args.json, dataset.report)
    if args.draw:
        draw(dataset, [i for i in range(len(dataset)) if i not in broken], args.draw)
    require_trainable(dataset)
    if len(broken) == len(dataset):
        raise DatasetError("{}: none of its {} images can be read".format(
            args.annotations, len(dataset)))
    return 0 if dataset.report.clean else 1


def parse(argv, prog=None):
    parser = command_parser(__doc__, EXAMPLES, prog)
    parser.add_argument("annotations", help="COCO annotation file (json)")
    parser.add_argument("--images", required=True, metavar="DIR",
                        help="folder that the file names in it are relative to")
    parser.add_argument("--json", metavar="OUT", help="also write the report as json")
    parser.add_argument("--draw", metavar="DIR", help="write the images with their ground truth")
    parser.add_argument("--no-read", dest="read", action="store_false",
                        help="do not open the images, only check that they exist")
    return parser.parse_args(argv)


def unreadable_images(dataset):
    """{index: message} of the images that cannot be used."""
    def fault(index):
        try:
            dataset.read_image(index)
        except DatasetError as error:
            return str(error)

    with ThreadPool(available_cores()) as pool:
        faults = tqdm(pool.imap(fault, range(len(dataset))), total=len(dataset),
                      desc="reading images", disable=None)
        return {index: message for index, message in enumerate(faults) if message}


def print_faults(messages):
    for message in messages[:FAULTS_SHOWN]:
        print(message)
    if len(messages) > FAULTS_SHOWN:
        print("... and {} more image files".format(len(messages) - FAULTS_SHOWN))


def write_json(path, report):
    try:
        Path(path).write_text(json.dumps(report.to_dict(), indent=1), encoding="utf-8")
    except OSError as error:
        raise DatasetError("{}: cannot write the report ({})".format(
            path, error.strerror)) from None


def draw(dataset, indices, folder):
    """Write ``<index>_<name>.jpg`` for each image: unique, whatever sub-folders there are."""
    from ..visualize import draw_sample

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for index in tqdm(indices, desc="drawing", disable=None):
            picture = draw_sample(dataset[index], dataset.classes)
            name = "{:06d}_{}.jpg".format(index, Path(dataset.file_name(index)).stem)
            cv2.imencode(".jpg", picture)[1].tofile(str(Path(folder) / name))
    except OSError as error:
        raise DatasetError("{}: cannot write pictures ({})".format(
            folder, error.strerror)) from None
