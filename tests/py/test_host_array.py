"""HostArray and its slot: an array that a host's code got hold of is right for as long as anybody has it, or any view of it."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import threading
import weakref
from typing import Any

import numpy
import pytest
from standin_host import DEVICE, STORAGE, Array, HostBuffer, array, array_over, backend, make, set_up
from support import KIB, REAL, SIMULATED, contents, doomed, filled, pattern, run_python

from tack_memory import _logging, allocate, memory_info, synchronize
from tack_memory._native import _fast


@pytest.fixture(autouse=True)
def device_of_the_arrays() -> None:
    set_up()


def data_of(one: Array) -> Any:
    return one._buffer._data


def moved(one: Array) -> int:
    """Spill and restore: where it is then."""
    assert one.memory.spill() == one.memory.nbytes
    return one.memory.device_ptr


# ---- outside a launch


def test_an_array_that_was_read_keeps_its_memory_in_its_place() -> None:
    one = array(KIB, DEVICE, 5)
    one.memory.spill()
    data = data_of(one)
    assert one.memory.state == "resident" and one.memory.holds == {"export: array": 1}
    assert bytes(data) == bytes([5]) * KIB
    data[3] = 9
    assert one.memory.spill() == 0
    del data
    assert one.memory.holds == {} and one.memory.spill() == KIB
    assert contents(one.memory) == bytes([5, 5, 5, 9]) + bytes([5]) * (KIB - 4)


@pytest.mark.parametrize("part", [lambda data: data[10:20], lambda data: data.reshape(2, -1)[1], memoryview, lambda data: data.ctypes, lambda data: data.base])
def test_so_does_whatever_was_made_of_it(part: Any) -> None:
    one = array(KIB)
    rest = part(data_of(one))
    gc.collect()
    assert one.memory.spill() == 0
    del rest
    assert one.memory.holds == {} and one.memory.spill() == KIB


def test_two_reads_give_two_arrays_over_the_same_memory() -> None:
    one = array(KIB)
    first, second = data_of(one), data_of(one)
    first[0] = 77
    assert second[0] == 77 and one.memory.holds == {"export: array": 2}


def test_it_outlives_the_hosts_buffer() -> None:
    one = array(KIB, fill=6)
    data, gone = data_of(one), weakref.ref(one.memory)
    del one
    gc.collect()
    assert gone() is not None and bytes(data) == bytes([6]) * KIB
    del data
    assert gone() is None


# ---- in a launch


def test_reads_of_a_launch_cost_no_export_and_make_one_array() -> None:
    made: list[Any] = []

    def counting(of: Any, owner: Any) -> Any:
        made.append(owner.buffer)
        return make(of, owner)

    memory = filled(KIB, DEVICE)
    one = array_over(memory, counting)
    kept = one._buffer.__dict__[STORAGE]

    def kernel(a: Array) -> None:
        assert kept.view is None or len(made) == 1
        assert data_of(a) is data_of(a) and kept.view is data_of(a) and memory.holds == {"launch": 1}
        assert bytes(data_of(a)) == pattern(KIB)

    for _ in range(3):
        backend().execute(kernel, [one])
    assert made == [memory] and memory.holds == {} and kept.view is None
    address = memory.device_ptr
    assert moved(one) != address  # addresses are not used twice in the tests
    backend().execute(lambda a: kernel_again(a), [one])
    assert made == [memory, memory]


def kernel_again(one: Array) -> None:
    assert bytes(data_of(one)) == pattern(KIB) and data_of(one).ctypes.data == one.memory.device_ptr


@pytest.mark.parametrize(
    "part",
    [
        lambda data: data,
        lambda data: data[10:20],
        memoryview,
        lambda data: data.ctypes.data_as(ctypes.c_void_p),
        lambda data: data.base,
        lambda data: memoryview(data.base),
    ],
)
def test_what_a_kernel_keeps_beyond_its_launch_becomes_an_export(part: Any) -> None:
    one, rest = array(KIB, DEVICE, 8), list[Any]()

    def kernel(a: Array) -> None:
        rest.append(part(data_of(a)))
        assert one.memory.holds == {"launch": 1}

    one.memory.spill()
    backend().execute(kernel, [one])
    assert one.memory.holds == {"export: array": 1} and one.memory.spill() == 0
    backend().execute(lambda a: data_of(a)[:1].fill(1), [one])  # another array, and the first is as it was
    assert one.memory.holds == {"export: array": 1}
    rest.clear()
    assert one.memory.holds == {} and one.memory.spill() == KIB
    assert contents(one.memory) == bytes([1]) + bytes([8]) * (KIB - 1)


class Weak(numpy.ndarray):
    """A host's own class of arrays."""


