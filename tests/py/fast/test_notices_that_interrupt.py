"""A call that brings word of something runs the program's log handlers. What they raise and is no Exception (Ctrl-C, SystemExit) reaches the program, and what
the call has given is given back, or is not lost."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import KIB, books_of, contents, doomed, filled, pattern

import tack_memory
from tack_memory import _logging
from tack_memory._native import _fast

DEVICE = "sim:0"


class Handler(logging.Handler):
    """Runs `action` for each record, a few times."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self.action, self.times = action, 1
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())
        if self.times:
            self.times -= 1
            self.action()


@pytest.fixture
def on_word() -> Iterator[Callable[[Callable[[], None]], Handler]]:
    """Arranges that the next call that brings word runs this."""
    handlers = []

    def arrange(action: Callable[[], None]) -> Handler:
        handler = Handler(action)
        _logging.logger().addHandler(handler)
        handlers.append(handler)
        lose_a_free()
        return handler

    yield arrange
    for handler in handlers:
        _logging.logger().removeHandler(handler)


def lose_a_free() -> None:
    """The driver refuses to free what it has got back already; no call brings word of that here."""
    buffer = doomed(DEVICE)
    _fast.configure(notify=lambda: None)  # type: ignore[call-arg]
    try:
        del buffer
        tack_memory.synchronize(DEVICE)
    finally:
        _fast.configure(notify=_logging.drain)  # type: ignore[call-arg]


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def leave_with_7() -> None:
    raise SystemExit(7)


RAISING = {"Ctrl-C": (press_ctrl_c, KeyboardInterrupt), "SystemExit": (leave_with_7, SystemExit)}
CALLS: dict[str, Callable[[tack_memory.Buffer], Any]] = {
    "allocate": lambda buffer: tack_memory.allocate(KIB, DEVICE),
    "reserve": lambda buffer: tack_memory.reserve(KIB, DEVICE),
    "hold": lambda buffer: buffer.hold("x").__enter__(),
    "export": lambda buffer: buffer.export("x"),
    "enter_launch": lambda buffer: _fast.enter_launch([buffer]),
    "launch": lambda buffer: tack_memory.launch(buffer, stream=1).__enter__(),
    "spill": lambda buffer: buffer.spill(),
    "copy_to_host": lambda buffer: buffer.copy_to_host(),
    "memory_info": lambda buffer: tack_memory.memory_info(DEVICE),
    "holds": lambda buffer: buffer.holds,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("what", RAISING)
def test_the_program_is_interrupted_and_nothing_is_left(what: str, call: str, on_word: Callable[[Callable[[], None]], Handler]) -> None:
    action, kind = RAISING[what]
    buffer = filled(3 * KIB, DEVICE, label="x")  # so that this text is known, and no call before the one that is meant tells the core of it
    if "launch" in call:
        buffer.spill()  # else it does not enter the core
    footprint = sum(books_of(DEVICE))
    handler = on_word(action)
    with pytest.raises(kind) as raised:
        CALLS[call](buffer)
    if isinstance(raised.value, SystemExit):
        assert raised.value.code == 7
    assert len(handler.seen) == 1
    assert sum(books_of(DEVICE)) == footprint and tack_memory.memory_info(DEVICE).reserved == 0
    assert buffer.holds == {} and contents(buffer) == pattern(3 * KIB)
    buffer.free()


def test_what_was_asked_for_has_happened(on_word: Callable[[Callable[[], None]], Handler]) -> None:
    """free() and a label are not undone, and Python and the core agree on them."""
    buffer, other = filled(3 * KIB, DEVICE, label="new"), filled(KIB, DEVICE)
    on_word(press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        buffer.free()
    assert buffer.state == "freed"
    on_word(press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        other.label = "new"
    assert other.label == "new"
    assert [holder.label for holder in tack_memory.memory_report(DEVICE).holders] == ["new"]


def test_an_owner_of_memory_is_never_in_doubt(on_word: Callable[[Callable[[], None]], Handler]) -> None:
    """adopt and disown are not interrupted: who called would not know whose the memory is. The next call brings word."""
    pointer = _fast.disown(filled(KIB, DEVICE))
    room = tack_memory.reserve(KIB, DEVICE)
    handler = on_word(press_ctrl_c)
    buffer = tack_memory.adopt(pointer, KIB, DEVICE, how="cuMemAllocAsync", reserved=room)
    assert _fast.disown(buffer) == pointer and not handler.seen
    with pytest.raises(KeyboardInterrupt):
        tack_memory.stream(DEVICE)
    again = tack_memory.adopt(pointer, KIB, DEVICE, how="cuMemAllocAsync")
    assert contents(again) == pattern(KIB)


def test_a_call_that_failed_gives_way(on_word: Callable[[Callable[[], None]], Handler]) -> None:
    on_word(press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        tack_memory.allocate(1 << 50, DEVICE)
