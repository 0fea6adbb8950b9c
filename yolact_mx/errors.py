"""Errors that a user can cause, and how the command-line tools show them."""

import logging
import sys


class UserError(Exception):
    """A mistake in a file, an option or a configuration key; the message is one plain line."""


class ConfigError(UserError):
    """A configuration key that is unknown, has the wrong type or contradicts another."""


class DatasetError(UserError):
    """An annotation file or an image that cannot be used."""


class CheckpointError(UserError):
    """Weights or a checkpoint that are damaged or belong to another network."""


class NonFiniteLoss(UserError):
    """A loss that is NaN or infinite; training stops, the checkpoints before it are good."""


def run_tool(main, argv=None):
    """Run a tool's ``main(argv)``; a UserError or OSError becomes one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name that the terminal cannot print is no error
            stream.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        code = main(argv)
    except UserError as error:
        print("error: {}".format(error), file=sys.stderr)
        code = 2
    except OSError as error:  # a folder that is a file, no permission, a full disk
        name = error.filename if error.filename is None else "'{}': ".format(error.filename)
        print("error: {}{}".format(name or "", error.strerror or error), file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code or 0)