@pytest.mark.parametrize("kind", [numpy.ndarray, Weak])
def test_a_weak_reference_to_an_array_of_a_launch_is_dead_after_it(kind: type) -> None:
    """Else it would give the array out when nothing holds the memory any more."""
    one, references = array_over(filled(KIB, DEVICE), make=lambda array, owner: kind(array.info, numpy.uint8, owner)), list[Any]()

    def kernel(_: Any) -> None:
        references.extend([weakref.ref(data_of(one)), weakref.ref(data_of(one)[10:20])])
        references.append(references[0]())
        assert references[0]() is data_of(one), "still the launch's"

    backend().execute(kernel, [one])
    assert references[0]() is references.pop(), "somebody kept it"
    assert references[0]() is None and references[1]() is None
    assert one.memory.holds == {} and one.memory.spill() == KIB

    references.clear()
    backend().execute(lambda _: references.append(weakref.ref(data_of(one))), [one])
    assert one.memory.spill() == KIB and references[0]() is None


def test_a_traceback_keeps_what_its_frames_have() -> None:
    one = array(KIB)

    def kernel(a: Array) -> None:
        data = data_of(a)
        raise ValueError(data.size)

    with pytest.raises(ValueError, match="1024") as caught:
        backend().execute(kernel, [one])
    assert one.memory.holds == {"export: array": 1}
    del caught
    gc.collect()
    assert one.memory.holds == {}


def test_an_inner_launch_ends_while_the_outer_one_has_the_array() -> None:
    one, host = array(KIB, fill=4), backend()

    def kernel(a: Array) -> None:
        data = data_of(a)
        host.execute(lambda b: data_of(b)[:2].fill(5), [a])
        assert data[1] == 5 and data_of(a)[1] == 5

    host.execute(kernel, [one])
    host.execute(lambda a: host.execute(lambda: data_of(a).size, []), [one])  # and an inner one that has no arrays
    assert one.memory.holds == {} and one.memory.spill() == KIB


def test_a_thread_that_launches_nothing_gets_an_export() -> None:
    one, holds = array(KIB, fill=4), list[Any]()

    def read() -> None:
        data = data_of(one)
        holds.append((one.memory.holds, int(data[0])))

    def kernel(a: Array) -> None:
        data_of(a)
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()

    backend().execute(kernel, [one])
    assert holds == [({"launch": 1, "export: array": 1}, 4)] and one.memory.holds == {}


def test_an_array_that_is_not_among_the_arguments_gets_an_export() -> None:
    one, other = array(KIB), array(KIB, fill=3)

    def kernel(_: Array) -> None:
        data = data_of(other)
        assert other.memory.holds == {"export: array": 1} and data[0] == 3

    backend().execute(kernel, [one])
    assert other.memory.holds == {}


