"""MemoryPeak.at_peak: what was live at the peak, by label and origin. Its bytes always add up to the peak."""

from __future__ import annotations

import gc
import inspect
import random
import threading
from collections import Counter
from typing import Any

import pytest
from support import KIB, MIB, run_python

import tack_memory
from tack_memory import Holder, MemoryPeak, memory_peak, set_origins

pytestmark = pytest.mark.usefixtures("lines")


def here(above: int = 0) -> str:
    """The origin of the calling line, or of one above."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno - above}"


def rows(peak: MemoryPeak) -> list[tuple[str | None, str | None, int, int]]:
    """What at_peak tells, checked to add up to the peak."""
    told = peak.at_peak
    assert told is not None
    assert all(isinstance(row, Holder) and (row.resident, row.spilled, row.device) == (row.bytes, 0, peak.device) for row in told)
    assert sum(row.bytes for row in told) == peak.bytes
    assert [row.bytes for row in told] == sorted((row.bytes for row in told), reverse=True)
    return [(row.label, row.origin, row.bytes, row.count) for row in told]


def test_what_was_live_at_the_peak_is_told_by_label_and_origin(any_device: str) -> None:
    kept = [tack_memory.allocate(KIB, any_device, label="kept") for _ in range(3)]
    origin_of_kept = here(1)
    with memory_peak(any_device) as peak:
        tack_memory.allocate(MIB, any_device).free()  # alone it was less than what comes
        first = tack_memory.allocate(MIB, any_device)
        second = tack_memory.allocate(MIB // 2, any_device, label="second")
        expected = [(None, here(2), MIB, 1), ("second", here(1), MIB // 2, 1), ("kept", origin_of_kept, 3 * KIB, 3)]
        assert rows(peak) == expected, "it can be read while the scope is open"
        del first, second
        gc.collect()
        kept.pop().free()
        late = tack_memory.allocate(MIB, any_device, label="after the peak")
    assert rows(peak) == expected == rows(peak)
    late.free()
    del kept
    assert rows(peak) == expected, "it is frozen"


def test_memory_from_before_origins_were_on_has_none() -> None:
    set_origins("off")
    old = tack_memory.allocate(2 * KIB, "sim:0")
    with memory_peak("sim:0") as unwatched:
        set_origins("line")
        new = tack_memory.allocate(KIB, "sim:0")
        assert unwatched.at_peak is None, "origins were off when it was entered"
    assert unwatched.at_peak is None
    with memory_peak("sim:0") as peak:
        set_origins("off")
        nameless = tack_memory.allocate(4 * KIB, "sim:0")
    assert rows(peak) == [(None, None, 6 * KIB, 2), (None, new.origin, KIB, 1)]
    del old, nameless


def test_a_scope_that_was_not_entered_has_none_to_tell(any_device: str) -> None:
    with pytest.raises(RuntimeError, match="not entered"):
        _ = memory_peak(any_device).at_peak


def test_nothing_live_is_an_empty_list(any_device: str) -> None:
    with memory_peak(any_device) as peak:
        assert rows(peak) == []
    assert rows(peak) == []


def test_what_is_spilled_at_the_peak_is_not_in_it(device: str) -> None:
    with memory_peak(device) as peak:
        away = tack_memory.allocate(3 * MIB, device, label="away")
        away.spill()
        there = tack_memory.allocate(4 * MIB, device, label="there")
        there.spill()
        away.restore()
    assert [(label, nbytes) for label, _, nbytes, _ in rows(peak)] == [("there", 4 * MIB)]
    with memory_peak(device) as peak:
        there.restore()
        away.spill()
        there.free()
    assert [(label, nbytes) for label, _, nbytes, _ in rows(peak)] == [("there", 4 * MIB), ("away", 3 * MIB)]


def test_a_label_that_was_given_later_names_the_row(any_device: str) -> None:
    with memory_peak(any_device) as peak:
        stays, goes = tack_memory.allocate(2 * KIB, any_device), tack_memory.allocate(KIB, any_device)
        stays.label, goes.label = "stays", "goes"
        goes.free()
    assert [(label, nbytes) for label, _, nbytes, _ in rows(peak)] == [("stays", 2 * KIB), ("goes", KIB)]


def test_it_is_of_the_device_that_was_asked_for() -> None:
    with memory_peak("sim:1") as peak, memory_peak("sim:0") as other:
        one, two = tack_memory.allocate(KIB, "sim:1"), tack_memory.allocate(MIB, "sim:0")
    assert rows(peak) == [(None, one.origin, KIB, 1)] and peak.by_device["sim:0"] == MIB
    assert rows(other) == [(None, two.origin, MIB, 1)]


def test_a_decorated_function_tells_each_calls_own(any_device: str) -> None:
    ended: list[MemoryPeak] = []

    @memory_peak(any_device, on_exit=ended.append)
    def work(label: str, nbytes: int) -> None:
        tack_memory.allocate(nbytes, any_device, label=label).free()

    work("one", KIB)
    work("two", 2 * KIB)
    assert [[(row.label, row.bytes) for row in peak.at_peak or ()] for peak in ended] == [[("one", KIB)], [("two", 2 * KIB)]]


def test_a_scope_that_is_dropped_leaves_nothing_behind(any_device: str) -> None:
    for _ in range(3):
        peak = memory_peak(any_device).__enter__()
        tack_memory.allocate(KIB, any_device).free()
        assert peak.bytes == KIB
        del peak
    gc.collect()  # the fixture of all tests checks that no watched scope is counted


class Model:
    """The plain model: a dict of what is on the device, copied for each scope whenever its peak rises."""

    def __init__(self, device: str, seed: int) -> None:
        self.device, self.random = device, random.Random(seed)
        self.live: list[tack_memory.Buffer] = []
        self.resident: dict[int, list[Any]] = {}  # by id of the buffer: its stay [label, origin, nbytes]
        self.open: list[tuple[MemoryPeak, list[Any]]] = []  # with [peak, the stays that were there]
        self.closed: list[tuple[MemoryPeak, list[Any]]] = []

    def in_use(self) -> int:
        return sum(nbytes for _, _, nbytes in self.resident.values())

    def came(self, buffer: tack_memory.Buffer) -> None:
        if id(buffer) in self.resident:
            return
        self.resident[id(buffer)] = [buffer.label, buffer.origin, buffer.nbytes]
        for _, found in self.open:
            if self.in_use() > found[0]:
                found[:] = self.in_use(), list(self.resident.values())

    def step(self) -> None:
        action = self.random.choice(["allocate", "allocate", "free", "spill", "restore", "label", "open", "close", "read"])
        buffer = self.random.choice(self.live) if self.live else None
        if action == "allocate" and len(self.live) < 60:
            label = self.random.choice([None, "red", "green"])
            size = self.random.randrange(64 * KIB)
            if self.random.random() < 0.5:
                self.live.append(tack_memory.allocate(size, self.device, label=label))
            else:
                self.live.append(tack_memory.allocate(size, self.device, label=label))  # another line
            self.came(self.live[-1])
        elif action == "open" and len(self.open) < 10:
            self.open.append((memory_peak(self.device).__enter__(), [self.in_use(), list(self.resident.values())]))
        elif action == "close" and self.open:
            scope = self.open.pop(self.random.randrange(len(self.open)))
            scope[0].__exit__(None, None, None)
            self.closed.append((scope[0], [scope[1][0], [tuple(stay) for stay in scope[1][1]]]))
        elif action == "read" and self.open:
            self.compare(*self.random.choice(self.open))
        elif buffer is None:
            return
        elif action == "free":
            self.live.remove(buffer)
            self.resident.pop(id(buffer), None)
            buffer.free()
        elif action == "spill":
            buffer.spill()
            if buffer.is_spilled:
                self.resident.pop(id(buffer), None)
        elif action == "restore":
            buffer.restore()
            self.came(buffer)
        elif action == "label":
            buffer.label = self.random.choice([None, "red", "blue"])
            if id(buffer) in self.resident:
                self.resident[id(buffer)][0] = buffer.label

    def compare(self, peak: MemoryPeak, found: list[Any]) -> None:
        highest, stays = found
        sizes: Counter[tuple[Any, Any]] = Counter()
        counts: Counter[tuple[Any, Any]] = Counter()
        for label, origin, nbytes in stays:
            sizes[label, origin] += nbytes
            counts[label, origin] += 1
        assert peak.bytes == highest
        assert {(label, origin): (nbytes, count) for label, origin, nbytes, count in rows(peak)} == {key: (sizes[key], counts[key]) for key in counts}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_work_agrees_with_a_plain_model(any_device: str, seed: int) -> None:
    model = Model(any_device, seed)
    for _ in range(1200):
        model.step()
    while model.open:
        scope = model.open.pop()
        scope[0].__exit__(None, None, None)
        model.compare(*scope)
    for peak, found in model.closed:
        model.compare(peak, found)
    assert len(model.closed) > 50


def test_under_a_budget_in_many_threads_it_always_adds_up(device: str) -> None:
    failures: list[BaseException] = []
    together: list[set[str | None]] = []
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        choose = random.Random(number)
        live: list[tack_memory.Buffer] = []
        try:
            live.append(tack_memory.allocate(64 * KIB, device, label=f"of {number}"))
            barrier.wait()  # now all six have something, which fits together
            with memory_peak(device) as peak:
                tack_memory.allocate(KIB, device).free()
            together.append({label for label, _, _, _ in rows(peak)})
            barrier.wait()
            for _ in range(40):
                with memory_peak(device) as peak:
                    for _ in range(choose.randrange(6)):
                        live.append(tack_memory.allocate(choose.randrange(1, 512 * KIB), device, label=f"of {number}"))
                        if len(live) > 12:
                            live.pop(choose.randrange(len(live)))
                        if choose.random() < 0.3:
                            with tack_memory.launch(choose.choice(live)):
                                pass
                rows(peak)
            barrier.wait()  # what all of them keep is more than the budget
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    before = tack_memory.memory_info(device).spill_count
    with tack_memory.memory_budget(8 * MIB, device):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
    assert tack_memory.memory_info(device).spill_count > before
    assert len(together) == 6 and all({f"of {number}" for number in range(6)} <= labels for labels in together)


def test_one_scope_read_and_left_by_several_threads(any_device: str) -> None:
    for _ in range(30):
        peak = memory_peak(any_device).__enter__()
        kept = tack_memory.allocate(KIB, any_device)
        barrier = threading.Barrier(3)
        told: list[int] = []
        left: list[str] = []

        def read(peak: MemoryPeak = peak, barrier: threading.Barrier = barrier, told: list[int] = told) -> None:
            barrier.wait()
            told.extend(sum(row.bytes for row in peak.at_peak or ()) for _ in range(20))

        def leave(peak: MemoryPeak = peak, barrier: threading.Barrier = barrier, left: list[str] = left) -> None:
            barrier.wait()
            try:
                peak.__exit__(None, None, None)
                left.append("left")
            except RuntimeError:
                left.append("left already")

        threads = [threading.Thread(target=work) for work in (read, leave, leave)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert told == [KIB] * 20 and sorted(left) == ["left", "left already"] and peak.end == KIB
        kept.free()


def test_a_forked_child_leaves_its_parents_scopes_without_it() -> None:
    done = run_python(
        """
        import os, warnings
        import tack_memory as tm
        warnings.simplefilter("ignore")
        tm.set_origins("line")
        with tm.memory_peak("cpu") as closed:
            kept = tm.allocate(100, "cpu", label="kept")
        peak = tm.memory_peak("cpu").__enter__()
        child = os.fork()
        if not child:
            print([row.label for row in closed.at_peak], peak.at_peak, flush=True)
            peak.__exit__(None, None, None)
            with tm.memory_peak("cpu") as own:
                tm.allocate(50, "cpu")
            print(peak.bytes, peak.at_peak, own.bytes, own.at_peak, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        peak.__exit__(None, None, None)
        print([row.label for row in peak.at_peak])
        """
    )
    assert done.stdout.splitlines() == ["['kept'] None", "100 None 150 None", "['kept']"], done.stdout + done.stderr
