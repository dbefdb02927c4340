"""Ctrl-C, or another error, at any moment of what stands in the place of the host's own functions: nothing is held, leaked or freed twice."""

from __future__ import annotations

import dis
import gc
import itertools
import sys
from collections.abc import Callable, Collection
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np
import pytest
from flavours import Flavour
from support import KIB, SoftDriver

import tack_memory
from tack_memory import _hosts
from tack_memory._native import _fast
from tack_memory.hosts import _array_launches, _holds, _host_access, _pointer_buffers, _room
from tack_memory.hosts._array_generation import ArrayGeneration
from tack_memory.hosts._pointer_buffers import ours

FILES = {module.__file__ for module in (_array_launches, _holds, _host_access, _pointer_buffers, _room)}


def buffers_of_the_host() -> _pointer_buffers.PointerBuffers:
    (adapter,) = _hosts._hosts
    assert isinstance(adapter, ArrayGeneration)
    return adapter._buffers


HOSTS_OWN = {"_assigned", "__set__", "__del__"}
"""Where a signal does harm without us, too: while the host has memory that it has stored nowhere yet, and in a destructor, where Python drops the exception."""


def called_from(frame: FrameType | None, names: set[str]) -> bool:
    while frame is not None and frame.f_code.co_name not in names:
        frame = frame.f_back
    return frame is not None


class Pressed(BaseException):
    """What the handler of a signal raises."""


def moments_of(code: CodeType) -> set[int]:
    """Where the interpreter looks for signals: when a function begins, when a call has ended, when a loop goes back.

    An exception that is raised when a call has ended belongs to the call. Tracing can only raise it at the next instruction: that is the same unless a block
    ends in between."""
    bytecode = dis.Bytecode(code)
    instructions = list(bytecode)

    def handler(offset: int) -> int | None:
        return next((entry.target for entry in bytecode.exception_entries if entry.start <= offset < entry.end), None)  # type: ignore[attr-defined]

    found = {one.offset for one in instructions if one.opname.startswith("JUMP_BACKWARD")}
    for one, following in itertools.pairwise(instructions):
        if one.opname.startswith(("RESUME", "CALL")) and handler(one.offset) == handler(following.offset):
            found.add(following.offset)
    return found


class Signal:
    """Raises Pressed at the nth moment of a call, in the code of the host's adapter."""

    def __init__(self, nth: int, files: Collection[str] = FILES) -> None:
        self.left = nth
        self.files = files
        self.known: dict[CodeType, set[int]] = {}

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in self.files or called_from(frame, HOSTS_OWN):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            moments = self.known.get(code)
            if moments is None:
                moments = self.known[code] = moments_of(code)
            if frame.f_lasti in moments:
                self.left -= 1
                if not self.left:
                    raise Pressed
        return self.trace

    def during(self, call: Callable[[], object]) -> bool:
        """Whether it came to that moment."""
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # CPython 3.12 tells of opcodes only where a frame wants that before tracing begins
        sys.settrace(self.trace)
        try:
            call()
        except Pressed:
            return True
        finally:
            sys.settrace(before)
        assert self.left > 0, "the signal was swallowed"
        return False


def test_a_signal_at_any_moment(host: ModuleType, flavour: Flavour, soft: SoftDriver) -> None:
    device = flavour.device()
    thread = buffers_of_the_host().thread

    @host.kernel(writes="out")
    def add(a: Any, b: Any, out: Any) -> None:
        out[:] = a + b

    a, b, out = (host.full(KIB, seed, np.uint8) for seed in (1, 2, 0))
    calls: dict[str, Callable[[], object]] = {
        "make": lambda: host.full(3 * KIB, 7, np.uint8),
        "launch": lambda: add(a, b, out),
        "reduce": lambda: host.reduce_sum(a),
        "copy": lambda: host.copyto(out, b),
        "wrap": lambda: host.wrap_ptr(a._buffer.device_ptr + 8, 10, np.uint8, owner=a),
    }

    def state() -> tuple[object, ...]:
        gc.collect()
        host.synchronize()
        tack_memory.synchronize(device)
        info = tack_memory.memory_info(device)
        holds = [one.holds for array in (a, b, out) for one in (ours(array._buffer),) if one is not None]
        return info.in_use, info.spilled, info.reserved, soft.live(), holds, thread.building, thread.wrapping, thread.reservation, thread.holding

    for name, call in calls.items():
        call()  # the first time it may do more
        tack_memory.spill(a, b, out)
        start = state()
        for nth in itertools.count(1):
            came = Signal(nth).during(call)
            tack_memory.spill(a, b, out)
            assert state() == start, f"{name}, moment {nth}"
            if not came:
                break
        assert nth > 3 or name == "launch", f"{name}: hardly a moment of it was tried"  # what holds a launch is C: nothing comes in between
    assert _fast.take_notices() == "[]", "something was freed twice"
    add(a, b, out)
    assert (out.numpy() == 3).all() and host.reduce_sum(a) == KIB


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_hold_that_fails_when_the_memory_is_ours_already(
    host: ModuleType, flavour: Flavour, soft: SoftDriver, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The output of a reduction is adopted and then held. In between another thread may have moved it, so the number that the host has is stale."""
    buffers = buffers_of_the_host()
    a = host.full(KIB, 3, np.uint8)
    host.synchronize()
    live, in_use = soft.live(), host.memory_info().in_use
    held: list[Any] = []

    class Failing:
        def __init__(self, mine: tack_memory.Buffer) -> None:
            self.mine = mine

        def __enter__(self) -> None:
            assert self.mine.spill() == self.mine.nbytes
            held.extend(buffer for buffer in buffers.adopted() if ours(buffer) is self.mine)
            raise error

    with monkeypatch.context() as patched:
        patched.setattr(_pointer_buffers, "launch", Failing)
        with pytest.raises(error):
            host.reduce_sum(a)
    (buffer,) = held
    assert buffer._device_ptr == ours(buffer).device_ptr, "the host's buffer has ours, which follows its memory"
    assert host.memory_info().in_use == in_use + buffer._nbytes
    del buffer, held[:]
    gc.collect()
    host.synchronize()
    tack_memory.synchronize(flavour.device())
    assert (soft.live(), host.memory_info().in_use, host.memory_info().spilled) == (live, in_use, 0)
    assert _fast.take_notices() == "[]", "something was freed twice"
    assert host.reduce_sum(a) == 3 * KIB
