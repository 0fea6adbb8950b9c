"""Signals that end a run: after the step at hand, at once, or out of a wait without end."""

import logging
import os
import signal
import sys
import threading
import time

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 3  # seconds from the second signal until a worker that cannot react is ended


class Stopper:
    """Ctrl-C or SIGTERM asks to stop after the step at hand; a second one stops at once.

    Parameters
    ----------
    last_words : callable, optional
        For one of several workers: says what is left of the run.  Such a worker may be waiting
        within MXNet for another that is gone, where Python hears no signal; so a thread of its
        own counts them, and ends the process after the second.
    """

    def __init__(self, last_words=None):
        self.asked, self._last_words = False, last_words

    def __enter__(self):
        self._before = [(number, signal.signal(number, self._ask)) for number in _SIGNALS]
        if self._last_words:
            heard, self._told = os.pipe()
            os.set_blocking(self._told, False)
            signal.set_wakeup_fd(self._told)
            threading.Thread(target=self._watch, args=(heard,), daemon=True).start()
        return self

    def __exit__(self, *_):
        if self._last_words:
            signal.set_wakeup_fd(-1)
            os.close(self._told)
        for number, handler in self._before:
            signal.signal(number, handler)

    def _ask(self, *_):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        logger.info("stopping after this step; a checkpoint will be written")

    def _watch(self, heard):
        count = 0
        while count < 2:
            received = os.read(heard, 1)
            if not received:
                os.close(heard)
                return
            count += received[0] in _SIGNALS
        print(self._last_words(), file=sys.stderr, flush=True)
        time.sleep(_PATIENCE)
        os._exit(1)
