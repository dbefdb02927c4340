"""Handles of shared arrays, in one process: what they show, how long they keep it, and what is refused."""

from __future__ import annotations

import gc
import os
import pickle
import queue
import random
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest
from numpy_support import MIB, OLD, in_use

import tack_memory.numpy as tn
from tack_memory._native import _numpy

UNIT = 65536


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    with tn.use("shared"):
        numpy.empty(1)  # the arena's own
    before = set(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= len(before)


@contextmanager
def new_arena(nbytes: int) -> Iterator[None]:
    """A shared arena that only the block uses; 0: one of the usual size."""
    tokens: list[object] = []
    _numpy.enter_context(_numpy.shared(nbytes, False), tokens)
    try:
        yield
    finally:
        _numpy.leave_context(tokens, ())


@pytest.fixture
def small() -> Iterator[Any]:
    """A shared arena of 64 MiB that only the test uses."""
    with new_arena(64 * MIB):
        yield


def shared(array: Any) -> Any:
    with tn.use("shared"):
        return numpy.array(array)


def waiting() -> int:
    return sum(arena.waiting_bytes for arena in tn.arenas() if arena.own)


VIEWS: dict[str, Any] = {
    "all of it": lambda a: a,
    "reversed": lambda a: a[::-1],
    "a part": lambda a: a[3:17, 5:],
    "steps": lambda a: a[::3, ::-2],
    "transposed": lambda a: a.T,
    "one item": lambda a: a[4, 5],
    "broadcast": lambda a: numpy.broadcast_to(a[2], (7, 30)),
    "nothing": lambda a: a[5:5],
    "other type": lambda a: a.view("u2"),
    "structured": lambda a: a.view([("x", "f4"), ("y", "i2", (2,))]),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_an_attached_array_is_the_shared_one(view: Any) -> None:
    array = shared(numpy.random.default_rng(1).integers(0, 99, (20, 30)).astype("f8"))
    part = view(array)
    part = part if isinstance(part, numpy.ndarray) else array[4:5, 5]
    with tn.share(part) as handle:
        other = tn.attach(handle)
    assert (other.shape, other.strides, other.dtype) == (part.shape, part.strides, part.dtype)
    assert other.flags.writeable == part.flags.writeable
    assert other.tobytes() == part.tobytes()
    assert not numpy.may_share_memory(other, part), "another mapping of the same memory"
    array[...] = 7.5
    assert other.tobytes() == part.tobytes()
    if other.flags.writeable and other.size:
        other[...] = numpy.zeros((), other.dtype)
        assert part.tobytes() == bytes(part.nbytes)


@pytest.mark.parametrize("kind", ["?", "i1", "u8", "f2", "c16", "S7", "U3", "M8[ns]", "m8[3h]", "V5", ">f8", [("a", "i4"), ("b", "S3", (2, 2))]])
def test_types(kind: Any) -> None:
    array = shared(numpy.zeros(1000, kind))
    array.view("u1")[:] = 1
    ours, theirs = socket.socketpair()
    with ours, theirs, tn.share(array) as handle:
        handle.send(ours)
        with tn.Handle.receive(theirs) as received:
            assert (received.dtype, received.shape, received.strides, received.offset) == (array.dtype, array.shape, array.strides, handle.offset)
            other = received.attach()
    assert other.dtype == array.dtype and other.tobytes() == array.tobytes()


def test_an_attached_array_outlives_everything() -> None:
    """No close can take the memory from under an array, and the block is nobody else's until the last one is gone."""
    array = shared(numpy.arange(UNIT))
    handle, before = tn.share(array), waiting()
    other = handle.attach()
    another = handle.attach()[5:10]
    address = array.ctypes.data
    handle.close()
    assert handle.closed
    del array
    assert waiting() > before
    with tn.use("shared"):
        filled = [numpy.full(UNIT, 9) for _ in range(5)]
    assert address not in [one.ctypes.data for one in filled]
    assert numpy.array_equal(other, numpy.arange(UNIT))
    del other
    gc.collect()
    assert another.tolist() == [5, 6, 7, 8, 9]
    del another, filled
    last: list[Any] = []
    with tn.use("shared"):
        while not last or last[-1].ctypes.data != address:  # then it is used again
            assert len(last) < 1000
            last.append(numpy.empty(UNIT))
    assert waiting() <= before


def test_a_handle_keeps_the_memory_without_an_attached_array() -> None:
    array = shared(numpy.arange(1000))
    handle = tn.share(array)
    del array
    with tn.use("shared"):
        others = [numpy.zeros(1000, "i8") for _ in range(600)]
    assert numpy.array_equal(handle.attach(), numpy.arange(1000))
    handle.close()
    del others


def test_resize_and_handles() -> None:
    """In its place as long as the block has room; else it moves, and the handle shows what was."""
    array = shared(numpy.arange(10_000))
    address, handle = array.ctypes.data, tn.share(array)
    array.resize(9_000, refcheck=False)
    assert array.ctypes.data == address
    array[0] = 77
    other = handle.attach()
    assert other[0] == 77 and other.size == 10_000
    array.resize(50_000, refcheck=False)
    assert array.ctypes.data != address
    array[0] = 78
    assert other[0] == 77 and other[8_999] == array[8_999] == 8_999
    assert tn.share(array).attach()[0] == 78
    handle.close()
    small = in_use()
    array.resize(10, refcheck=False)
    assert small - in_use() == 49_990 * 8


def test_readonly() -> None:
    array = shared(numpy.arange(100))
    view = array[:10]
    view.flags.writeable = False
    for handle in (tn.share(array, readonly=True), tn.share(view)):
        with handle:
            assert handle.readonly and "readonly" in repr(handle)
            other = handle.attach()
            with pytest.raises(ValueError, match="read-only"):
                other[0] = 1
            with pytest.raises(ValueError, match="WRITEABLE"):
                other.flags.writeable = True
            with pytest.raises(PermissionError):  # the kernel says so, not only we
                _numpy.attach(handle.fileno(), *handle._block, handle.offset, handle.dtype, handle.shape, handle.strides, True)
    with tn.share(array) as handle:
        other = handle.attach(readonly=True)
        array[3] = 33
        assert other[3] == 33 and not other.flags.writeable and handle.attach().flags.writeable


def test_what_cannot_be_shared() -> None:
    ordinary = numpy.arange(10)
    with pytest.raises(ValueError, match=r'is of default_allocator; make the array, or a copy of it, inside .*use\("shared"\)'):
        tn.share(ordinary)
    with pytest.raises(ValueError, match="another object's buffer"):
        tn.share(numpy.frombuffer(bytes(16)))
    with tn.use("aligned"), pytest.raises(ValueError, match="is of tack_memory_aligned"):
        tn.share(numpy.arange(10))
    kinds: list[Any] = ["O", [("a", "i4"), ("b", "O")]]
    if not OLD:
        kinds.append(numpy.dtypes.StringDType())
    for kind in kinds:
        with tn.use("shared"), pytest.raises(ValueError, match="objects of this process"):
            tn.share(numpy.zeros(3, kind))
    with pytest.raises(TypeError, match="takes an array, not list"):
        tn.share([1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a handle"):
        tn.attach(ordinary)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="share"):
        tn.Handle()
    with tn.share(shared([1])) as handle, pytest.raises(TypeError, match="Handle.send"):
        pickle.dumps(handle)
    for use in (handle.attach, handle.fileno, handle.__enter__):
        with pytest.raises(ValueError, match="closed"):
            use()
    handle.close()


def test_what_a_plain_array_would_not_say() -> None:
    with tn.use("shared"):
        masked = numpy.ma.masked_array(numpy.arange(5), mask=[0, 1, 0, 0, 0])
        with pytest.raises(ValueError, match="a masked array is two arrays"):
            tn.share(masked)
        array = numpy.zeros(10, {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]})
        record = numpy.zeros(10, [("a", "i4"), ("mask", "i2")]).view(numpy.recarray)
    ours, theirs = socket.socketpair()
    with ours, theirs, tn.share(array) as handle:
        with pytest.raises(ValueError, match="cannot be told to a process that is not related"):
            handle.send(ours)
        with tn.share(record) as other:
            other.send(ours)
            with tn.Handle.receive(theirs) as received:
                assert received.dtype == record.dtype


def test_an_array_that_was_attached_is_the_owners_to_share() -> None:
    with tn.share(shared([1, 2])) as handle:
        other = handle.attach()
        assert tn.owner(other) is None
        with pytest.raises(ValueError, match="another object's buffer"):
            tn.share(other)


def test_a_handle_that_lies_is_refused() -> None:
    """What came from elsewhere decides what is mapped: nothing outside of the block can be reached by it."""
    array = shared(numpy.zeros(100))
    with tn.share(array) as handle:
        fd, (start, length), kind = handle.fileno(), handle._block, array.dtype
        wrong: list[tuple[Any, ...]] = [
            (start, length, start + 8, (100,), (8,)),
            (start, length, start - 8, (1,), (8,)),
            (start, length, start, (100,), (-8,)),
            (start, length, start, (101,), (8,)),
            (start, length, start, (2, 2), (2**62, 2**62)),
            (start, length, start, (-1,), (8,)),
            (start, length, start, (2,) * 20, (2**62,) * 20),
            (start, 2**48, start, (1,), (8,)),
            (2**60, length, 2**60, (1,), (8,)),
            (start, 0, start, (0,), (8,)),
            (start, length, start, (1,), ()),
            (2**45, length, 2**45, (1,), (8,)),
        ]
        for begin, size, first, shape, strides in wrong:
            with pytest.raises(ValueError):
                _numpy.attach(fd, begin, size, first, kind, shape, strides, True)
        with pytest.raises(ValueError, match="objects"):
            _numpy.attach(fd, start, length, start, numpy.dtype("O"), (1,), (8,), True)


@pytest.mark.parametrize("message", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2{}", b"\0\0\0\4null", b"\0\0\0\1x", b"\0\0\0\x15" + b'{"dtype": [["a",1,2]]}'[:21]])
def test_what_is_no_handle(message: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, tn.share(shared([1])) as handle:
        socket.send_fds(ours, [message], [handle.fileno()])
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(ValueError):
            tn.Handle.receive(theirs)


def test_sockets() -> None:
    ours, theirs = socket.socketpair()
    with theirs, tn.share(shared([1])) as handle:
        ours.close()
        with pytest.raises(EOFError):
            tn.Handle.receive(theirs)
        with pytest.raises(OSError):
            handle.send(theirs)
        for wrong in (socket.socket(socket.AF_INET), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)):
            with wrong, pytest.raises(ValueError, match="Unix stream socket"):
                handle.send(wrong)


def test_nobody_can_change_the_files_length() -> None:
    """Whoever reads a mapping beyond its file's end is killed."""
    with tn.share(shared([1, 2])) as handle:
        for length in (0, 2**50):
            with pytest.raises(PermissionError):
                os.ftruncate(handle.fileno(), length)
        assert not os.get_inheritable(handle.fileno())
        assert os.fstat(handle.fileno()).st_mode & 0o777 == 0o600, "other users cannot open it anew"


def test_no_descriptors_left(small: Any) -> None:
    array = numpy.arange(10)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
    handles, attached = [], []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                handles.append(tn.share(array))
        handles.pop().close()
        attached.append(handles[0].attach())
        with pytest.raises(OSError, match="Too many open files"):
            attached.append(handles[0].attach())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert attached[0].tolist() == list(range(10))
    for handle in handles:
        handle.close()


def test_exhaustion(small: Any) -> None:
    """All of the arena used: MemoryError, nothing is lost, and what is freed can be had again, for smaller arrays, too."""
    before, arrays = tn.statistics(), []
    with pytest.raises(MemoryError):
        while True:
            arrays.append(numpy.ones(MIB, "u1"))
    assert 32 < len(arrays) <= 64
    with pytest.raises(MemoryError):
        arrays[0].resize(3 * MIB, refcheck=False)
    with pytest.raises(MemoryError):
        numpy.zeros(2**40, "u1")
    assert all(array.all() and array.nbytes == MIB for array in arrays)
    after = tn.statistics()
    assert (after.in_use - before.in_use, after.failed - before.failed) == (len(arrays) * MIB, 3)
    rest: list[Any] = []
    for size in (100_000, 100):
        with pytest.raises(MemoryError):
            while True:
                rest.append(numpy.empty(size, "u1"))
    arrays[0].resize(100, refcheck=False)
    assert arrays[0].all(), "to become smaller needs no other block"
    rest.clear()
    arrays[0].resize(MIB, refcheck=False)
    arrays[0][:] = 1
    arrays.pop()
    zeros = numpy.zeros(700_000, "u1")
    assert not zeros.any()
    some = 0
    with pytest.raises(MemoryError):
        while True:
            arrays.append(numpy.ones(100_000, "u1"))
            some += 1
    arrays.clear()
    del zeros
    assert tn.statistics().in_use == before.in_use
    assert numpy.ones(900_000, "u1").all()


def test_zeros_are_zeros() -> None:
    """Also of blocks that others have written before, in part, in whole, and while they were larger."""
    generator = random.Random(5)
    with tn.use("shared"):
        for _ in range(2000):
            size = generator.choice((generator.randrange(1, 500), generator.randrange(1, 50_000), generator.randrange(UNIT, 9 * UNIT)))
            array = numpy.zeros(size, "u1")
            assert not array.any()
            array[:] = 255
            if generator.random() < 0.3:
                array.resize(generator.randrange(1, 2 * size), refcheck=False)
                array[:] = 255


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 256, 257, 320, 321, 16_384, 65_535, 65_536, 65_537, 81_920, 81_921, 2 * MIB, 5 * MIB + 1])
def test_blocks_are_aligned_and_apart(size: int) -> None:
    with tn.use("shared"):
        arrays = [numpy.full(size, number, "u1") for number in range(20)]
    grain = 4096 if size > 16_384 else 64
    assert all(array.ctypes.data % grain == 0 for array in arrays)
    assert all((array == number).all() for number, array in enumerate(arrays))
    spans = sorted((array.ctypes.data, array.ctypes.data + max(size, 1)) for array in arrays)
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))


