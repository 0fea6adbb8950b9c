"""Three threads: what overlaps, what order holds, and how errors and Ctrl-C end them."""
import threading
import time

import pytest
from stub_network import stub_predictor, write_picture

from yolact_mx.errors import DatasetError
from yolact_mx.outputs import choose
from yolact_mx.pipeline import WriteBehind, predict_frames, read_ahead
from yolact_mx.sources import Frame, Unreadable, read_frames

WAIT = 10  # seconds after which a test has failed


def threads():
    return {thread for thread in threading.enumerate() if thread.name in (
        "read ahead", "write behind")}


@pytest.fixture(autouse=True)
def no_thread_is_left():
    assert not threads()
    yield
    deadline = time.time() + WAIT
    while threads() and time.time() < deadline:
        time.sleep(0.01)
    assert not threads()


def counting(end, seen=None, error=None):
    try:
        for i in range(end):
            if seen is not None:
                seen.append(i)
            yield i
        if error:
            raise error
    finally:
        if seen is not None:
            seen.append("closed")


class Collected:
    """Outputs that keep what they get, and the names of the threads that give it."""

    def __init__(self, error_at=None, error=None):
        self.items, self.threads, self._fault = [], set(), (error_at, error)

    def write(self, frame, found):
        self.threads.add(threading.current_thread().name)
        if len(self.items) == self._fault[0]:
            raise self._fault[1]
        self.items.append((frame, found))


def test_read_ahead_keeps_order_and_limit():
    seen = []
    ahead = read_ahead(counting(50, seen), depth=3)
    assert next(ahead) == 0
    deadline = time.time() + WAIT
    while len(seen) < 5 and time.time() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert seen == [0, 1, 2, 3, 4]  # one taken, three waiting, one in hand
    assert list(ahead) == list(range(1, 50)) and seen[-1] == "closed"


def test_read_ahead_ends_with_its_reader():
    seen = []
    ahead = read_ahead(counting(10 ** 9, seen))
    assert [next(ahead) for _ in range(3)] == [0, 1, 2]
    ahead.close()
    assert seen[-1] == "closed" and not threads()


def test_an_error_of_the_reader_comes_in_its_turn():
    ahead, found = read_ahead(counting(3, error=DatasetError("broken"))), []
    with pytest.raises(DatasetError, match="broken"):
        for item in ahead:
            found.append(item)
    assert found == [0, 1, 2]


def test_write_behind_keeps_order():
    found = []
    with WriteBehind(found.append, depth=2) as behind:
        for i in range(20):
            behind.put(i)
    assert found == list(range(20))


def test_an_error_of_the_writer_stops_at_the_next_item():
    def fail(item):
        raise OSError(28, "No space left on device", "x.png")

    with pytest.raises(OSError, match="No space left"):
        with WriteBehind(fail, depth=1) as behind:
            for _ in range(1000):  # never waits for a thread that has ended
                behind.put(1)
    with pytest.raises(OSError, match="No space left"):  # of the very last item, at the end
        with WriteBehind(fail) as behind:
            behind.put(1)


def test_what_was_put_before_ctrl_c_is_written():
    found = []

    def slowly(item):
        time.sleep(0.02)
        found.append(item)

    with pytest.raises(KeyboardInterrupt):
        with WriteBehind(slowly) as behind:
            for i in range(3):
                behind.put(i)
            raise KeyboardInterrupt
    assert found == [0, 1, 2]


def test_a_second_ctrl_c_drops_it():
    found, joins = [], []
    begun, go = threading.Event(), threading.Event()

    def slowly(item):
        begun.set()
        go.wait(WAIT)
        found.append(item)

    behind = WriteBehind(slowly)
    join = behind._thread.join

    def interrupted(*args):
        joins.append(args)
        if len(joins) == 1:
            raise KeyboardInterrupt
        go.set()
        join(*args)

    behind._thread.join = interrupted
    with pytest.raises(KeyboardInterrupt):
        with behind:
            behind.put(0)
            behind.put(1)
            begun.wait(WAIT)
            raise KeyboardInterrupt
    assert found == [0] and len(joins) == 2  # the one in hand is finished


def test_all_frames_from_file_to_output(tmp_path):
    paths = [write_picture(tmp_path / "{}.png".format(i), 10 * i, 30 + i, 20) for i in range(12)]
    paths[5].write_text("no picture")
    predictor, out, called = stub_predictor(), Collected(), set()
    detect = predictor.detect
    predictor.detect = lambda batch: (called.add(threading.current_thread()), detect(batch))[1]
    predict_frames(predictor, read_frames(paths), out, choose)
    assert called == {threading.main_thread()} and out.threads == {"write behind"}
    assert [frame.path for frame, _ in out.items] == paths
    for i, (frame, found) in enumerate(out.items):
        if i == 5:
            assert isinstance(frame, Unreadable) and found is None
            continue
        assert sorted(found.scores) == pytest.approx(sorted([0.01 * i, 0.1])[-len(found):])
        assert found.masks[0].shape == (20, 30 + i)


def test_stages_overlap(tmp_path):
    """The network has the first frame until the third is read, the writer until the second is
    detected: one after the other, both would wait for ever."""
    paths = [write_picture(tmp_path / "{}.png".format(i)) for i in range(3)]
    predictor, out = stub_predictor(), Collected()
    detect, write = predictor.detect, out.write
    read, detected = threading.Event(), threading.Event()
    waited = []

    def frames():
        yield from read_frames(paths)
        read.set()

    def slow_detect(batch):
        if not waited:
            waited.append(read.wait(WAIT))
        elif len(waited) == 1:
            detected.set()
        return detect(batch)

    def slow_write(frame, found):
        if not out.items:
            waited.append(detected.wait(WAIT))
        write(frame, found)

    predictor.detect, out.write = slow_detect, slow_write
    predict_frames(predictor, frames(), out, choose)
    assert waited == [True, True] and len(out.items) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DatasetError("disk full")])
def test_errors_end_all_threads(tmp_path, error):
    path = write_picture(tmp_path / "a.png")

    def endless(raised=None):
        frame, = read_frames([path])
        for i in range(10 ** 9):
            yield Frame(path, frame.image, i)
            if raised and i == 5:
                raise raised

    def stopping(items):
        for i, item in enumerate(items):
            if i == 5:
                raise error
            yield item

    def never(items):
        return items

    for frames, out, progress in ((endless(error), Collected(), never),
                                  (endless(), Collected(2, error), never),
                                  (endless(), Collected(), stopping)):
        with pytest.raises(type(error)):
            predict_frames(stub_predictor(), frames, out, choose, progress)
        assert not threads()
        numbers = [frame.number for frame, _ in out.items]
        assert numbers == list(range(len(numbers))) and len(numbers) >= 2
