"""What went wrong in other people's spilling, as properties that hold here. Each of the project's list has a test; PROPERTIES says where."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import KIB, MIB, SoftDriver, contents, filled, pattern, run_python

import tack_memory
from tack_memory import DeviceMemoryError, allocate, launch, memory_info
from tack_memory._control import call
from tack_memory._native import _fast

PROPERTIES = {
    "under the budget nothing is spilled": "test_budget.py::test_under_the_budget_nothing_is_spilled",
    "over it, less is spilled than what is needed and one array": "test_budget.py::test_what_is_spilled_is_less_than_what_was_needed_and_one_array",
    "a restore that fails loses nothing": "test_lessons_spilling.py::test_a_restore_that_fails_to_allocate_loses_nothing",
    "a finalizer that allocates, inside an allocation that spills": "test_lessons_spilling.py::test_a_finalizer_that_allocates_in_an_allocation_that_spills",
    "reading from the host does not spill": "test_launch_and_holds.py::test_reading_from_the_host_does_not_spill",
    "spilled counts only memory that was really freed": "test_lessons_spilling.py::test_spilled_counts_only_memory_that_was_really_freed",
    "wrapping our own pointer": "test_launch_and_holds.py::test_wrapping_a_pointer_that_we_own_gives_a_view_of_that_buffer_counted_once",
    "copying exports": "test_launch_and_holds.py::test_copying_exports_leave_the_buffer_spillable",
    "the last holder of an export": "test_launch_and_holds.py::test_an_export_lives_in_what_it_was_given_to",
    "a restore at another address": "test_buffers.py::test_a_restore_at_another_address_is_seen_by_every_later_use",
    "writes through views": "test_buffers.py::test_a_write_through_a_view_after_a_spill_and_a_restore_is_seen_in_the_base",
    "the text of an error": "test_errors.py::test_its_text_tells_what_is_exported_and_what_is_not_ours",
    "temporaries inside one operation": "test_budget.py::test_it_covers_temporaries_inside_one_operation",
    "installing twice": "hosts/test_host_install.py::test_installing_twice_changes_nothing",
    "a second layer": "hosts/test_host_install.py::test_a_second_layer_is_refused",
    "threads under a tiny budget": "test_lessons_spilling.py::test_many_threads_under_a_tiny_budget_end",
    "a restore is accounted and may spill others": "test_lessons_spilling.py::test_a_restore_is_accounted_and_may_spill_others",
    "a table of budget values": "test_budget.py::test_a_table_of_values",
    "where device memory is host memory": "test_budget.py::test_on_the_cpu_it_is_accepted_counted_and_warns_once",
    "host memory that runs out": "test_lessons_spilling.py::test_host_memory_that_runs_out_during_a_spill_leaves_the_array_on_the_device",
    "after a caught error": "test_errors.py::test_after_a_caught_error_a_smaller_allocation_works_and_the_books_are_exact",
    "arrays of a launch": "test_launch_and_holds.py::test_arrays_of_a_launch_are_never_victims",
    "freed is at least what was requested": "test_lessons_spilling.py::test_freed_is_at_least_what_was_requested_or_every_candidate_is_exhausted",
    "retries are bounded by progress": "test_lessons_spilling.py::test_retries_are_bounded_by_progress",
    "a spill right after a launch": "test_launch_and_holds.py::test_a_spill_right_after_a_launch_has_its_result",
    "invisible until fully built": "test_lessons_spilling.py::test_a_buffer_is_invisible_to_spilling_until_it_is_fully_built",
    "a write to a spilled buffer": "test_buffers.py::test_host_access_works_on_whichever_copy_is_true_and_moves_nothing",
    "size 0": "test_buffers.py::test_size_zero_is_legal_everywhere_and_never_a_victim",
    "no lock is held that another allocation needs": "test_lessons_spilling.py::test_an_allocation_that_fits_does_not_wait_for_a_long_spill",
    "nobody waits with the GIL": "test_lessons_spilling.py::test_python_goes_on_while_memory_moves",
    "fragmentation: caches first": "test_lessons_spilling.py::test_caches_are_emptied_before_anything_is_spilled",
}
"""A property -> the test that shows it."""


def test_every_property_has_its_test() -> None:
    for name, where in PROPERTIES.items():
        file, _, function = where.partition("::")
        assert re.search(rf"^def {function}\(", (Path(__file__).parent / file).read_text(), re.M), f"{name}: there is no {where}"


def in_thread(function: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, failures


def fill_up(device: str) -> list[tack_memory.Buffer]:
    """Takes the whole device, all but less than 1 MiB, by memory that cannot move."""
    taken: list[tack_memory.Buffer] = []
    size = memory_info(device).device_total or 0
    while size >= MIB:
        try:
            taken.append(allocate(size, device, zero=False, movable=False, reason="in the way"))
        except DeviceMemoryError:
            size //= 2
    return taken


def test_a_restore_that_fails_to_allocate_loses_nothing(device: str) -> None:
    buffer = filled(2 * MIB, device)
    buffer.spill()
    taken = fill_up(device)
    before = memory_info(device)
    for use in (buffer.restore, lambda: buffer.device_ptr, lambda: launch(buffer).__enter__(), lambda: buffer.hold("a hold").__enter__()):
        with pytest.raises(DeviceMemoryError) as caught:
            use()
        assert (caught.value.reason, caught.value.requested) == ("device", 2 * MIB)
        assert caught.value.unspillable == {"unmovable: in the way": sum(block.nbytes for block in taken)}
        after = memory_info(device)
        assert buffer.is_spilled and buffer.holds == {}
        assert (after.in_use, after.spilled, after.reserved, after.restore_count) == (before.in_use, before.spilled, 0, before.restore_count)
        assert contents(buffer) == pattern(2 * MIB)
    taken.clear()
    buffer.restore()
    assert not buffer.is_spilled and contents(buffer) == pattern(2 * MIB)


COPIES_IN = {"sim:0": "cuMemcpyHtoDAsync_v2", "sim-hip:0": "hipMemcpyAsync", "sim-level_zero:0": "zeCommandListAppendMemoryCopy"}
"""The call that copies a host copy back."""


def test_a_restore_whose_copy_fails_loses_nothing(steered: str, soft: SoftDriver) -> None:
    buffer = filled(MIB, steered)
    buffer.spill()
    before, calls = memory_info(steered), soft.calls(COPIES_IN[steered])
    soft.fail(COPIES_IN[steered], 1, 1)
    with pytest.raises(RuntimeError, match=COPIES_IN[steered]):
        buffer.restore()
    assert soft.calls(COPIES_IN[steered]) == calls + 1, "that call, and it is not made again"
    after = memory_info(steered)
    assert buffer.is_spilled and (after.in_use, after.spilled, after.reserved) == (before.in_use, before.spilled, 0)
    assert contents(buffer) == pattern(MIB)
    buffer.restore()
    assert not buffer.is_spilled and contents(buffer) == pattern(MIB)


def test_a_restore_that_never_fits_loses_nothing(device: str) -> None:
    buffer = filled(2 * MIB, device)
    buffer.spill()
    with tack_memory.memory_budget(3 * MIB, device, strict=True):
        blocker = allocate(2 * MIB, device)
        with blocker.hold("in the way"), pytest.raises(DeviceMemoryError) as caught:
            buffer.restore()
        assert caught.value.reason == "budget" and buffer.is_spilled and contents(buffer) == pattern(2 * MIB)
        buffer.restore()
        assert not buffer.is_spilled and blocker.is_spilled


def test_a_finalizer_that_allocates_in_an_allocation_that_spills(device: str) -> None:
    made: list[tack_memory.Buffer] = []

    class Node:
        """In a cycle, so that only the garbage collector finds it; it allocates when it dies."""

        def __init__(self) -> None:
            self.buffer, self.me = allocate(256 * KIB, device), self

        def __del__(self) -> None:
            made.append(allocate(64 * KIB, device))

    gc.collect()
    gc.freeze()  # each spill collects garbage first: quick where it need not look at all that the test run has made

    def work() -> None:
        with tack_memory.memory_budget(2 * MIB, device):
            for _ in range(60):
                Node()
                kept = [filled(512 * KIB, device, seed) for seed in range(3)]
                assert [contents(buffer) for buffer in kept] == [pattern(512 * KIB, seed) for seed in range(3)]
            gc.collect()

    thread, failures = in_thread(work)
    thread.join(60)
    gc.unfreeze()
    assert not thread.is_alive(), "an allocation inside a collection waits for ever"
    assert failures == [] and len(made) == 60
    made.clear()


def test_dropped_cycles_are_collected_before_anything_is_copied_out(device: str) -> None:
    """In a process of its own: how soon garbage is collected again depends on how long it took before, here in a process with all of pytest in it."""
    done = run_python(
        """
        import gc, sys
        import tack_memory as tm
        from support import MIB, filled

        device = sys.argv[1]

        class Node:
            def __init__(self):
                self.buffer, self.me = tm.allocate(2 * MIB, device), self

        gc.disable()
        with tm.memory_budget(4 * MIB, device):
            kept = filled(MIB, device)
            Node()  # 2 MiB of garbage
            more = tm.allocate(2 * MIB, device)
            assert tm.memory_info(device).spill_count == 0, "garbage is collected, not spilled"
            assert not kept.is_spilled and not more.is_spilled
        """,
        device,
    )
    assert done.returncode == 0, done.stderr


def test_a_small_budget_does_not_collect_all_the_time(device: str) -> None:
    """A program's own tests run under a budget of next to nothing: a collection for every few allocations would be most of their time."""
    done = run_python(
        """
        import gc, sys
        import tack_memory as tm
        from support import KIB, MIB

        device, collections = sys.argv[1], []
        gc.disable()
        gc.callbacks.append(lambda phase, info: phase == "start" and collections.append(phase))
        with tm.memory_budget(64 * KIB, device):
            kept = [tm.allocate(16 * KIB, device) for _ in range(8)]
            assert len(collections) == 1, "before the first spill"
            for place in range(192):
                kept[place % 8] = tm.allocate(16 * KIB, device)
            assert tm.memory_info(device).spill_count > 100 and len(collections) == 1, collections
        """,
        device,
    )
    assert done.returncode == 0, done.stderr