def test_two_threads_launch_on_one_array_and_one_keeps_it() -> None:
    one, host, kept = array(KIB, fill=2), backend(), list[Any]()
    inside, go = threading.Barrier(2), threading.Event()

    def keeping(a: Array) -> None:
        inside.wait()
        kept.append(data_of(a))
        go.set()

    def reading(a: Array) -> None:
        data_of(a)
        inside.wait()
        go.wait()

    threads = [threading.Thread(target=host.execute, args=(kernel, [one])) for kernel in (keeping, reading)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.memory.holds == {"export: array": 1} and one.memory.spill() == 0 and kept[0][0] == 2
    kept.clear()
    assert one.memory.spill() == KIB


def test_what_is_kept_is_safe_also_where_no_export_can_be_had() -> None:
    """In a forked child nothing can be exported any more. The array is out, so the launch's own count is left to it."""
    done = run_python("""
        import os
        import tack_memory as tm
        from standin_host import array, backend, set_up
        set_up()

        one, parts = array(4096, fill=3), []

        def kernel(a):
            parts.append(a._buffer._data)
            return os.fork()

        def counted():
            try:
                tm._native._fast.leave_launch([one.memory])
            except RuntimeError:
                return False
            return True

        child = backend().execute(kernel, [one])
        if not child:
            os._exit(2 * (bytes(parts[0][:3]) != bytes([3, 3, 3])) + 4 * (not counted()))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), one.memory.holds)

        child = backend().execute(kernel, [one])
        if not child:
            parts.clear()
            os._exit(counted())
        parts.clear()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), one.memory.holds)
        """)
    assert done.stdout.splitlines() == ["0 {'export: array': 1}", "0 {}"], done.stdout + done.stderr


def test_ctrl_c_in_a_log_handler_at_the_end_of_a_launch() -> None:
    """To export what is kept may bring word of something: log handlers run. What they raise reaches the program, and every hold is right."""
    lost = doomed()
    _fast.configure(notify=lambda: None)  # type: ignore[call-arg]
    del lost  # the driver refuses to free it, and no call brings word of that yet
    synchronize("sim:0")
    one, other, kept = array(KIB, fill=5), array(KIB), list[Any]()

    def kernel(a: Array, b: Array) -> None:
        kept.append(data_of(a))
        data_of(b)
        raise ValueError("the kernel's")

    try:
        _fast.configure(notify=lambda: signal.raise_signal(signal.SIGINT))  # type: ignore[call-arg]
        with pytest.raises(KeyboardInterrupt) as caught:
            backend().execute(kernel, [one, other])
    finally:
        _fast.configure(notify=_logging.drain)  # type: ignore[call-arg]
        _logging.drain()
    assert repr(caught.value.__context__) == repr(ValueError("the kernel's"))
    del caught
    gc.collect()
    assert one.memory.spill() == 0 and kept[0][7] == 5 and other.memory.holds == {}
    kept.clear()
    assert one.memory.holds == {} and one.memory.spill() == KIB


# ---- the adapter's function


def test_errors_of_make_are_raised_and_hold_nothing() -> None:
    def fails(*_: Any) -> Any:
        raise LookupError("of make")

    one = array_over(filled(KIB, DEVICE), fails)
    with pytest.raises(LookupError, match="of make"):
        data_of(one)
    with pytest.raises(LookupError, match="of make"):
        backend().execute(data_of, [one])
    assert one.memory.holds == {} and one.memory.spill() == KIB


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda of, owner: numpy.frombuffer(owner, numpy.uint8).reshape(2, -1), TypeError),
        (lambda of, owner: numpy.zeros(of.info, numpy.uint8), TypeError),
        (lambda of, owner: None, AttributeError),
    ],
)
def test_an_array_that_would_not_keep_its_memory_is_refused(wrong: Any, error: type[Exception]) -> None:
    one = array_over(filled(KIB, DEVICE), wrong)
    for read in (lambda: data_of(one), lambda: backend().execute(data_of, [one])):
        with pytest.raises(error, match="base"):
            read()
    assert one.memory.holds == {}


def test_a_make_that_reads_the_attribute_itself() -> None:
    """Only one array is kept, and the one that is out beside it must not be forgotten."""
    depth, out = [0], list[Any]()

    def again(of: Any, owner: Any) -> Any:
        depth[0] += 1
        if depth[0] == 1:
            out.append(data_of(one))
        return make(of, owner)

    one = array_over(filled(KIB, DEVICE), again)
    assert backend().execute(data_of, [one]) is out[0]
    assert one.memory.holds == {"export: array": 1} and one.memory.spill() == 0
    out.clear()
    assert one.memory.holds == {}


# ---- what may be under it


def test_views_of_a_buffer_and_memory_that_is_not_ours() -> None:
    memory = filled(KIB, DEVICE)
    part = array_over(memory.view(100, 50))
    mine = numpy.arange(64, dtype=numpy.uint8)
    foreign = array_over(_fast.wrap(mine.ctypes.data, 64, "cpu", mine))
    for _ in range(2):
        assert bytes(data_of(part)) == pattern(KIB)[100:150] and bytes(data_of(foreign)) == bytes(range(64))
        assert backend().execute(lambda a, b: (bytes(data_of(a)), bytes(data_of(b))), [part, foreign]) == (pattern(KIB)[100:150], bytes(range(64)))
        memory.spill()
    references = sys.getrefcount(mine)
    kept = [backend().execute(data_of, [foreign]), data_of(foreign)]
    del foreign
    assert sys.getrefcount(mine) == references and kept[0][5] == kept[1][5] == 5
    kept.clear()
    assert sys.getrefcount(mine) == references - 1


