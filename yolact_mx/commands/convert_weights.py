"""Convert weights of the PyTorch reference into a .params file.

Takes the official YOLACT and YOLACT++ checkpoints (yolact_base_54_800000.pth, ...), beside
which a configuration with the class names is written, and backbone files
(resnet50-19c8e357.pth, darknet53.pth).  PyTorch is needed to read them.
"""
from pathlib import Path

from ..class_names import names_for
from ..cli import command_parser
from ..config import load_config, save_config
from ..convert import convert_file

EXAMPLES = """examples:
  %(prog)s yolact_base_54_800000.pth yolact_base.params --config yolact_base
  %(prog)s resnet50-19c8e357.pth resnet50.params --config yolact_resnet50
      then train with: model.backbone.weights=resnet50.params
"""


def main(argv=None, prog=None):
    parser = command_parser(__doc__, EXAMPLES, prog)
    parser.add_argument("source", metavar="IN.pth")
    parser.add_argument("target", metavar="OUT.params")
    parser.add_argument("--config", required=True, help="configuration that the weights belong to")
    parser.add_argument("overrides", nargs="*", metavar="key.sub=value",
                        help="change any configuration key (classes=[cat,dog])")
    args = parser.parse_intermixed_args(argv)
    config = load_config(args.config, args.overrides)
    conversion, classes = convert_file(args.source, args.target, config)
    for theirs, ours, shape in conversion.mapped:
        print("{} -> {} {}".format(theirs, ours, shape))
    for name in conversion.unused:
        print("not used: {}".format(name))
    print("{}: {} parameters; {} entries of {} not used".format(
        args.target, len(conversion.mapped), len(conversion.unused), args.source))
    if classes:
        config.classes = config.classes or list(names_for(classes))
        target = Path(args.target).with_suffix(".yml")
        save_config(config, target)
        print("{}: its configuration, {} classes".format(target, classes))
