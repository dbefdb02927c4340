"""The launch pass and `with launch`: counts are exact whatever goes wrong in the middle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from support import KIB, MIB, SoftDriver, contents, filled, pattern

import tack_memory
from tack_memory._native import _fast


def held(*buffers: tack_memory.Buffer) -> list[int]:
    return [buffer.holds.get("launch", 0) for buffer in buffers]


@pytest.mark.parametrize("kind", [list, tuple, lambda items: range_like(items)])
def test_a_pass_holds_and_lets_go(device: str, kind: Callable[[list[object]], object]) -> None:
    a, b = filled(KIB, device, 1), filled(KIB, device, 2)
    a.spill()
    items = kind([a, b.view(1, 2), a])
    assert _fast.enter_launch(items) is True, "one was restored"
    assert held(a, b) == [2, 1] and a.spill() == 0 and b.spill() == 0
    _fast.leave_launch(items)
    assert held(a, b) == [0, 0]
    assert _fast.enter_launch(items) is False
    _fast.leave_launch(items)
    assert a.spill() == KIB


def range_like(items: list[object]) -> object:
    """A sequence that is neither a list nor a tuple."""

    class Sequence:
        def __len__(self) -> int:
            return len(items)

        def __getitem__(self, place: int) -> object:
            return items[place]

    return Sequence()


def test_empty_passes() -> None:
    assert _fast.enter_launch([]) is False and _fast.enter_launch(()) is False
    _fast.leave_launch([])
    _fast.leave_launch(())
    with tack_memory.launch() as pointers:
        assert pointers == ()


@pytest.mark.parametrize("state", ["resident", "spilled"])
@pytest.mark.parametrize("wrong", ["type", "device", "freed"])
def test_a_wrong_item_in_the_middle_leaves_no_count(device: str, wrong: str, state: str) -> None:
    a, b, freed = filled(KIB, device), filled(KIB, device), filled(KIB, device)
    freed.free()
    if state == "spilled":
        b.spill()
    item: object = {"type": "buffer", "device": tack_memory.allocate(KIB, "sim:1"), "freed": freed}[wrong]
    error = TypeError if wrong == "type" else ValueError
    with pytest.raises(error):
        _fast.enter_launch([a, b, item, a])  # type: ignore[list-item]
    with pytest.raises(error), tack_memory.launch(a, b, item, a):  # type: ignore[arg-type]
        pass
    assert held(a, b) == [0, 0]


def test_leaving_what_was_not_entered_changes_nothing(device: str) -> None:
    a, b = filled(KIB, device), filled(KIB, device)
    _fast.enter_launch([a])
    for items in ([a, b], [a, a], [b]):
        with pytest.raises(RuntimeError, match="not entered"):
            _fast.leave_launch(items)
        assert held(a, b) == [1, 0]
    with pytest.raises(TypeError):
        _fast.leave_launch([a, 1])  # type: ignore[list-item]
    assert held(a, b) == [1, 0]
    _fast.leave_launch([a])


def test_a_launch_object_is_entered_and_left_in_turn(device: str) -> None:
    buffer = filled(KIB, device)
    launch = tack_memory.launch(buffer)
    with pytest.raises(RuntimeError, match="not entered"):
        launch.__exit__(None, None, None)
    for _ in range(2):
        with launch as (pointer,):
            assert pointer == buffer.device_ptr and held(buffer) == [1]
            with pytest.raises(RuntimeError, match="already"):
                launch.__enter__()
        assert held(buffer) == [0]


def test_it_ends_by_an_exception_and_by_being_dropped(device: str) -> None:
    buffer = filled(KIB, device)
    with pytest.raises(ZeroDivisionError), tack_memory.launch(buffer):
        raise ZeroDivisionError
    assert held(buffer) == [0]

    def block():  # type: ignore[no-untyped-def]
        with tack_memory.launch(buffer):
            yield

    generator = block()
    next(generator)
    assert held(buffer) == [1]
    generator.close()
    assert held(buffer) == [0]
    dropped = tack_memory.launch(buffer)
    dropped.__enter__()
    del dropped
    assert held(buffer) == [0]


def test_arguments_of_launch(device: str) -> None:
    buffer = filled(KIB, device)
    for call in (lambda: tack_memory.launch(buffer, other=1), lambda: tack_memory.launch(buffer, stream="x"), lambda: tack_memory.launch(buffer, stream=True)):
        with pytest.raises(TypeError):
            call()  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match="stream"):
        tack_memory.launch(buffer, stream=-1)
    with tack_memory.launch(*[buffer], **{"stream": None}) as pointers:
        assert len(pointers) == 1
    with tack_memory.launch(buffer, stream=tack_memory.stream(device)):
        pass


def test_memory_of_others_is_passed_over(device: str) -> None:
    ours = filled(KIB, device)
    theirs = filled(KIB, device)
    foreign = tack_memory.wrap(theirs.device_ptr + 2**40, 16, device, owner=theirs)
    items = [foreign, ours, foreign]
    _fast.enter_launch(items)
    assert held(ours) == [1]
    _fast.leave_launch(items)
    with tack_memory.launch(foreign, ours) as pointers:
        assert pointers == (theirs.device_ptr + 2**40, ours.device_ptr)
    with pytest.raises(ValueError, match="one device"):
        _fast.enter_launch([foreign, tack_memory.allocate(1, "sim:1")])


def test_a_launch_waits_for_another_threads_launch_and_gets_the_room(steered: str, soft: SoftDriver) -> None:
    """Both need more than half of the device: the second waits until the first ends, instead of failing."""
    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    first, second = filled(5 * MIB, steered, 1), filled(5 * MIB, steered, 2)
    entered, ended = threading.Event(), []

    def other() -> None:
        with tack_memory.launch(first):
            entered.set()
            time.sleep(0.2)
            ended.append(time.monotonic())

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    with tack_memory.launch(second):
        assert ended and time.monotonic() >= ended[0]
    thread.join()
    assert contents(first) == pattern(5 * MIB, 1) and contents(second) == pattern(5 * MIB, 2)


def test_inside_a_launch_nothing_waits(steered: str, soft: SoftDriver) -> None:
    """A thread that holds and waits could wait for ever, so it fails instead."""
    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    mine, theirs = filled(4 * MIB, steered, 1), filled(4 * MIB, steered, 2)
    more = filled(4 * MIB, steered, 3)
    for buffer in (mine, theirs):
        buffer.restore()
    entered, end = threading.Event(), threading.Event()

    def other() -> None:
        with tack_memory.launch(theirs):
            entered.set()
            end.wait()

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    began = time.monotonic()
    try:
        with tack_memory.launch(mine), pytest.raises(tack_memory.DeviceMemoryError, match="launch"):
            more.device_ptr  # noqa: B018
        assert time.monotonic() - began < 20, "it did not wait for the deadline"
    finally:
        end.set()
        thread.join()
    assert contents(more) == pattern(4 * MIB, 3)


def test_a_pass_entered_on_one_thread_and_left_on_another(device: str) -> None:
    buffer = filled(KIB, device)
    thread = threading.Thread(target=lambda: _fast.enter_launch([buffer]))
    thread.start()
    thread.join()
    assert held(buffer) == [1]
    _fast.leave_launch([buffer])
    assert held(buffer) == [0]


def test_work_on_another_stream_is_ordered(soft: SoftDriver) -> None:
    """Entry and exit each make one stream wait for the other; the device's own stream needs nothing."""
    buffer = filled(KIB, "sim:0")
    joins = soft.calls("cuStreamWaitEvent")
    with tack_memory.launch(buffer, stream=2):  # CUDA's per-thread default stream
        assert soft.calls("cuStreamWaitEvent") == joins + 1
    assert soft.calls("cuStreamWaitEvent") == joins + 2
    with tack_memory.launch(buffer, stream=tack_memory.stream("sim:0")):
        pass
    assert soft.calls("cuStreamWaitEvent") == joins + 2


def test_adopted_memory_is_ordered_with_its_stream(soft: SoftDriver) -> None:
    """What is queued on its stream comes before our copies. Then the stream is the host's alone, which may end it.

    0 is the legacy default stream, as for launch()."""
    pointer = _fast.disown(filled(KIB, "sim:0"))
    joins = soft.calls("cuStreamWaitEvent")
    for stream, each in ((0, int(tack_memory.stream("sim:0") != 0)), (tack_memory.stream("sim:0"), 0), (None, 0)):
        buffer = tack_memory.adopt(pointer, KIB, "sim:0", how="cuMemAllocAsync", stream=stream)
        assert soft.calls("cuStreamWaitEvent") == joins + each
        buffer.free()
        joins += each
        assert soft.calls("cuStreamWaitEvent") == joins
        pointer = _fast.disown(filled(KIB, "sim:0"))
    tack_memory.adopt(pointer, KIB, "sim:0", how="cuMemAllocAsync").free()
