"""One launch or hold object in the hands of two threads: entered by one at a time, and every count raised once and lowered once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from support import MIB, SoftDriver, filled

import tack_memory
from tack_memory._native import _fast

BAD_STREAM = 0xBAD


def test_a_stream_that_is_none_is_a_value_error_that_names_it() -> None:
    buffer = tack_memory.allocate(64, "sim:0")
    with pytest.raises(ValueError, match=r"stream 0xbad is not a stream of sim:0"):
        tack_memory.launch(buffer, stream=BAD_STREAM).__enter__()
    with pytest.raises(TypeError, match="stream"):
        tack_memory.launch(buffer, stream="mine")  # type: ignore[arg-type]
    assert buffer.holds == {}


def test_a_failed_entry_and_a_leave_by_another_thread_lower_each_count_once() -> None:
    buffer = tack_memory.allocate(64, "sim:0")
    launch = tack_memory.launch(buffer, stream=BAD_STREAM)
    stop = threading.Event()
    left: list[str] = []

    def leave() -> None:
        while not stop.is_set():
            try:
                launch.__exit__(None, None, None)
            except RuntimeError:
                continue
            except ValueError:  # of the stream, at the end
                pass
            left.append("it was never entered")

    _fast.enter_launch([buffer])  # what must not be lowered by anybody else
    others = [threading.Thread(target=leave) for _ in range(2)]
    for other in others:
        other.start()
    for _ in range(3000):
        with pytest.raises(ValueError, match="stream"):
            launch.__enter__()
    stop.set()
    for other in others:
        other.join()
    assert not left
    assert buffer.holds == {"launch": 1}
    _fast.leave_launch([buffer])
    assert buffer.holds == {}


@pytest.mark.parametrize("make", [lambda buffer: tack_memory.launch(buffer), lambda buffer: buffer.hold("once")], ids=["launch", "hold"])
def test_who_comes_while_another_thread_enters_is_refused(make: Callable[[tack_memory.Buffer], tack_memory.launch], steered: str, soft: SoftDriver) -> None:
    buffer = filled(8 * MIB, steered)
    buffer.spill()
    block = make(buffer)
    soft.set("delay_us", 300_000)  # each piece of work on the device: the restore takes so long
    entering = threading.Thread(target=block.__enter__)
    entering.start()
    refused = 0
    while entering.is_alive() and buffer.state == "spilled":
        pass
    while entering.is_alive() and buffer.state == "restoring":
        for call in (lambda: block.__enter__(), lambda: block.__exit__(None, None, None)):
            try:
                call()
            except RuntimeError:
                refused += 1
            else:
                raise AssertionError("two threads have entered")
    soft.set("delay_us", 0)
    entering.join()
    assert refused >= 2
    assert list(buffer.holds.values()) == [1]
    block.__exit__(None, None, None)
    assert buffer.holds == {}
    with pytest.raises(RuntimeError, match="not entered"):
        block.__exit__(None, None, None)
