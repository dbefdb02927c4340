"""Peak scopes: exact, independent, in any order and any thread; and as decorators."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from support import KIB, MIB, filled, run_python

import tack_memory
from tack_memory import MemoryPeak, memory_peak
from tack_memory._native import _fast


def churn(nbytes: int, device: str) -> None:
    tack_memory.allocate(nbytes, device).free()


def test_a_scope_reports_the_most_that_was_in_use(any_device: str) -> None:
    kept = tack_memory.allocate(MIB, any_device)
    with memory_peak(any_device) as peak:
        assert (peak.bytes, peak.start, peak.end, peak.delta, peak.own) == (MIB, MIB, None, 0, 0)
        churn(2 * MIB, any_device)
        assert peak.bytes == 3 * MIB, "it can be read while it is open"
        inside = tack_memory.allocate(MIB // 2, any_device)
    assert (peak.bytes, peak.start, peak.end) == (3 * MIB, MIB, MIB + MIB // 2)
    assert (peak.delta, peak.own, peak.footprint) == (2 * MIB, 2 * MIB, 3 * MIB)
    assert peak.by_device[any_device] == 3 * MIB and peak.device == any_device
    assert peak.seconds > 0 and (peak.spilled_bytes, peak.restored_bytes) == (0, 0)
    assert kept.nbytes + inside.nbytes == peak.end


def test_it_is_frozen_on_exit(any_device: str) -> None:
    with memory_peak(any_device) as peak:
        churn(MIB, any_device)
    before = (peak.bytes, peak.end, peak.own, peak.footprint, peak.seconds)
    with memory_peak(any_device):
        churn(4 * MIB, any_device)
    assert (peak.bytes, peak.end, peak.own, peak.footprint, peak.seconds) == before


def test_an_outer_scope_holds_at_least_what_an_inner_one_held(any_device: str) -> None:
    with memory_peak(any_device) as outer:
        churn(5 * MIB, any_device)  # the outer one peaks before the inner one opens
        with memory_peak(any_device) as inner:
            churn(2 * MIB, any_device)
            with memory_peak(any_device) as innermost:
                churn(3 * MIB, any_device)
    assert (outer.bytes, inner.bytes, innermost.bytes) == (5 * MIB, 3 * MIB, 3 * MIB)


def test_overlapping_scopes_close_in_any_order(any_device: str) -> None:
    first, second = memory_peak(any_device), memory_peak(any_device)
    first.__enter__()
    churn(MIB, any_device)
    second.__enter__()
    churn(2 * MIB, any_device)
    first.__exit__(None, None, None)
    churn(3 * MIB, any_device)
    second.__exit__(None, None, None)
    assert (first.bytes, second.bytes) == (2 * MIB, 3 * MIB)


def test_a_scope_that_opens_and_closes_in_different_threads(any_device: str) -> None:
    peak = memory_peak(any_device)
    thread = threading.Thread(target=peak.__enter__)
    thread.start()
    thread.join()
    churn(MIB, any_device)
    peak.__exit__(None, None, None)
    assert peak.bytes == MIB


def test_any_number_of_scopes_in_any_order_report_their_own_interval(any_device: str) -> None:
    """Against the plain model: after each step, the highest in_use since each scope was opened."""
    seed = 387
    random_ = random.Random(seed)
    live: list[tack_memory.Buffer] = []
    open_: dict[MemoryPeak, int] = {}
    closed: list[tuple[MemoryPeak, int]] = []
    in_use = 0
    for _ in range(2000):
        action = random_.choice(["open", "close", "allocate", "allocate", "free"])
        if action == "open" and len(open_) < 30:
            open_[memory_peak(any_device).__enter__()] = in_use
        elif action == "close" and open_:
            peak = random_.choice(list(open_))
            peak.__exit__(None, None, None)
            closed.append((peak, open_.pop(peak)))
        elif action == "allocate":
            live.append(tack_memory.allocate(random_.randrange(1, 64 * KIB), any_device))
            in_use += live[-1].nbytes
            open_ = {peak: max(highest, in_use) for peak, highest in open_.items()}
        elif live:
            in_use -= live[0].nbytes
            live.pop(0).free()
    for peak, highest in [*closed, *open_.items()]:
        assert peak.bytes == highest, f"seed {seed}"
    for peak in open_:
        peak.__exit__(None, None, None)
    assert len(closed) > 100


def test_a_device_that_is_opened_in_the_interval_counts_too() -> None:
    done = run_python(
        """
        import tack_memory as tm
        outer, closed = tm.memory_peak("cpu").__enter__(), tm.memory_peak("cpu")
        with closed, tm.memory_peak("cpu") as inner:
            pass
        kept = [tm.allocate(3000, "sim:0")]
        with tm.memory_peak("sim:0") as middle:
            tm.allocate(2000, "sim:0").free()
            tm.allocate(500, "sim:1")
        kept.clear()
        print(outer.by_device, middle.by_device, closed.by_device, inner.by_device, sep=chr(10))
        outer.__exit__(None, None, None)
        tm.allocate(9000, "sim:0").free()
        print(outer.by_device)
        """,
        TACK_MEMORY_SIM="1 MiB,1 MiB",
    )
    assert done.stdout.splitlines() == [
        "{'cpu': 0, 'sim:1': 500, 'sim:0': 5000}", "{'cpu': 0, 'sim:0': 5000, 'sim:1': 500}", "{'cpu': 0}", "{'cpu': 0}",
        "{'cpu': 0, 'sim:1': 500, 'sim:0': 5000}",
    ], done.stdout + done.stderr  # fmt: skip


def test_what_was_freed_again_inside_counts(any_device: str) -> None:
    before = tack_memory.memory_info(any_device).in_use
    with memory_peak(any_device) as peak:
        buffers = [tack_memory.allocate(4 * MIB, any_device) for _ in range(4)]
        buffers.clear()
    assert peak.delta == 16 * MIB
    assert tack_memory.memory_info(any_device).in_use == before == peak.end


def test_own_is_what_the_block_itself_needs_whatever_was_there(device: str) -> None:
    older = tack_memory.allocate(4 * MIB, device)
    with memory_peak(device) as peak:
        mine = tack_memory.allocate(2 * MIB, device)
        mine.spill()  # spilled, and alive
        older.free()  # not mine: own does not fall
        another = tack_memory.allocate(MIB, device)
    assert peak.own == 3 * MIB == mine.nbytes + another.nbytes
    assert (peak.bytes, peak.footprint, peak.spilled_bytes, peak.restored_bytes) == (6 * MIB, 6 * MIB, 2 * MIB, 0)


def test_the_footprint_is_the_peak_there_would_be_without_a_budget(device: str) -> None:
    def work() -> None:
        buffers = [tack_memory.allocate(MIB, device) for _ in range(12)]
        assert len(buffers) == 12

    with memory_peak(device) as free_:
        work()
    with tack_memory.memory_budget(4 * MIB, device), memory_peak(device) as tight:
        work()
    assert free_.bytes == free_.footprint == tight.footprint == 12 * MIB
    assert tight.bytes <= 4 * MIB and tight.own == 12 * MIB
    assert tight.spilled_bytes == 8 * MIB


def test_a_restore_counts(device: str) -> None:
    buffer = filled(MIB, device)
    buffer.spill()
    with memory_peak(device) as peak:
        buffer.restore()
    assert (peak.start, peak.bytes, peak.end, peak.delta) == (0, MIB, MIB, MIB)
    assert (peak.own, peak.restored_bytes, peak.footprint) == (0, MIB, MIB)


def test_an_exception_passes_and_the_figures_stay(any_device: str) -> None:
    peak = memory_peak(any_device)
    with pytest.raises(KeyError), peak:
        churn(MIB, any_device)
        raise KeyError("passes")
    assert peak.bytes == MIB and peak.end == 0


def test_wrong_use_is_an_error_and_leaves_the_books_intact(any_device: str) -> None:
    peak = memory_peak(any_device)
    with pytest.raises(RuntimeError):
        peak.__exit__(None, None, None)
    with peak:
        with pytest.raises(RuntimeError):
            peak.__enter__()
        churn(MIB, any_device)
    with pytest.raises(RuntimeError):
        peak.__exit__(None, None, None)
    with pytest.raises(RuntimeError):
        peak.__enter__()
    assert peak.bytes == MIB


@pytest.mark.parametrize("name", ["bytes", "start", "delta", "footprint", "own", "seconds", "spilled_bytes", "restored_bytes", "by_device"])
def test_a_scope_that_was_never_entered_has_no_figures(any_device: str, name: str) -> None:
    with pytest.raises((RuntimeError, AttributeError)):
        getattr(memory_peak(any_device), name)


def test_a_scope_that_is_dropped_closes_itself(any_device: str) -> None:
    before = _fast.still_open()["peak scopes"]
    peaks = [memory_peak(any_device).__enter__() for _ in range(3)]
    assert _fast.still_open()["peak scopes"] == before + 3
    del peaks[1]
    gc.collect()
    assert _fast.still_open()["peak scopes"] == before + 2
    churn(MIB, any_device)
    assert [peak.bytes for peak in peaks] == [MIB, MIB], "those beside it in the list go on"
    del peaks
    gc.collect()
    assert _fast.still_open()["peak scopes"] == before


def test_what_is_asked_of_it_is_looked_up_when_it_is_entered() -> None:
    peak = memory_peak("sim:77")  # at the top of a module no driver is opened
    with pytest.raises(ValueError, match="sim:77"):
        peak.__enter__()


def test_on_exit_is_called_with_the_scope_once(any_device: str) -> None:
    ended: list[MemoryPeak] = []
    with memory_peak(any_device, "work", ended.append) as peak:
        assert ended == []
    assert ended == [peak] and peak.label == "work"


def test_an_error_of_on_exit_does_not_leave_the_scope(any_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", seen.append)

    def fails(_: MemoryPeak) -> None:
        raise LookupError("of the callback")

    with memory_peak(any_device, on_exit=fails) as peak:
        churn(MIB, any_device)
    assert peak.bytes == MIB
    assert [type(found.exc_value) for found in seen] == [LookupError]
    with pytest.raises(KeyError), memory_peak(any_device, on_exit=fails):
        raise KeyError("of the block")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_in_on_exit_goes_on_to_the_program(any_device: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", seen.append)

    def interrupted(_: MemoryPeak) -> None:
        raise error

    with pytest.raises(error), memory_peak(any_device, on_exit=interrupted) as peak:
        churn(MIB, any_device)
    assert peak.bytes == MIB and peak.end == 0 and seen == []
    with pytest.raises(error) as caught, memory_peak(any_device, on_exit=interrupted):
        raise KeyError("of the block")
    assert isinstance(caught.value.__context__, KeyError)


def test_its_repr_tells_what_it_found(any_device: str) -> None:
    peak = memory_peak(any_device, "work")
    assert repr(peak) == "<MemoryPeak 'work': not entered>"
    with peak:
        churn(MIB, any_device)
        assert "open" in repr(peak)
    assert f"'work' {any_device}: 1 MiB" in repr(peak)


def test_64_threads_racing_find_at_least_every_quiescent_sum(device: str) -> None:
    barrier = threading.Barrier(64)
    sums: list[int] = []

    def work() -> None:
        for _ in range(5):
            barrier.wait()
            buffer = tack_memory.allocate(64 * KIB, device)
            if barrier.wait() == 0:
                sums.append(tack_memory.memory_info(device).in_use or 0)
            barrier.wait()
            buffer.free()

    tack_memory.reset_peak_memory(device)
    with memory_peak(device) as peak:
        threads = [threading.Thread(target=work) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sums == [64 * 64 * KIB] * 5
    assert peak.bytes == 64 * 64 * KIB == tack_memory.memory_info(device).peak


def test_the_peak_is_the_same_in_100_runs_under_random_delays(steered: str, soft: Any) -> None:
    soft.set("jitter_us", 50)
    peaks = set()
    for _ in range(100):
        with memory_peak(steered) as peak:
            first = tack_memory.allocate(96 * KIB, steered)
            second = tack_memory.allocate(64 * KIB, steered)
            first.free()
            third = tack_memory.allocate(80 * KIB, steered)
            second.copy_from(third, nbytes=KIB)
            del second, third
        peaks.add((peak.bytes, peak.own, peak.end))
    assert peaks == {(160 * KIB, 160 * KIB, 0)}


# ---- as a decorator


def test_each_call_of_a_decorated_function_has_a_fresh_scope(any_device: str) -> None:
    ended: list[MemoryPeak] = []

    @memory_peak(any_device, on_exit=ended.append)
    def work(nbytes: int, *, scale: int = 1) -> int:
        """What it does."""
        churn(nbytes * scale, any_device)
        return nbytes

    assert work(KIB) == KIB and work(KIB, scale=3) == KIB
    assert [peak.bytes for peak in ended] == [KIB, 3 * KIB]
    assert work.__name__ == "work" and work.__doc__ == "What it does." and ended[0].label == work.__qualname__


def test_a_decorated_function_may_recurse_and_fail(any_device: str) -> None:
    ended: list[int] = []

    @memory_peak(any_device, on_exit=lambda peak: ended.append(peak.bytes))
    def work(depth: int) -> None:
        kept = tack_memory.allocate(KIB, any_device)
        if not depth:
            raise LookupError(kept)
        work(depth - 1)

    with pytest.raises(LookupError) as caught:
        work(3)
    assert ended == [4 * KIB] * 4
    del caught


def test_a_decorated_function_may_run_in_many_threads(any_device: str) -> None:
    ended: list[MemoryPeak] = []

    @memory_peak(any_device, on_exit=ended.append)
    def work() -> None:
        churn(KIB, any_device)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ended)) == 16 and all(peak.own >= KIB for peak in ended)


def test_the_scope_of_an_async_function_runs_until_it_ends(any_device: str) -> None:
    ended: list[MemoryPeak] = []

    @memory_peak(any_device, on_exit=ended.append)
    async def work(nbytes: int) -> int:
        kept = tack_memory.allocate(nbytes, any_device)
        await asyncio.sleep(0)
        return kept.nbytes

    async def both() -> list[int]:
        return await asyncio.gather(work(KIB), work(2 * KIB))

    coroutine = work(5)
    coroutine.close()  # never started: no scope
    assert ended == []
    assert asyncio.run(both()) == [KIB, 2 * KIB]
    assert sorted(peak.own for peak in ended) == [2 * KIB, 3 * KIB], "the first was open while the second allocated"


def test_the_scope_of_a_generator_runs_until_it_is_exhausted_or_closed(any_device: str) -> None:
    ended: list[MemoryPeak] = []

    @memory_peak(any_device, on_exit=ended.append)
    def work() -> Iterator[int]:
        kept = tack_memory.allocate(KIB, any_device)
        got = yield kept.nbytes
        try:
            yield got or 0
        except LookupError:
            yield -1
        return 7

    generator = work()
    assert ended == [] and next(generator) == KIB
    assert generator.send(5) == 5  # type: ignore[attr-defined]
    assert generator.throw(LookupError()) == -1  # type: ignore[attr-defined]
    assert ended == []
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == 7 and [peak.bytes for peak in ended] == [KIB]

    second = work()
    next(second)
    second.close()  # type: ignore[attr-defined]
    assert len(ended) == 2

    third = work()
    next(third)
    del third  # dropped
    gc.collect()
    assert len(ended) == 3


def test_the_scope_of_an_async_generator_runs_until_it_is_exhausted_or_closed(any_device: str) -> None:
    ended: list[MemoryPeak] = []

    @memory_peak(any_device, on_exit=ended.append)
    async def work() -> AsyncIterator[int]:
        kept = tack_memory.allocate(KIB, any_device)
        got = yield kept.nbytes
        try:
            yield got or 0
        except LookupError:
            yield -1

    async def use() -> None:
        generator: Any = work()
        assert await generator.__anext__() == KIB and ended == []
        assert await generator.asend(5) == 5
        assert await generator.athrow(LookupError()) == -1
        with pytest.raises(StopAsyncIteration):
            await generator.__anext__()
        assert len(ended) == 1
        closed: Any = work()
        await closed.__anext__()
        await closed.aclose()
        assert len(ended) == 2
        assert [item async for item in work()] == [KIB, 0]
        fails: Any = work()
        await fails.__anext__()
        with pytest.raises(KeyError):
            await fails.athrow(KeyError())
        assert len(ended) == 4

    asyncio.run(use())
    assert [peak.bytes for peak in ended] == [KIB] * 4


@pytest.mark.parametrize("wrong", [None, 5, "work", int, object()])
def test_only_functions_can_be_decorated(wrong: Any) -> None:
    with pytest.raises(TypeError, match="can decorate a function"):
        memory_peak("sim:0")(wrong)


def test_a_decorated_method_gets_its_instance(any_device: str) -> None:
    class Filter:
        @memory_peak(any_device)
        def run(self) -> Filter:
            return self

    one = Filter()
    assert one.run() is one