def test_spilled_counts_only_memory_that_was_really_freed(device: str) -> None:
    movable, held = filled(MIB, device), filled(MIB, device)
    fixed = allocate(MIB, device, movable=False)
    before = memory_info(device)
    with held.hold("kept"):
        assert tack_memory.spill(movable, held, fixed, movable) == MIB
    after = memory_info(device)
    assert after.spilled_bytes - before.spilled_bytes == MIB == after.spilled
    assert before.in_use - after.in_use == MIB
    tack_memory.synchronize(device)  # where frees are deferred, the memory is back by then
    after = memory_info(device)
    assert before.device_free is not None and after.available - before.available >= MIB


def test_many_threads_under_a_tiny_budget_end(device: str) -> None:
    def work(seed: int) -> None:
        mine = [filled(96 * KIB, device, seed + place) for place in range(3)]
        for step in range(40):
            place = step % 3
            with launch(*mine[: place + 1]):
                pass
            assert contents(mine[place]) == pattern(96 * KIB, seed + place)
            mine[place] = filled(96 * KIB, device, seed + place)

    gc.collect()
    gc.freeze()  # see above
    try:
        with tack_memory.memory_budget(128 * KIB, device):
            threads = [in_thread(lambda seed=seed: work(seed)) for seed in range(12)]  # type: ignore[misc]
            for thread, failures in threads:
                thread.join(100)
                assert not thread.is_alive() and failures == []
    finally:
        gc.unfreeze()


