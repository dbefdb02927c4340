"""What host adapters rely on: a launch around a function, and memory that changes hands in the same call as the pointer in the host's object."""

from __future__ import annotations

from typing import Any

import pytest
from support import KIB, contents, filled, how_of, pattern, run_python

import tack_memory as tm
from tack_memory._native import _fast


def test_the_function_runs_while_the_buffers_are_held(device: str) -> None:
    spilled, resident = filled(KIB, device, 1), filled(KIB, device, 2)
    spilled.spill()
    seen: list[Any] = []

    def function(*args: Any, **named: Any) -> str:
        seen.append((spilled.holds, resident.holds, spilled.spill(), args, named))
        return "result"

    given = [spilled, resident.view(0, 8), spilled]
    assert _fast.during_launch(given, function, 1, *"ab", key=2) == "result"
    assert seen == [({"launch": 2}, {"launch": 1}, 0, (1, "a", "b"), {"key": 2})]
    assert spilled.holds == resident.holds == {}
    assert _fast.during_launch((), dict, a=1) == {"a": 1}


def test_buffers_on_several_devices(device: str) -> None:
    here, there = filled(KIB, device, 1), filled(KIB, "sim:1", 2)
    for spilled in ([], [here], [there], [here, there]):
        for one in spilled:
            one.spill()
        assert _fast.during_launch([here, there, here], lambda: (here.holds, there.holds)) == ({"launch": 2}, {"launch": 1})
        assert here.holds == there.holds == {}


def test_it_ends_with_what_it_began_with(device: str) -> None:
    """By an exception, and also where the function changes the list that was given."""
    first, second = filled(KIB, device, 1), filled(KIB, device, 2)
    given: list[tm.Buffer | tm.BufferView] = [first]

    def function() -> None:
        given[:] = [second]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _fast.during_launch(given, function)
    assert first.holds == second.holds == {}


def test_nothing_is_called_where_the_launch_cannot_begin(device: str) -> None:
    freed, other = filled(KIB, device), filled(KIB, device)
    freed.free()
    called: list[int] = []
    for wrong, error in [([other, freed], ValueError), ([other, 7], TypeError), (other, TypeError), ({other}, TypeError)]:
        with pytest.raises(error):
            _fast.during_launch(wrong, called.append, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="and a function"):
        _fast.during_launch([other])  # type: ignore[call-arg]
    assert not called and other.holds == {}


def test_a_count_that_somebody_else_lowered_is_told(device: str) -> None:
    buffer = filled(KIB, device)
    with pytest.raises(RuntimeError, match="not entered"):
        _fast.during_launch([buffer], _fast.leave_launch, [buffer])


def test_the_memory_and_the_pointer_change_hands_together(device: str) -> None:
    pointer = _fast.disown(filled(KIB, device))
    place: dict[str, Any] = {"pointer": pointer, "other": 1}
    buffer = tm.adopt(pointer, KIB, device, how=how_of(device), into=(place, "pointer"))
    assert place == {"pointer": buffer, "other": 1}
    assert _fast.disown(buffer, into=(place, "pointer")) == pointer and place["pointer"] == pointer
    tm.adopt(pointer, KIB, device, how=how_of(device), into=(place, "new"))
    assert contents(place["new"]) == pattern(KIB)
    place.clear()


def test_what_is_being_adopted_is_a_freed_buffer_to_other_threads(device: str) -> None:
    """It is in its place already, and has no memory yet."""
    done = run_python(
        """
    import sys, threading
    import tack_memory as tm
    from support import how_of
    from tack_memory._native import _fast

    device = "sim:0"
    mine = tm.allocate(4096, device)
    pointer, place, seen = mine.device_ptr, {}, []

    def watch():
        while not seen:
            found = place.get("pointer")
            if type(found) is _fast.Buffer:
                seen.append(found)

    class Array:
        def __init__(self, memory):
            self._buffer = type("HostBuffer", (), {})()
            self._buffer.__dict__["memory"] = memory

    def execute(backend, kernel, arguments):
        raise AssertionError("a launch without its memory")

    thread = threading.Thread(target=watch)
    thread.start()
    sys.setswitchinterval(1e-6)
    while not seen:
        room = tm.reserve(4096, device)
        try:
            tm.adopt(pointer, 4096, device, how=how_of(device), reserved=room, into=(place, "pointer"))
        except ValueError:
            pass
    thread.join()
    (found,) = seen
    launcher = _fast.HostLaunch(execute, array=Array, storage="memory")
    for use in (
        lambda: found.device_ptr,
        lambda: found.view(0, 0),
        lambda: found.hold("test"),
        lambda: found.copy_to_host(),
        lambda: tm.launch(mine, found).__enter__(),
        lambda: _fast.enter_launch([mine, found]),
        lambda: _fast.during_launch([mine, found], print),
        lambda: launcher(None, None, [Array(mine), Array(found)]),
        lambda: _fast.disown(found),
        lambda: setattr(found, "label", "seen"),
    ):
        try:
            use()
        except ValueError as error:
            print("was freed" in str(error))
    print(found.state, found.nbytes, found.holds, found.is_spilled, mine.holds)
    """,
        device=device,
    )
    assert done.stdout.split() == ["True"] * 10 + ["freed", "0", "{}", "False", "{}"], done.stdout + done.stderr


def test_a_refused_change_of_hands_leaves_the_place_as_it_was(device: str) -> None:
    mine = filled(KIB, device)
    place: dict[str, Any] = {"pointer": mine.device_ptr}
    for key in ("pointer", "new"):
        with pytest.raises(ValueError, match="overlap"):
            tm.adopt(mine.device_ptr, KIB, device, how=how_of(device), into=(place, key))
        assert place == {"pointer": mine.device_ptr}
    for wrong in ((place, 1), [place, "pointer"], (mine, "pointer"), (place,)):
        with pytest.raises(TypeError, match="into must be"):
            _fast.disown(mine, into=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nothing is kept"):
        _fast.disown(mine, into=(place, "new"))
    with mine.hold("busy"), pytest.raises(BufferError):
        _fast.disown(mine, into=(place, "pointer"))
    assert place == {"pointer": mine.device_ptr} and contents(mine) == pattern(KIB)
