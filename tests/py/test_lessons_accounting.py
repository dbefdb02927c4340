"""What went wrong in other people's accounting, as properties that hold here. Each of the project's list has a test; PROPERTIES says where."""

from __future__ import annotations

import random
import re
import threading
from pathlib import Path

from support import KIB, settle

import tack_memory
from tack_memory import allocate, memory_info

PROPERTIES = {
    "nested and overlapping scopes": "test_peaks.py::test_any_number_of_scopes_in_any_order_report_their_own_interval",
    "outer >= inner": "test_peaks.py::test_an_outer_scope_holds_at_least_what_an_inner_one_held",
    "allocated and freed inside": "test_peaks.py::test_what_was_freed_again_inside_counts",
    "a reset": "test_memory_info.py::test_a_reset_sets_the_peak_to_in_use_and_changes_nothing_else",
    "64 threads racing": "test_peaks.py::test_64_threads_racing_find_at_least_every_quiescent_sum",
    "every way to name a device": "test_devices.py::test_every_way_to_name_a_device_agrees",
    "an unused device": "test_devices.py::test_asking_about_an_unused_device_creates_no_context",
    "after a trim": "test_memory_info.py::test_after_a_trim_nothing_is_cached_and_the_whole_budget_can_be_had",
    "no counter wraps": "test_memory_info.py::test_the_identities_hold_after_every_operation",
    "unknown frees": "test_bad_input.py::test_what_is_no_block_of_the_driver_is_not_adopted",
    "unknown frees, below Python: the driver's": "tests/go/conformance/driver_test.go::TestFreeOfWhatIsNoBlock",
    "unknown frees, below Python: the books'": "gomem/accounting_test.go::TestNoCounterWraps",
    "memory of others is never freed": "test_launch_and_holds.py::test_wrapped_memory_is_never_counted_and_never_moved",
    "over the budget": "test_budget.py::test_a_soft_one_may_be_passed_by_one_array_larger_than_all_of_it",
    "lowering never blocks frees": "test_budget.py::test_lowering_it_never_blocks_frees",
    "after a storm on 8 threads": "test_lessons_accounting.py::test_the_books_are_exact_after_a_storm_of_allocations_and_frees_on_8_threads",
    "the same peak in 100 runs": "test_peaks.py::test_the_peak_is_the_same_in_100_runs_under_random_delays",
    "leaving never raises": "test_peaks.py::test_an_error_of_on_exit_does_not_leave_the_scope",
    "valid after an exception": "test_peaks.py::test_an_exception_passes_and_the_figures_stay",
    "a consistent report": "test_reports.py::test_a_report_is_a_consistent_copy_while_others_allocate",
    "reports hold nothing alive": "test_reports.py::test_reports_keep_no_buffer_alive",
    "typed errors": "test_errors.py::test_its_figures_do_not_contradict_each_other",
    "views are not counted": "test_memory_info.py::test_allocations_views_and_frees_are_counted",
    "requested and reserved are separate": "test_memory_info.py::test_requested_bytes_are_counted_not_rounded_ones",
}
"""A property -> the test that shows it: a file of this folder, or one in Go, from the root."""


def test_every_property_has_its_test() -> None:
    folder = Path(__file__).parent
    for name, where in PROPERTIES.items():
        file, _, function = where.partition("::")
        text = (folder.parents[1] / file if file.endswith(".go") else folder / file).read_text()
        assert re.search(rf"^(def|func) {function}\(", text, re.M), f"{name}: there is no {where}"


def test_the_books_are_exact_after_a_storm_of_allocations_and_frees_on_8_threads(any_device: str) -> None:
    start = memory_info(any_device).in_use
    kept: list[list[tack_memory.Buffer]] = [[] for _ in range(8)]
    failures: list[BaseException] = []

    def work(place: int) -> None:
        try:
            random_, mine = random.Random(place), kept[place]
            for _ in range(1500):
                if random_.random() < 0.55 or not mine:
                    mine.append(allocate(random_.randrange(0, 8 * KIB), any_device, zero=False))
                else:
                    buffer = mine.pop(random_.randrange(len(mine)))
                    if random_.random() < 0.5:
                        buffer.free()
                    del buffer
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert memory_info(any_device).in_use == start + sum(buffer.nbytes for mine in kept for buffer in mine)
    kept.clear()
    settle()
    assert memory_info(any_device).in_use == start