def test_a_restore_is_accounted_and_may_spill_others(device: str) -> None:
    buffers = [filled(MIB, device, seed) for seed in range(4)]
    buffers[0].spill()
    with tack_memory.memory_budget(3 * MIB, device):
        before = memory_info(device)
        buffers[0].restore()
        after = memory_info(device)
        assert after.in_use == 3 * MIB and after.restored_bytes - before.restored_bytes == MIB and after.spill_count == before.spill_count + 1
        assert [buffer.is_spilled for buffer in buffers] == [False, True, False, False], "the least recently used"
    assert [contents(buffer) for buffer in buffers] == [pattern(MIB, seed) for seed in range(4)]


def test_host_memory_that_runs_out_during_a_spill_leaves_the_array_on_the_device(device: str) -> None:
    tack_memory.empty_host_pool()
    buffer = filled(8 * MIB, device)
    call("SetHostLimit", 4 * MIB)
    try:
        before = memory_info(device)
        with pytest.raises(DeviceMemoryError) as caught:
            buffer.spill()
        assert caught.value.reason == "host" and caught.value.device == device
        after = memory_info(device)
        assert not buffer.is_spilled and (after.in_use, after.spilled) == (before.in_use, before.spilled)
        assert contents(buffer) == pattern(8 * MIB)
        with pytest.raises(DeviceMemoryError) as caught:
            tack_memory.memory_budget(MIB, device).__enter__()
        assert caught.value.reason == "host" and tack_memory.get_memory_budget(device) is None
        with pytest.raises(DeviceMemoryError) as caught:
            tack_memory.set_memory_budget(MIB, device)
        assert caught.value.reason == "host" and tack_memory.set_memory_budget(None, device) == MIB
        total = memory_info(device).device_total or 0
        with pytest.raises(DeviceMemoryError) as caught:
            allocate(total - 4 * MIB, device, zero=False)
        assert caught.value.reason == "host" and contents(buffer) == pattern(8 * MIB)
    finally:
        call("SetHostLimit", -1)
    assert buffer.spill() == 8 * MIB and contents(buffer) == pattern(8 * MIB)


