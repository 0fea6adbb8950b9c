"""Reading, the network and writing at the same time, each in a thread of its own.

MXNet is called from one thread alone, the one that calls :func:`predict_frames`.
"""
import queue
import threading
from contextlib import closing

from .detect import to_image_size
from .sources import Unreadable

_DEPTH = 4  # frames that wait between two threads
_PATIENCE = 0.1  # seconds until a waiting reader looks whether it is still wanted
_LAST_READ = 5.0  # seconds that a camera may take to give its last frame
_END = object()


def predict_frames(predictor, frames, outputs, choose, progress=iter):
    """Detect on all frames; decoding and drawing overlap with the network.

    Parameters
    ----------
    predictor : Predictor
    frames : generator of Frame and Unreadable
        Runs in a thread of its own.
    outputs : Outputs
        Its ``write`` is called in another thread, in the order of the frames.
    choose : callable
        Detections -> those of them that count.
    progress : callable
        Wraps the iterable, for example in a progress bar.

    An error of a thread is raised here; what was detected before it, or before Ctrl-C, is written.
    """
    with WriteBehind(outputs.write) as behind:
        with closing(read_ahead(_prepared(predictor, frames))) as ahead:
            for frame, prepared in progress(ahead):
                if isinstance(frame, Unreadable):
                    behind.put(frame, None)
                    continue
                found = choose(predictor.detect(prepared[None])[0])
                height, width = frame.image.shape[:2]
                behind.put(frame, to_image_size(found, width, height))


def read_ahead(items, depth=_DEPTH):
    """The items of a generator, produced by a thread that is up to ``depth`` ahead.

    An exception of ``items`` is raised in its turn.  Closing this generator ends the thread.
    """
    box, unwanted = queue.Queue(depth), threading.Event()

    def offer(item, error=None):
        while not unwanted.is_set():
            try:
                box.put((item, error), timeout=_PATIENCE)
                return True
            except queue.Full:
                pass
        return False

    def work():
        with closing(items):  # a video is closed by the thread that reads it
            try:
                for item in items:
                    if not offer(item):
                        return
                offer(_END)
            except BaseException as error:  # whatever it is, the other thread says it
                offer(_END, error)

    thread = threading.Thread(target=work, name="read ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = box.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        unwanted.set()
        thread.join(_LAST_READ)


class WriteBehind:
    """Calls ``work(*arguments)`` in a thread, in the order of :meth:`put`; a context manager.

    At its end, also by an exception such as Ctrl-C, what was put in is worked off first; a second
    Ctrl-C drops it.  The first error of the thread is raised by the next ``put`` or at the end.
    """

    def __init__(self, work, depth=_DEPTH):
        self._work, self._box, self._error = work, queue.Queue(depth), None
        self._thread = threading.Thread(target=self._run, name="write behind", daemon=True)

    def put(self, *arguments):
        """Waits while ``depth`` are waiting already."""
        self._raise()
        self._box.put(arguments)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, error, traceback):
        try:
            self._box.put(_END)
            self._thread.join()
        except KeyboardInterrupt as interrupt:
            self._error = self._error or interrupt
            self._box.put(_END)
            self._thread.join()  # files may not be closed below its feet
            raise
        if error is not self._error:
            self._raise()

    def _run(self):
        while True:
            arguments = self._box.get()
            if arguments is _END:
                return
            if self._error is None:
                try:
                    self._work(*arguments)
                except BaseException as error:  # whatever it is, the other thread says it
                    self._error = error

    def _raise(self):
        if self._error is not None:
            raise self._error


def _prepared(predictor, frames):
    with closing(frames):
        for frame in frames:
            unreadable = isinstance(frame, Unreadable)
            yield frame, None if unreadable else predictor.prepare(frame.image)
