"""Compile the faster operators (csrc/) for this machine, into the user's cache.

From then on YOLACT++'s deformable convolutions use them on CPUs, in training and detection, and so
does Fast NMS.  Exported networks never need them.
Needs a C++ compiler: $CXX, g++, clang++ or c++.  Takes some seconds; once is enough.
"""
from ..cli import command_parser

EXAMPLES = """examples:
  %(prog)s  # once a machine
  CXX=clang++ %(prog)s
"""


def main(argv=None, prog=None):
    command_parser(__doc__, EXAMPLES, prog).parse_args(argv)
    from ..errors import UserError
    from ..nn import native_ops

    path, flags = native_ops.build()
    if not native_ops.load():
        raise UserError("'{}' was compiled, but cannot be loaded".format(path))
    print("{}: compiled by {}".format(path, " ".join(flags)))