def test_freed_is_at_least_what_was_requested_or_every_candidate_is_exhausted(device: str) -> None:
    buffers = [filled(MIB, device, seed) for seed in range(6)]
    with buffers[5].hold("kept"):
        for wanted in (1, MIB, MIB + 1):
            freed = _fast.make_room(wanted, device)
            assert wanted <= freed < wanted + MIB
        assert [buffer.is_spilled for buffer in buffers] == [True] * 4 + [False] * 2
        assert _fast.make_room(100 * MIB, device) == MIB, "all that could go"
        assert _fast.make_room(1, device) == 0, "nothing is left"
    assert [contents(buffer) for buffer in buffers] == [pattern(MIB, seed) for seed in range(6)]


def test_retries_are_bounded_by_progress(soft: SoftDriver) -> None:
    soft.set("taken", 200 * MIB)  # of 256: another process
    buffers = [filled(4 * MIB, "sim:0", seed) for seed in range(8)]
    calls = soft.calls("cuMemAllocAsync") + soft.calls("cuMemAlloc_v2") + soft.calls("cuMemAllocFromPoolAsync")
    with pytest.raises(DeviceMemoryError) as caught:
        allocate(100 * MIB, "sim:0")  # fits the device, and never what is left of it
    tries = soft.calls("cuMemAllocAsync") + soft.calls("cuMemAlloc_v2") + soft.calls("cuMemAllocFromPoolAsync") - calls
    assert caught.value.reason == "device" and 1 <= tries <= len(buffers) + 4
    assert [contents(buffer) for buffer in buffers] == [pattern(4 * MIB, seed) for seed in range(8)]