def test_freed_memory_is_kept_and_given_back() -> None:
    with new_arena(0):
        array = numpy.ones(100 * MIB, "u1")
        address = array.ctypes.data
        del array
        assert numpy.empty(100 * MIB, "u1").ctypes.data == address
        assert tn.arenas()[0].kept == 100 * MIB
        arrays = [numpy.ones(50 * MIB, "u1") for _ in range(7)]
        handle = tn.share(arrays[0], readonly=True)
        fd = handle.fileno()
        written = os.fstat(fd).st_blocks * 512
        assert written >= 350 * MIB
        arrays.clear()
        assert tn.arenas()[0].kept <= 256 * MIB
        assert os.fstat(fd).st_blocks * 512 < written - 90 * MIB, "holes were made"
        handle.close()
        assert not numpy.zeros(50 * MIB, "u1").any()


def test_an_array_that_becomes_smaller_gives_its_memory_back() -> None:
    """In its place, as other arrays do; but what others see stays as it was."""
    with new_arena(256 * MIB):
        array, other = numpy.ones(40 * MIB, "u1"), numpy.ones(40 * MIB, "u1")
    with tn.share(other) as handle:
        before, address = os.fstat(handle.fileno()).st_blocks * 512, array.ctypes.data
        array.resize(12 * MIB + 5, refcheck=False)
        assert array.ctypes.data == address
        assert 27 * MIB < before - os.fstat(handle.fileno()).st_blocks * 512 < 29 * MIB
        assert array.all()
        other.resize(12 * MIB, refcheck=False)
        assert handle.attach().all()
    array.resize(40 * MIB, refcheck=False)
    assert array[: 12 * MIB + 5].all() and not array[12 * MIB + 4096 :].any()
    del array
    with new_arena(256 * MIB):
        array = numpy.ones(40 * MIB, "u1")
        array.resize(12 * MIB, refcheck=False)
        del array
        assert not numpy.zeros(40 * MIB, "u1").any()