def test_nothing_at_all() -> None:
    one = array_over(allocate(0, DEVICE))
    assert data_of(one).size == 0 and backend().execute(lambda a: data_of(a).size, [one]) == 0


def test_a_freed_buffer_is_an_error() -> None:
    one = array(KIB)
    kept = one._buffer.__dict__[STORAGE]
    backend().execute(data_of, [one])
    one.memory.free()
    with pytest.raises(ValueError, match="was freed"):
        data_of(one)
    assert kept.view is None
    with pytest.raises(ValueError, match="was freed"):
        _fast.HostArray(one.memory, make)


@pytest.mark.parametrize(("buffer", "function"), [(5, make), (None, make), ("buffer", 5)])
def test_bad_arguments(buffer: Any, function: Any) -> None:
    with pytest.raises(TypeError):
        _fast.HostArray(allocate(1, DEVICE) if buffer == "buffer" else buffer, function)


@pytest.mark.parametrize("name", [*SIMULATED, *(pytest.param(name, marks=pytest.mark.gpu) for name in REAL)])
def test_memory_that_the_host_cannot_simply_read_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not the host's to read"):
        _fast.HostArray(allocate(1, name), make)


# ---- the slot


def test_the_slot_gives_what_is_not_ours_as_it_is() -> None:
    class Keeper:
        _data = _fast.HostArraySlot(STORAGE, lambda keeper, value: (keeper, value))

    keeper, mine = Keeper(), numpy.zeros(3)
    with pytest.raises(AttributeError, match="has no memory"):
        keeper._data  # noqa: B018
    keeper._data = mine
    assert keeper._data == (keeper, mine) and keeper.__dict__ == {STORAGE: (keeper, mine)}
    del keeper._data
    assert keeper.__dict__ == {} and isinstance(Keeper._data, _fast.HostArraySlot)
    with pytest.raises(AttributeError):
        del keeper._data
    with pytest.raises(TypeError):
        _fast.HostArraySlot(STORAGE, 5)  # type: ignore[arg-type]


def test_a_pointer_slot_gives_arrays_too() -> None:
    class Keeper:
        pointer = _fast.PointerSlot(STORAGE, lambda _, value: value)

    keeper = Keeper()
    keeper.pointer = array(KIB, fill=7)._buffer.__dict__[STORAGE]
    assert keeper.pointer[9] == 7


# ---- references


def test_no_references_are_lost_or_left() -> None:
    one, host = array(KIB), backend()
    kept, memory = one._buffer.__dict__[STORAGE], one.memory
    out: list[Any] = []

    def kernel(a: Array, keep: bool) -> None:
        data = data_of(a)
        if keep:
            out.append(data[1:])

    def once(number: int) -> None:
        host.execute(kernel, [one, number % 3 == 0])
        data_of(one)
        kept.view  # noqa: B018
        out.clear()

    watched = [one, kept, memory, kept.info, make, one._buffer, type(kept), memory.device]
    for number in range(11):
        once(number)
    before, blocks = [sys.getrefcount(thing) for thing in watched], sys.getallocatedblocks()
    for number in range(11, 10_001):
        once(number)
    after = [sys.getrefcount(thing) for thing in watched]
    assert [a - b for a, b in zip(after, before, strict=True)] == [0] * len(watched)
    assert sys.getallocatedblocks() - blocks < 1000 and memory.holds == {}


def test_cycles_through_it_are_collected() -> None:
    class Info:
        pass

    before = memory_info(DEVICE).in_use
    info = Info()
    info.array = _fast.HostArray(allocate(KIB, DEVICE), lambda *_: info, info)  # type: ignore[attr-defined]  # noqa: F821
    one = Array(_fast.HostArray(allocate(KIB, DEVICE), lambda of, owner: numpy.ndarray(KIB, numpy.uint8, owner), info))
    info.one = one  # type: ignore[attr-defined]
    backend().execute(data_of, [one])
    gone = weakref.ref(info)
    del info, one
    gc.collect()
    assert gone() is None and memory_info(DEVICE).in_use == before


def test_its_text_and_what_it_shows() -> None:
    memory = allocate(KIB, DEVICE)
    one = _fast.HostArray(memory, make)
    assert repr(one) == f"<HostArray over {memory!r}>" and one.buffer is memory and one.info is None and one.view is None
    assert one.buffer is not None and HostBuffer._data is HostBuffer.__dict__["_data"]