def test_a_buffer_is_invisible_to_spilling_until_it_is_fully_built(steered: str, soft: SoftDriver) -> None:
    stop = threading.Event()

    def spill_everything() -> None:
        while not stop.is_set():
            _fast.spill_all(steered)

    soft.set("jitter_us", 200)
    thread, failures = in_thread(spill_everything)
    try:
        for _ in range(200):
            buffer = allocate(64 * KIB, steered)
            assert contents(buffer) == bytes(64 * KIB)
    finally:
        stop.set()
        thread.join()
    assert failures == []


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Verifying the books takes the lock that moving memory takes, and so would wait for a spill."""
    call("SetCheck", False)
    yield
    call("SetCheck", True)


def long_spill(device: str, soft: SoftDriver) -> tuple[tack_memory.Buffer, threading.Thread, list[BaseException]]:
    """A spill that takes half a minute, or until `finish`, under way in a thread."""
    buffer = allocate(128 * MIB, device, zero=False)
    buffer.copy_from_host(b"first", 0)
    soft.set("copy_mib_s", 4)
    thread, failures = in_thread(buffer.spill)
    while buffer.state == "resident":
        assert thread.is_alive() or failures == []
    assert buffer.state == "spilling"
    return buffer, thread, failures


def finish(soft: SoftDriver, thread: threading.Thread, failures: list[BaseException]) -> None:
    soft.set("copy_mib_s", 0)
    thread.join(60)
    assert not thread.is_alive() and failures == []


def test_an_allocation_that_fits_does_not_wait_for_a_long_spill(steered: str, soft: SoftDriver, unchecked: None) -> None:
    buffer, thread, failures = long_spill(steered, soft)
    try:
        other = allocate(MIB, steered, zero=False)
        assert buffer.state == "spilling", "the allocation was done before the spill"
        with launch(other):
            assert buffer.state == "spilling", "so is a launch"
        del other  # a free() would wait, a drop does not
        assert buffer.state == "spilling"
    finally:
        finish(soft, thread, failures)
    assert buffer.is_spilled and contents(buffer.view(0, 5)) == b"first"


def test_python_goes_on_while_memory_moves(steered: str, soft: SoftDriver, unchecked: None) -> None:
    dropped = [allocate(KIB, steered) for _ in range(100)]
    buffer, thread, failures = long_spill(steered, soft)
    try:
        turns = 0
        while turns < 1000 and buffer.state == "spilling":
            memory_info(steered), _fast.counters(steered)
            with tack_memory.memory_peak(steered):
                pass
            if dropped:
                dropped.pop()  # a destructor never waits
            turns += 1
        gc.collect()
        assert turns == 1000 and buffer.state == "spilling" and thread.is_alive()
        assert memory_info(steered).in_use == buffer.nbytes, "what was dropped is out of the books at once"
    finally:
        finish(soft, thread, failures)
    assert contents(buffer.view(0, 5)) == b"first"


def test_caches_are_emptied_before_anything_is_spilled(steered: str, soft: SoftDriver) -> None:
    relieved: list[int] = []
    index = tack_memory._devices.resolve(steered)
    kept = filled(32 * MIB, steered)
    theirs = 200 * MIB  # what a framework's own cache keeps, out of our sight
    soft.set("taken", theirs)

    def relieve() -> None:
        relieved.append(memory_info(steered).spill_count)
        soft.set("taken", 0)

    _fast.set_relief(index, relieve)
    try:
        before = memory_info(steered).spill_count
        large = allocate(180 * MIB, steered, zero=False)
    finally:
        _fast.set_relief(index, None)
    assert relieved == [before] and memory_info(steered).spill_count == before and not kept.is_spilled and large.nbytes == 180 * MIB


def test_without_a_budget_a_failed_allocation_spills_the_least_recently_used(steered: str, soft: Any) -> None:
    buffers = [filled(16 * MIB, "sim:1", seed) for seed in range(4)]  # 64 MiB: all of it
    assert buffers[0].device_ptr
    more = filled(16 * MIB, "sim:1", 9)
    assert [buffer.is_spilled for buffer in buffers] == [False, True, False, False]
    assert [contents(buffer) for buffer in (*buffers, more)] == [pattern(16 * MIB, seed) for seed in (0, 1, 2, 3, 9)]