def test_an_arena_ends_with_its_last_array() -> None:
    count = len(tn.arenas())
    with new_arena(64 * MIB):
        array = numpy.arange(100)
    with tn.share(array) as handle:
        other = handle.attach()
    assert len(tn.arenas()) == count + 1
    del array
    assert len(tn.arenas()) == count
    assert other.sum() == 4950, "the memory is there as long as somebody sees it"


def test_random_handles_across_threads() -> None:
    """Arrays that are shared, attached, resized, passed on and dropped in any order by four threads: each handle always shows what was shared."""
    exchange = queue.SimpleQueue[Any]()
    errors: list[BaseException] = []
    before = in_use()

    def work(seed: int) -> None:
        generator = random.Random(seed)
        arrays: list[tuple[Any, int]] = []
        seen: list[tuple[Any, int]] = []
        try:
            for turn in range(1500):
                pick = generator.random()
                if pick < 0.4 or not arrays:
                    number = seed * 10_000 + turn
                    arrays.append((numpy.full(generator.choice((3, 100, 5000, 20_000)), number), number))
                elif pick < 0.6:
                    array, number = generator.choice(arrays)
                    exchange.put((tn.share(array), number))
                elif pick < 0.8:
                    arrays.pop(generator.randrange(len(arrays)))
                elif pick < 0.95:
                    try:
                        handle, number = exchange.get_nowait()
                    except queue.Empty:
                        continue
                    seen.append((handle.attach(), number))
                    handle.close()
                elif seen:
                    other, number = seen.pop(generator.randrange(len(seen)))
                    assert (other == number).all()
                if len(seen) > 100:
                    other, number = seen.pop(0)
                    assert (other == number).all()
            assert all((array == number).all() for array, number in [*arrays, *seen])
        except BaseException as error:
            errors.append(error)

    with tn.use("shared", scope="process"):
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    while not exchange.empty():
        handle, number = exchange.get()
        with handle:
            assert (handle.attach() == number).all()
    assert not errors, errors
    del threads, handle
    assert in_use() == before


def test_large_zeros_take_no_memory_until_they_are_written() -> None:
    with tn.use("shared"):
        array = numpy.zeros(3 * 1024 * MIB, "u1")
    with tn.share(array) as handle:
        before = os.fstat(handle.fileno()).st_blocks
        array[::MIB] = 1
        assert os.fstat(handle.fileno()).st_blocks - before <= 3 * 1024 * 4096 // 512 * 512
        assert handle.attach()[5 * MIB] == 1


def test_events_of_shared_arrays() -> None:
    seen: list[Any] = []
    with tn.event_hook(lambda event: seen.append((event.kind, event.new_size)), domains=("numpy",), sync=True), tn.use("shared"):
        array = numpy.empty(1000, "u1")
        array.resize(900, refcheck=False)
        array.resize(90_000, refcheck=False)
        del array
    time.sleep(0)
    kinds = [kind for kind, _ in seen]
    assert kinds[-4:] == ["new", "renew", "renew", "free"], seen
