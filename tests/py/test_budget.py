"""Budgets: soft and strict, lowering, percentages, restoring, and where nothing is ever spilled."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from support import KIB, MIB, contents, filled, how_of, pattern, run_python

import tack_memory
from tack_memory import DeviceMemoryError, get_memory_budget, memory_budget, memory_info, set_memory_budget
from tack_memory._control import call
from tack_memory._native import _fast


def test_setting_returns_the_one_before(any_device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the CPU's
        assert get_memory_budget(any_device) is None
        assert set_memory_budget(64 * MIB, any_device) is None
        assert get_memory_budget(any_device) == 64 * MIB
        assert set_memory_budget("32 MiB", device=any_device, strict=True) == 64 * MIB
        assert (memory_info(any_device).budget, memory_info(any_device).strict) == (32 * MIB, True)
        assert set_memory_budget(None, any_device) == 32 * MIB
        assert get_memory_budget(any_device) is None


VALUES: list[tuple[Any, Any]] = [
    (None, None),
    ("1.5MiB", 3 * MIB // 2),
    ("50%", "half"),
    ("100%", "all"),
    ("150%", ValueError),
    ("100.1%", ValueError),
    (1, 1),
    (2**63 - 1, 2**63 - 1),
    ("8388607 TiB", 8388607 * 2**40),
    (0, ValueError),
    ("0", ValueError),
    ("0%", ValueError),
    ("0 GiB", ValueError),
    (-1, ValueError),
    ("-1GB", ValueError),
    (2**63, ValueError),
    ("2G", ValueError),
    ("much", ValueError),
    ("", ValueError),
    (0.8, TypeError),
    (8e9, TypeError),
    (True, TypeError),
    (False, TypeError),
    (float("nan"), TypeError),
    (b"8 GB", TypeError),
    ([1], TypeError),
]


@pytest.mark.parametrize(("size", "expected"), VALUES, ids=lambda value: repr(value)[:24])
def test_a_table_of_values(device: str, size: Any, expected: Any) -> None:
    total = memory_info(device).device_total or 0
    if isinstance(expected, type):
        set_memory_budget(7 * MIB, device)
        with pytest.raises(expected):
            set_memory_budget(size, device)
        assert set_memory_budget(None, device) == 7 * MIB, "a refused budget changes nothing"
        return
    set_memory_budget(size, device)
    found = set_memory_budget(None, device)
    assert found == {"half": total // 2, "all": total}.get(expected, expected)


def test_a_budget_of_zero_says_what_to_write() -> None:
    with pytest.raises(ValueError, match="None is: no budget"):
        set_memory_budget(0, "sim:0")


def test_a_wrong_strict_is_refused() -> None:
    with pytest.raises(TypeError, match="strict must be True or False"):
        set_memory_budget(MIB, "sim:0", strict="yes")  # type: ignore[arg-type]


def test_under_the_budget_nothing_is_spilled(device: str, budget: int) -> None:
    before = memory_info(device).spill_count
    buffers = [tack_memory.allocate(MIB, device) for _ in range(8)]
    assert memory_info(device).spill_count == before and memory_info(device).in_use == budget
    assert not any(buffer.is_spilled for buffer in buffers)


def test_over_it_the_least_recently_used_go_first(device: str, budget: int) -> None:
    buffers = [filled(MIB, device, seed) for seed in range(8)]
    assert buffers[0].device_ptr and buffers[2].copy_to_host(nbytes=1)  # uses: now 1 is the oldest, then 3
    extra = tack_memory.allocate(2 * MIB, device)
    assert [place for place, buffer in enumerate(buffers) if buffer.is_spilled] == [1, 3]
    assert memory_info(device).in_use == budget and not extra.is_spilled
    assert [contents(buffer) == pattern(MIB, seed) for seed, buffer in enumerate(buffers)] == [True] * 8


def test_what_is_spilled_is_less_than_what_was_needed_and_one_array(device: str, budget: int) -> None:
    sizes = [KIB * (100 + 37 * place % 900) for place in range(20)]
    buffers = [tack_memory.allocate(size, device) for size in sizes]
    before = memory_info(device)
    needed = 3 * MIB - (budget - before.in_use)
    extra = tack_memory.allocate(3 * MIB, device)
    after = memory_info(device)
    assert needed <= after.spilled_bytes - before.spilled_bytes < needed + max(sizes)
    assert after.in_use <= budget and after.over_budget_count == before.over_budget_count
    assert len(buffers) == 20 and extra.nbytes == 3 * MIB


def test_lowering_it_spills_at_once_what_it_can(device: str) -> None:
    buffers = [filled(MIB, device, seed) for seed in range(6)]
    with buffers[0].hold("kept"):
        with memory_budget(2 * MIB, device):
            info = memory_info(device)
            assert info.in_use <= 2 * MIB and not buffers[0].is_spilled
        with memory_budget(MIB // 2, device):
            info = memory_info(device)
            assert info.in_use == MIB and info.over_budget == MIB // 2, "what is held stays"
    assert [contents(buffer) == pattern(MIB, seed) for seed, buffer in enumerate(buffers)] == [True] * 6


def test_a_soft_one_may_be_passed_by_one_array_larger_than_all_of_it(device: str) -> None:
    with memory_budget(MIB, device):
        before = memory_info(device).over_budget_count
        large = filled(3 * MIB, device)
        info = memory_info(device)
        assert info.over_budget == 2 * MIB and info.over_budget_count == before + 1
        assert contents(large) == pattern(3 * MIB)
    assert memory_info(device).over_budget == 0


def test_a_soft_one_may_be_passed_by_what_cannot_be_spilled(device: str) -> None:
    fixed = tack_memory.allocate(2 * MIB, device, movable=False, reason="MPI")
    with memory_budget(3 * MIB, device):
        second = tack_memory.allocate(2 * MIB, device)
        info = memory_info(device)
        assert info.in_use == 4 * MIB and info.over_budget == MIB and info.peak >= 4 * MIB
    assert not fixed.is_spilled and not second.is_spilled


def test_a_soft_one_may_be_passed_by_what_host_memory_has_no_place_for(device: str) -> None:
    """The device has room, and what has no place for its copy cannot be spilled. Only a full device, or a strict budget, refuses."""
    tack_memory.empty_host_pool()
    first = filled(4 * MIB, device, 1)
    fixed = memory_info(device)
    with memory_budget(5 * MIB, device):
        call("SetHostLimit", MIB)
        try:
            second = filled(4 * MIB, device, 2)
            info = memory_info(device)
            assert not first.is_spilled and info.in_use == fixed.in_use + 4 * MIB and info.over_budget > 0
            assert info.over_budget_count == fixed.over_budget_count + 1
            with tack_memory.launch(first, second):
                pass
            set_memory_budget(None, device)
            set_memory_budget(8 * MIB, device, strict=True)
            with pytest.raises(DeviceMemoryError) as caught:
                tack_memory.allocate(MIB, device)
            assert caught.value.reason == "host"
        finally:
            call("SetHostLimit", -1)
        third = tack_memory.allocate(MIB, device)
        assert first.is_spilled and memory_info(device).in_use <= 8 * MIB, "now there is a place"
        assert [contents(buffer) == pattern(4 * MIB, seed) for seed, buffer in ((1, first), (2, second))] == [True] * 2 and third.nbytes == MIB


def test_a_strict_one_is_never_passed(device: str) -> None:
    with memory_budget(4 * MIB, device, strict=True):
        before = memory_info(device).over_budget_count
        first = filled(3 * MIB, device, 1)
        second = filled(3 * MIB, device, 2)
        assert first.is_spilled and memory_info(device).in_use == 3 * MIB
        with second.hold("kept"):
            for work in (lambda: tack_memory.allocate(2 * MIB, device), first.restore, lambda: first.device_ptr, lambda: enter(first)):
                with pytest.raises(DeviceMemoryError) as caught:
                    work()
                assert caught.value.reason == "budget" and caught.value.budget == 4 * MIB
                assert first.is_spilled and not second.is_spilled and second.holds == {"hold: kept": 1}
        with pytest.raises(DeviceMemoryError) as caught:
            tack_memory.allocate(4 * MIB + 1, device)
        assert caught.value.reason == "too_large"
        assert not second.is_spilled, "refused before anything moves"
        assert memory_info(device).over_budget_count == before
        assert contents(first) == pattern(3 * MIB, 1) and contents(second) == pattern(3 * MIB, 2)


def enter(*buffers: tack_memory.Buffer) -> None:
    with tack_memory.launch(*buffers):
        pass


def test_a_strict_one_refuses_to_adopt_and_the_caller_keeps_the_memory(device: str) -> None:
    how, sizes = how_of(device), {"budget": 2 * MIB, "too_large": 4 * MIB + 1}
    theirs = {reason: _fast.disown(filled(nbytes, device, 7)) for reason, nbytes in sizes.items()}
    with memory_budget(4 * MIB, device, strict=True):
        mine = filled(3 * MIB, device)

        def refused(reason: str) -> None:
            before = memory_info(device)
            with pytest.raises(DeviceMemoryError) as caught:
                tack_memory.adopt(theirs[reason], sizes[reason], device, how=how)
            assert (caught.value.reason, caught.value.requested, caught.value.budget) == (reason, sizes[reason], 4 * MIB)
            after = memory_info(device)
            assert (after.in_use, after.spilled, after.reserved, after.pending_free) == (before.in_use, before.spilled, 0, before.pending_free)
            assert (after.spill_count, after.over_budget_count) == (before.spill_count, before.over_budget_count)
            assert after.driver_allocated == before.driver_allocated
            wrapped = tack_memory.wrap(theirs[reason], sizes[reason], device, owner=theirs)
            assert contents(wrapped) == pattern(sizes[reason], 7), "it is the caller's, and as it was"

        refused("too_large")
        assert not mine.is_spilled, "refused before anything moves"
        with mine.hold("kept"):
            refused("budget")
        assert mine.holds == {} and not mine.is_spilled
        adopted = tack_memory.adopt(theirs["budget"], 2 * MIB, device, how=how)
        assert mine.is_spilled and memory_info(device).in_use == 2 * MIB and contents(adopted) == pattern(2 * MIB, 7)
        assert contents(mine) == pattern(3 * MIB)
    tack_memory.adopt(theirs["too_large"], sizes["too_large"], device, how=how).free()


def test_a_launch_that_a_strict_one_refuses_holds_nothing(device: str) -> None:
    with memory_budget(4 * MIB, device, strict=True):
        buffers = [filled(2 * MIB, device, seed) for seed in range(3)]
        with pytest.raises(DeviceMemoryError):
            enter(*buffers)
        assert all(buffer.holds == {} for buffer in buffers)
        enter(*buffers[:2])
        assert [contents(buffer) == pattern(2 * MIB, seed) for seed, buffer in enumerate(buffers)] == [True] * 3


def test_lowering_it_never_blocks_frees(device: str) -> None:
    buffers = [tack_memory.allocate(MIB, device, movable=False, reason="pinned for a test") for _ in range(4)]
    with memory_budget(MIB, device):
        while buffers:
            buffers.pop().free()
        assert memory_info(device).in_use == 0


def test_it_covers_temporaries_inside_one_operation(device: str, budget: int) -> None:
    tack_memory.reset_peak_memory(device)
    source = filled(3 * MIB, device)
    for _ in range(4):  # an operation with two temporaries, each as large as its argument
        first, second = tack_memory.allocate(3 * MIB, device), tack_memory.allocate(2 * MIB, device)
        with tack_memory.launch(source, first, second):
            pass
        first.copy_from(source)
        source = first
    assert memory_info(device).peak <= budget
    assert contents(source) == pattern(3 * MIB)


def test_a_block_restores_size_and_strictness(device: str) -> None:
    set_memory_budget(6 * MIB, device, strict=True)
    with memory_budget("2 MiB", device) as size:
        assert size == 2 * MIB and memory_info(device).strict is False
        with memory_budget(None, device) as inner:
            assert inner is None and get_memory_budget(device) is None
        assert get_memory_budget(device) == 2 * MIB
    assert (get_memory_budget(device), memory_info(device).strict) == (6 * MIB, True)
    with pytest.raises(KeyError), memory_budget(MIB, device):
        raise KeyError
    assert (set_memory_budget(None, device), memory_info(device).strict) == (6 * MIB, False)


def test_a_refused_size_leaves_the_block_unentered(device: str) -> None:
    block = memory_budget("2G", device)
    with pytest.raises(ValueError, match="two ways"):
        block.__enter__()
    with pytest.raises(RuntimeError, match="not entered"):
        block.__exit__(None, None, None)
    assert get_memory_budget(device) is None


def test_entering_a_block_twice_is_an_error(device: str) -> None:
    block = memory_budget(MIB, device)
    with block, pytest.raises(RuntimeError, match="already entered"):
        block.__enter__()
    assert get_memory_budget(device) is None


def test_each_device_has_its_own() -> None:
    with memory_budget(MIB, "sim:0"):
        buffers = [tack_memory.allocate(MIB, "sim:1") for _ in range(3)]
        assert get_memory_budget("sim:1") is None and not any(buffer.is_spilled for buffer in buffers)


def test_on_the_cpu_it_is_accepted_counted_and_warns_once() -> None:
    done = run_python(
        """
        import warnings
        import tack_memory as tm
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            tm.set_memory_budget("1 MiB", "cpu")
            with tm.memory_budget("2 MiB", "cpu"):
                buffer = tm.allocate("3 MiB", "cpu")
                info = tm.memory_info("cpu")
            tm.set_memory_budget(None, "cpu")
        print(len(told), "nothing is ever spilled" in str(told[0].message), told[0].filename)
        print(info.budget, info.over_budget, info.over_budget_count, info.spilled, buffer.is_spilled)
        """
    )
    assert done.stdout.splitlines() == ["1 True <string>", f"{2 * MIB} {MIB} 1 0 False"], done.stderr


@pytest.mark.parametrize(
    "how",
    [
        'tm.set_memory_budget("1 MiB", "cpu")',
        'with tm.memory_budget("1 MiB", "cpu"): pass',
        'host.set_memory_budget("1 MiB", "cpu")',
        'with host.memory_budget("1 MiB", "cpu"): pass',
    ],
)
def test_its_warning_is_at_the_callers_line(how: str) -> None:
    """Whatever functions of this package lie between."""
    done = run_python(
        f"""
        import warnings
        import tack_memory as tm
        from types import SimpleNamespace
        from tack_memory import _hosts
        from tack_memory.hosts._names import functions
        plugged = SimpleNamespace(name="plugged", memory_error=None, current_device=lambda: "cpu", device_of=lambda asked: "cpu")
        _hosts.register(plugged)
        host = SimpleNamespace(**functions(plugged))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            code = compile({how!r}, "the program", "exec")
            exec(code)
        print([(one.filename, one.lineno, one.category.__name__) for one in told])
        """
    )
    assert done.stdout.strip() == "[('the program', 1, 'UserWarning')]", done.stdout + done.stderr


def test_what_the_block_raised_is_what_its_caller_gets(device: str) -> None:
    """Going back to a lower budget has to spill, and host memory is used up."""
    tack_memory.empty_host_pool()
    kept = []
    set_memory_budget(MIB, device)
    try:
        with pytest.raises(KeyError, match="of the block") as caught, memory_budget(8 * MIB, device):
            kept.append(filled(4 * MIB, device))
            call("SetHostLimit", KIB)
            raise KeyError("of the block")
        (note,) = caught.value.__notes__
        assert "going back to the budget from before" in note and "DeviceMemoryError" in note and device in note
        assert get_memory_budget(device) == MIB
        call("SetHostLimit", -1)
        with pytest.raises(DeviceMemoryError) as alone, memory_budget(8 * MIB, device):
            kept.append(filled(4 * MIB, device))
            call("SetHostLimit", KIB)
            tack_memory.empty_host_pool()
        assert alone.value.reason == "host" and get_memory_budget(device) == MIB
    finally:
        call("SetHostLimit", -1)
        set_memory_budget(None, device)
    assert len(kept) == 2


def test_a_budget_that_is_not_needed_changes_no_result(device: str) -> None:
    def work() -> list[bytes]:
        buffers = [filled(MIB, device, seed) for seed in range(6)]
        for one, other in zip(buffers, buffers[3:], strict=False):
            one.copy_from(other, 0, KIB, 64 * KIB)
        return [contents(buffer) for buffer in buffers]

    plain = work()
    for size in (2 * MIB, 3 * MIB, 64 * MIB):
        with memory_budget(size, device):
            assert work() == plain


def test_ctrl_c_at_the_end_of_entering_leaves_no_budget(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the signal between the last call of __enter__ and the block, nobody would have brought the budget from before back."""
    real = tack_memory._budget._fast.get_memory_budget
    calls = []

    def interrupted(name: str) -> int | None:
        calls.append(name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(name)

    monkeypatch.setattr(tack_memory._budget._fast, "get_memory_budget", interrupted)
    with pytest.raises(KeyboardInterrupt), tack_memory.memory_budget("3 MiB", device):
        raise AssertionError("not entered")
    assert real(device) is None


def test_nothing_is_a_budget_inside_the_package(device: str) -> None:
    """A simulated device may be given one of 0 bytes, which everything that is not in use is spilled under; the public function refuses it."""
    assert _fast.set_memory_budget(0, device) is None
    try:
        assert (get_memory_budget(device), memory_info(device).budget) == (0, 0)
        first, second = filled(MIB, device, 1), filled(MIB, device, 2)
        assert [first.state, second.state] == ["spilled", "resident"]
        with tack_memory.launch(first, second):
            assert [first.state, second.state] == ["resident", "resident"]
            assert memory_info(device).over_budget == 2 * MIB and "budget 0 B" in repr(memory_info(device))
        third = tack_memory.allocate(MIB, device)
        assert [first.state, second.state, third.state] == ["spilled", "spilled", "resident"]
        with memory_budget(8 * MIB, device):
            first.restore()
            assert third.state == "resident"
        assert get_memory_budget(device) == 0 and third.state == "spilled"
        assert contents(first) == pattern(MIB, 1) and contents(second) == pattern(MIB, 2)
    finally:
        assert _fast.set_memory_budget(None, device) == 0
