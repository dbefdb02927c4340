"""Ctrl-C, and signal handlers that track by themselves, in the middle of a track's beginning and end: nothing stays on, and nothing waits for ever."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from test_numpy_processes import ended_well

import tack_memory
import tack_memory.numpy as tn
from tack_memory.numpy import _scopes, _track_devices, _track_skip
from tack_memory.numpy._track_undo import Undo

OURS = os.path.join(os.path.dirname(tn.__file__), "")


class Interrupted(BaseException):
    """As Ctrl-C's."""


class Interrupt:
    """Raises at the nth instruction of the package's code, as a signal handler could."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __enter__(self) -> None:
        sys.settrace(self.trace)

    def __exit__(self, *unused: object) -> None:
        sys.settrace(None)

    def trace(self, frame: Any, kind: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes = True
        if kind == "opcode" and frame.f_code.co_name not in ("__del__", "__bool__", "_hear"):  # what comes in finalizers and hooks is nobody's to raise to
            self.left -= 1
            if not self.left:
                raise Interrupted
        return self.trace


def what_is_on() -> dict[str, object]:
    return {"tracks": len(_scopes._process._tracks), "skipped": len(_track_skip.skips._open), "origins": len(_track_devices._origins._open)}


NOTHING = {"tracks": 0, "skipped": 0, "origins": 0}


@pytest.fixture
def nothing_is_on() -> Iterator[None]:
    assert what_is_on() == NOTHING
    origins = tack_memory.set_origins("off")
    tack_memory.set_origins(origins)
    yield
    let_go_of_locks()
    assert tack_memory.set_origins(origins) == origins


def let_go_of_locks() -> None:
    """A `with` leaves its lock taken when it is interrupted at the instructions that only prepare the call of __exit__. No signal handler runs there, but
    `Interrupt` does; and this thread would keep the lock from those of later tests for ever."""
    for lock in (_scopes._process._lock, _track_devices._origins._lock, _track_skip.skips._lock):
        while lock._is_owned():  # type: ignore[attr-defined]
            lock.release()


@pytest.mark.parametrize("domains", ["numpy", "device"])
def test_ctrl_c_at_any_instruction_leaves_nothing_on(domains: Any, nothing_is_on: None) -> None:
    """Wherever it comes: after the end of the next track, at the latest, nothing is counted any more."""
    tack_memory.allocate(10, "cpu").free()
    with tn.track(domains=domains):
        pass
    nth, stride, interrupted = 1, 1 if domains == "numpy" else 3, 0
    while True:
        try:
            with Interrupt(nth):
                with tn.track(domains=domains):
                    pass
        except Interrupted:
            interrupted += 1
        else:
            break  # it has fewer instructions
        gc.collect(0)
        with tn.track(domains=domains):
            pass
        assert what_is_on() == NOTHING, nth
        nth += stride
    assert interrupted > 100


@pytest.mark.parametrize("where", ["set_site_skip", "need_origins", "set_origins"])
def test_a_signal_handler_that_tracks_comes_while_a_track_begins_and_ends(where: str) -> None:
    """In the middle of what is kept under a lock; in a process of its own, since what fails here would wait for ever."""
    ended_well(
        """
        import signal, sys
        import numpy
        import tack_memory, tack_memory.numpy as tn
        from tack_memory._native import _numpy
        from tack_memory.numpy import _scopes, _track_devices, _track_skip

        tack_memory.allocate(10, "cpu")
        handled, inner = [], []
        def handler(*unused):
            handled.append(1)
            if len(handled) < 10:
                with tn.track(skip="json") as t:
                    kept = numpy.empty(100)
                inner.append([row.function for row in t.report(coverage=False).rows if row.file == "<string>"])

        signal.signal(signal.SIGALRM, handler)
        module = {"set_site_skip": _numpy}.get(sys.argv[1], _track_devices)
        original = getattr(module, sys.argv[1])
        def interrupted(argument):
            again = len(handled) < 10
            if again: signal.raise_signal(signal.SIGALRM)
            found = original(argument)
            if again and argument != "line": signal.raise_signal(signal.SIGALRM)   # not where C calls it: nothing comes in between there
            return found
        setattr(module, sys.argv[1], interrupted)
        def program():
            kept = numpy.empty(7, "u1")
        for skip in ("json", "logging", "json"):
            with tn.track(skip=skip) as t:
                program()
            assert [row.function for row in t.report(coverage=False).rows if row.live == 0 and row.total == 7] == ["program"]
        assert len(handled) >= 2 and all(one == ["handler"] for one in inner), (handled, inner)
        assert not _scopes._process._tracks and not _track_skip.skips._open and not _track_devices._origins._open
        assert _track_skip.skips._told == _track_skip.skips.ALWAYS
        assert tack_memory.set_origins("off") == "off"
        """,
        where,
    )


def test_steps_are_undone_whatever_comes_in_between() -> None:
    done: list[str] = []
    raises: dict[str, list[BaseException]] = {"second": [Interrupted(), ValueError("again")], "third": [ValueError("once")]}

    def step(name: str) -> Any:
        def run() -> None:
            if raises.get(name):
                raise raises[name].pop(0)
            done.append(name)

        return run

    undo = Undo()
    for name in ("first", "second", "third"):
        undo.add(step(name))
    assert undo
    with pytest.raises(ValueError, match="again"):
        undo.run()
    assert done == ["third", "first"] and not undo, "one that failed, and failed again, is given up; the others are done"
    undo.run()
    assert done == ["third", "first"]
