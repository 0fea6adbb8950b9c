"""The command ``yolact-mx NAME ...``: finds the command and hands it its arguments."""
import difflib
import importlib
import sys

from . import __version__
from .errors import UserError, run_tool

PROG = "yolact-mx"
# name: (module in commands/, what it does); a name of two words is a sub-command
COMMANDS = {
    "train": ("train", "train a network on a data set in COCO format"),
    "launch": ("launch", "train on several machines, or with several processes"),
    "eval": ("eval", "box and mask AP of a network or a results file"),
    "export": ("export", "write the inference graph for bare MXNet"),
    "predict": ("predict", "find instances in pictures, videos and what a webcam sees"),
    "check": ("check_dataset", "find everything wrong with a data set"),
    "convert weights": ("convert_weights", "weights of the PyTorch reference into ours"),
    "convert data": ("convert_dataset", "labelme, VOC, SBD or YOLO data sets into COCO json"),
    "benchmark": ("benchmark", "seconds, memory and FLOPs of configurations on this machine"),
    "build-ops": ("build_ops", "compile faster operators for this machine"),
    "shapes": ("make_shapes", "generate a small data set"),
    "demo": ("demo", "the whole way once, on generated data"),
}


def main(argv=None):
    """Run a command; its exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv[:1] in (["-V"], ["--version"]):
        print("{} {}".format(PROG, __version__))
        return 0
    name, rest = find_command(argv)
    if name is None:
        print(overview(argv[0] if is_group(argv[:1]) else ""))
        return 0 if rest else 2
    module = importlib.import_module("{}.commands.{}".format(__package__, COMMANDS[name][0]))
    return module.main(rest, "{} {}".format(PROG, name))


def console():
    """Entry point of the console script."""
    run_tool(main)


def find_command(argv):
    """(name in ``COMMANDS``, remaining arguments); (None, ["--help"]) or, without any, (None, []).

    Raises UserError that names the nearest command.
    """
    for words in (2, 1):
        if " ".join(argv[:words]) in COMMANDS:
            return " ".join(argv[:words]), argv[words:]
    words = 2 if is_group(argv[:1]) else 1
    if len(argv) < words or argv[words - 1] in ("-h", "--help"):
        return None, argv[words - 1:]
    given = " ".join(argv[:words])
    close = difflib.get_close_matches(given, COMMANDS, n=1)
    raise UserError("unknown command '{}'{}; {} --help lists them".format(
        given, ", did you mean '{}'?".format(close[0]) if close else "", PROG))


def is_group(words):
    """Whether ``words`` (at most one) is the first of commands of two words."""
    return any([name.split()[0]] == list(words) for name in COMMANDS if " " in name)


def overview(group=""):
    """Usage and one line a command, of a group or of all."""
    names = [name for name in COMMANDS if name.startswith(group + " " if group else "")]
    width = max(map(len, names))
    lines = ["usage: {} COMMAND ...".format(" ".join([PROG] + group.split())), "", "commands:"]
    lines += ["  {:<{}}  {}".format(name, width, COMMANDS[name][1]) for name in names]
    return "\n".join(lines + ["", "{} COMMAND --help says more".format(PROG)])
