"""HostLaunch: launches inside launches, and what is done when the outermost one has ended over its budget (`settle`)."""

from __future__ import annotations

import signal
import sys
from typing import Any

import pytest
from standin_host import DEVICE, Texture, array, array_over, backend, free_to_move, raw, set_up
from support import KIB

import tack_memory
from tack_memory import spill
from tack_memory._native import _fast


@pytest.fixture(autouse=True)
def device_of_the_arrays() -> None:
    set_up()


def test_a_kernel_that_launches() -> None:
    outer, inner, host = array(KIB), array(KIB), backend()
    spill(inner.memory)

    def kernel(_: Any) -> None:
        host.execute(lambda *_: None, [inner, outer])
        assert inner.memory.state == "resident" and inner.memory.spill() == KIB, "held by the inner one only"
        assert outer.memory.spill() == 0

    host.execute(kernel, [outer])
    assert free_to_move(outer)


def test_an_inner_launch_may_be_skipped() -> None:
    one, other = raw(KIB), raw(KIB)
    skipping, elsewhere = backend(nested="skip"), backend(nested="skip", array=Texture)

    def state(*_: Any) -> str:
        return other.memory.state

    spill(other.memory)
    assert backend().execute(lambda _: skipping.execute(state, [other]), [one]) == "resident", "the outer one has not got it"
    spill(other.memory)
    assert elsewhere.execute(lambda *_: skipping.execute(state, [other]), []) == "resident", "a launch of another host's arrays is none"
    spill(other.memory)
    assert skipping.execute(state, [other]) == "resident"
    assert free_to_move(one, other)


def test_an_inner_launch_is_skipped_where_the_outer_ones_hold_all_its_memory() -> None:
    one, other, third = (raw(KIB) for _ in range(3))
    part, host = array_over(one.memory.view(8, 8)), backend(nested="skip")

    def holds(*_: Any) -> list[dict[str, int]]:
        return [each.memory.holds for each in (one, other, third)]

    def inner(*_: Any) -> Any:
        skipped = [host.execute(holds, arrays) for arrays in ([one, other], [other, one, 7], [part], [])]
        return skipped, host.execute(holds, [other, third])

    skipped, held = host.execute(inner, [one, other])
    assert skipped == [[{"launch": 1}, {"launch": 1}, {}]] * 4
    assert held == [{"launch": 1}, {"launch": 2}, {"launch": 1}]
    deeper = host.execute(lambda *_: host.execute(lambda *_: host.execute(holds, [third, one]), [one, third]), [one])
    assert deeper == [{"launch": 2}, {}, {"launch": 1}], "two launches hold them together"
    assert free_to_move(one, other, third)


def test_deep_recursion_ends_with_every_hold_given_back() -> None:
    one, host = array(KIB), backend()

    def kernel(a: Any) -> None:
        host.execute(kernel, [a])

    with pytest.raises(RecursionError):
        host.execute(kernel, [one])
    assert free_to_move(one)


def test_settle_is_called_when_a_thread_has_no_launch_left_and_a_device_is_over_its_budget() -> None:
    seen: list[Any] = []
    one, other = array(KIB), raw(KIB, "sim:1")
    host = backend(settle=lambda: seen.append((one.memory.holds, sys.exc_info()[0])))

    def kernel(*_: Any) -> None:
        host.execute(lambda *_: None, [one])
        assert seen == [], "not while a launch runs"

    host.execute(kernel, [one])
    assert seen == [], "there is no budget"
    with tack_memory.memory_budget(KIB, DEVICE):
        host.execute(kernel, [one])
        assert seen == [], "it is not passed"
    with tack_memory.memory_budget(1, DEVICE):
        host.execute(kernel, [other])
        host.execute(lambda *_: None, [])
        host.execute(kernel, [other, one])
        assert seen == [({}, None)]
        del seen[:]
        with pytest.raises(KeyError):
            host.execute(lambda _: {}["missing"], [one])
        assert seen == [({}, None)]


def test_what_settle_spills_is_spilled_right_after_the_launch() -> None:
    one = array(KIB, fill=3)
    host = backend(settle=lambda: _fast.set_memory_budget(1, DEVICE))
    with tack_memory.memory_budget(1, DEVICE):
        assert host.execute(lambda a: int(a._buffer._data[0]), [one]) == 3
        assert one.memory.state == "spilled"


def test_errors_of_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: shown.append(type(error.exc_value)))
    one = array(KIB)

    def fails() -> None:
        raise ValueError

    with tack_memory.memory_budget(1, DEVICE):
        assert backend(settle=fails).execute(lambda _: "done", [one]) == "done"
        assert shown == [ValueError]
        with pytest.raises(KeyboardInterrupt):
            backend(settle=lambda: signal.raise_signal(signal.SIGINT)).execute(lambda _: "done", [one])
    assert shown == [ValueError] and free_to_move(one)
