"""Draw the instances that a network finds in pictures, videos and what a webcam sees.

Folders are taken with all their pictures and videos, patterns in quotes with all that match.
Ctrl-C ends it; what was done until then is complete.
"""
import difflib
from functools import partial

from ..cli import command_parser, contexts, positive
from ..errors import ConfigError

EXAMPLES = """examples:
  %(prog)s runs/shapes picture.jpg folder/ 'more/**/*.png' --out overlays/
  %(prog)s runs/shapes/model-symbol.json folder/ --out overlays/ --json found.json
  %(prog)s runs/shapes film.mp4 --out films/ --display-fps --classes disc bar
  %(prog)s runs/shapes --webcam 0 --out films/
  %(prog)s runs/shapes folder/ --labelme polygons/ --cutouts cut/
  %(prog)s runs/shapes val/ --ann instances_val.json --json results.json
      COCO results, for: eval --results results.json
"""


def main(argv=None, prog=None):
    args = parse(argv, prog)
    from tqdm import tqdm

    from ..outputs import Outputs, check_overlays, choose
    from ..pipeline import predict_frames
    from ..predict import load_predictor
    from ..sources import find_sources, is_video, read_frames, webcam_frames, webcam_path

    live = args.webcam is not None
    predictor = load_predictor(args.source, contexts(args.ctx)[0], args.config)
    paths = [webcam_path(args.webcam)] if live else find_sources(args.pictures)
    check_overlays(paths, args.out)
    chosen = partial(choose, threshold=args.threshold, top_k=args.top_k,
                     classes=class_indices(args.classes, predictor.classes))
    writers, ids = build_writers(args, predictor.classes, paths)
    frames = webcam_frames(args.webcam) if live else read_frames(paths, ids and ids.size)
    total = None if live or any(map(is_video, paths)) else len(paths)
    outputs = Outputs(writers)
    try:
        with outputs:
            predict_frames(predictor, frames, outputs, chosen,
                           lambda items: tqdm(items, "predict", total))
    except KeyboardInterrupt:
        if not live:  # the way to end a webcam
            print(outputs.summary(args.out))
            raise
    print(outputs.summary(args.out))
    return 1 if outputs.failed else 0


def parse(argv, prog=None):
    parser = command_parser(__doc__, EXAMPLES, prog)
    parser.add_argument("source", metavar="RUN_DIR_OR_PARAMS",
                        help="run folder, .params file or exported NAME-symbol.json")
    parser.add_argument("pictures", nargs="*", metavar="PICTURES",
                        help="image files, video files, folders and patterns")
    parser.add_argument("--webcam", type=int, metavar="N", help="instead: what camera N sees")
    parser.add_argument("--out", default="overlays", metavar="DIR",
                        help="drawings: NAME.png, NAME.mp4 (default overlays)")
    parser.add_argument("--json", metavar="FILE", help="also write box, score, class and RLE mask")
    parser.add_argument("--ann", metavar="FILE",
                        help="COCO json that the pictures are of: its ids go into --json")
    parser.add_argument("--labelme", metavar="DIR", help="also write polygons for labelme")
    parser.add_argument("--cutouts", metavar="DIR",
                        help="also write each instance as a transparent PNG")
    parser.add_argument("--threshold", type=float, default=0.3, help="lowest score (default 0.3)")
    parser.add_argument("--top-k", type=positive, default=100, help="instances per picture")
    parser.add_argument("--classes", nargs="+", metavar="NAME", help="only these classes")
    parser.add_argument("--scale", type=positive, default=1, help="enlarge small pictures so much")
    parser.add_argument("--display-fps", action="store_true",
                        help="write the frames a second into the drawings")
    parser.add_argument("--config", help="configuration of a .params file without config.yml")
    parser.add_argument("--ctx", default="cpu", help="cpu | gpu:0")
    args = parser.parse_intermixed_args(argv)
    if bool(args.pictures) == (args.webcam is not None):
        parser.error("name pictures or videos, or --webcam N")
    if args.ann and not args.json:
        parser.error("--ann FILE is for --json FILE")
    return args


def build_writers(args, classes, paths):
    """(the writers that the options ask for, CocoIds or None)."""
    from ..coco_ids import CocoIds
    from ..labelme import LabelmeFiles
    from ..outputs import CutOuts, JsonRecords, Overlays

    ids = CocoIds(args.ann, classes, paths) if args.ann else None
    writers = [Overlays(args.out, classes, args.scale, args.display_fps)]
    if args.labelme:
        writers.append(LabelmeFiles(args.labelme, classes, paths))
    if args.cutouts:
        writers.append(CutOuts(args.cutouts, classes))
    if args.json:  # last: the file is made now
        writers.append(JsonRecords(args.json, classes, ids))
    return writers, ids


def class_indices(names, classes):
    """Indices of the class names, or None where all count."""
    for name in names or ():
        if name not in classes:
            close = difflib.get_close_matches(name, classes, n=1)
            raise ConfigError("--classes: the network has no class '{}'{}".format(
                name, "; did you mean '{}'?".format(close[0]) if close else ""))
    return [classes.index(name) for name in names] if names else None
