"""Events of NumPy's arrays: the table of what lives is the sum of their bytes, in threads and without the GIL, and hooks may use NumPy themselves."""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from events_support import NUMPY, WITHOUT_GIL, Table, compile_module, load
from numpy_support import ALLOCATORS
from support import run_python

import tack_memory
import tack_memory.numpy as tn
from tack_memory import Event


@pytest.fixture(params=ALLOCATORS)
def installed(request: pytest.FixtureRequest) -> Iterator[str]:
    tn.install(**ALLOCATORS[request.param])
    yield str(request.param)
    tn.uninstall()


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return sys.modules.get("c_hooks") or load(compile_module(tmp_path_factory.mktemp("c_hooks")))


def owned(arrays: list[np.ndarray[Any, Any]]) -> int:
    return sum(max(a.nbytes, 1) for a in arrays)


def test_life_of_an_array(installed: str) -> None:
    events: list[Event] = []
    with tack_memory.event_hook(events.append, sync=True):
        a = np.empty(1000, np.uint8)
        assert [(e.kind, e.domain, e.device, e.new, e.new_size, e.thread) for e in events] == [
            ("new", "numpy", None, a.ctypes.data, 1000, threading.get_native_id())
        ]
        view = a[10:20]
        assert len(events) == 1, "views own nothing"
        del view
        old = a.ctypes.data
        a.resize(10**6, refcheck=False)
        assert [(e.kind, e.old, e.old_size, e.new, e.new_size) for e in events[1:]] == [("renew", old, 1000, a.ctypes.data, 10**6)]
        new = a.ctypes.data
        del a
    assert [(e.kind, e.old, e.old_size) for e in events[2:]] == [("free", new, 10**6)]


def test_the_site_of_an_event_tells_lines_apart() -> None:
    """While somebody tracks lines; None where there is none, or nobody wanted to know it."""
    events: list[Event] = []

    def make(size: int) -> np.ndarray[Any, Any]:
        return np.empty(size, np.uint8)

    with tack_memory.event_hook(events.append, sync=True):
        with tn.use():
            make(5000)
        with tn.track(threshold=1000, domains="numpy"):
            make(10)
            make(5000), make(6000)
            np.empty(7000, np.uint8)
    sites = [e.site for e in events if e.kind == "new"]
    assert [e.site for e in events if e.kind == "free"] == sites
    untracked, small, first, second, other = sites
    assert untracked is None and small is None
    assert first is not None and first == second and other is not None and other != first


def test_failures(installed: str) -> None:
    events: list[Event] = []
    legacy: list[tuple[int, int, int]] = []
    a = np.ones(1000, np.uint8)
    tack_memory.set_event_hook(lambda *args: legacy.append(args[:3]), sync=True)
    with tack_memory.event_hook(events.append, sync=True):
        with pytest.raises(MemoryError):
            np.empty(1 << 55, np.uint8)
        with pytest.raises(MemoryError):
            a.resize(1 << 55, refcheck=False)
    tack_memory.set_event_hook(None)
    assert [(e.kind, e.old, e.new, e.requested) for e in events] == [("fail", None, None, 1 << 55), ("fail", a.ctypes.data, None, 1 << 55)]
    assert legacy == [] and a.sum() == 1000


def test_text_that_is_parsed_without_the_gil_is_told_in_order(installed: str, c: Any) -> None:
    """NumPy reallocs without the GIL there. Hooks with the GIL are told by the next event that has it, in order; a hook that needs none at once."""
    text = "1 2 3 4 5 " * 20_000
    sync, deferred = Table(), Table()
    c.take()
    hooks = [c.add(NUMPY), c.add(NUMPY, WITHOUT_GIL)]
    with tack_memory.event_hook(sync, sync=True), tack_memory.event_hook(deferred):
        a = np.fromstring(text, sep=" ")
        assert sum(a) == 300_000
        tack_memory.flush_events()
        assert sync.bytes == deferred.bytes == a.nbytes
        del a
    for hook in hooks:
        c.remove(hook)
    records = c.take()
    renews = [r for r in records if r[0] == 3]
    assert len(renews) > 10 and sync.events == deferred.events == len(records) // 2
    assert {gil for *_, gil in renews} == {0, 1}
    for table in (sync, deferred):
        assert table.wrong == [] and table.live == {}


def test_short_text_that_is_parsed_takes_no_memory_from_a_cache_without_the_gil(other: Any) -> None:
    """NumPy's parser resizes without the GIL, which guards NumPy's cache of small blocks: two threads would be given one block, and each other's numbers."""
    with tn.use(other.capsule()), tack_memory.event_hook(lambda event: None, "numpy"):
        before = other.without_gil
        assert np.fromstring("1 2 3", sep=" ").tolist() == [1, 2, 3]
        assert other.without_gil == before


def test_threads_that_parse_short_texts_have_their_own_numbers(installed: str) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(200):
            for array in [np.fromstring(f"{number} {number}", sep=" ") for _ in range(20)]:
                if array.tolist() != [number, number]:
                    wrong.append((number, array.tolist()))

    with tack_memory.event_hook(lambda event: None, "numpy"):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.parametrize("sync", [True, False])
def test_a_table_of_what_lives_is_the_sum_of_nbytes(installed: str, sync: bool) -> None:
    generator = random.Random(7)
    table, arrays = Table(), []
    numbers = " ".join(map(str, range(3000)))
    with tack_memory.event_hook(table, "numpy", sync=sync):
        for step in range(4000):
            choice = generator.randrange(8)
            if choice < 3 and len(arrays) < 100:
                arrays.append(generator.choice([np.empty, np.zeros])(generator.randrange(0, 3000), np.uint8))
            elif choice == 3 and arrays:
                arrays.append(arrays[generator.randrange(len(arrays))].copy())
            elif choice == 4 and arrays:
                arrays[generator.randrange(len(arrays))].resize(generator.randrange(1, 5000), refcheck=False)
            elif choice == 5:
                np.sort(np.fromstring(numbers, sep=" "))
            elif arrays:
                arrays.pop(generator.randrange(len(arrays)))
            if sync and step % 10 == 0 or step % 200 == 0:
                tack_memory.flush_events()
                assert table.bytes == owned(arrays) and table.wrong == []
        arrays.clear()
    assert table.live == {} and table.wrong == [] and table.events > 4000


def test_threads_that_parse_text_and_threads_that_do_not(installed: str, c: Any) -> None:
    text = " ".join(map(str, range(5000)))
    before, dropped = sys.getswitchinterval(), tack_memory.event_counts().dropped
    tables = [Table(), Table(), Table()]
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        generator, mine = random.Random(seed), []
        try:
            for _ in range(60):
                mine.append(np.fromstring(text, sep=" ") if seed % 2 else np.empty(generator.randrange(1, 50_000), np.uint8))
                if len(mine) > 5:
                    mine.pop(generator.randrange(len(mine)))
        except BaseException as error:
            errors.append(error)

    sys.setswitchinterval(1e-5)
    tack_memory.set_event_hook(tables[2].of_2012, sync=True)
    try:
        with tack_memory.event_hook(tables[0], "numpy", sync=True), tack_memory.event_hook(tables[1], "numpy"):
            threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
        tack_memory.set_event_hook(None)
    assert errors == [] and tack_memory.event_counts().dropped == dropped
    for table in tables:
        assert table.wrong == [] and table.live == {} and table.events > 16 * 120


@pytest.mark.parametrize("sync", [True, False])
def test_a_hook_that_uses_numpy(installed: str, sync: bool) -> None:
    table, log = Table(), []

    def hook(event: Event) -> None:
        table(event)
        log.append(np.full(3, event.seq))
        np.sort(np.fromstring("1 2 3 " * 500, sep=" "))

    with tack_memory.event_hook(hook, sync=sync):
        for _ in range(20):
            a = np.ones(100, np.uint8)
            a.resize(10_000, refcheck=False)
            del a
    assert table.live == {} and table.wrong == [] and table.events == len(log)
    log.clear()


@pytest.mark.parametrize("sync", [True, False])
def test_a_hook_that_collects_garbage_while_cycles_with_arrays_die(installed: str, sync: bool) -> None:
    """What numpy/tools/allocation_tracking crashed on: a collection inside of a deallocation."""

    class Sub(np.ndarray[Any, Any]):
        pass

    table = Table()

    def hook(event: Event) -> None:
        table(event)
        gc.collect()

    gc.freeze()
    try:
        with tack_memory.event_hook(hook, sync=sync):
            for _ in range(60):
                node: Any = np.empty(100, np.uint8).view(Sub)
                node.me = node
                del node
            gc.collect()
            tack_memory.flush_events()
    finally:
        gc.unfreeze()
    assert table.wrong == [] and table.live == {} and table.events == 120


def test_both_domains_in_one_hook(installed: str) -> None:
    domains: list[tuple[str, str]] = []
    with tack_memory.event_hook(lambda e: domains.append((e.domain, e.kind)), sync=True):
        buffer = tack_memory.allocate(100, "cpu")
        a = np.empty(100)
        del buffer, a
    assert domains == [("device", "new"), ("numpy", "new"), ("device", "free"), ("numpy", "free")]


def test_memory_from_before_a_hook_ends_in_it(installed: str) -> None:
    a = np.empty(100, np.uint8)
    address, events = a.ctypes.data, []
    with tack_memory.event_hook(events.append):
        del a
    assert [(e.kind, e.old, e.old_size) for e in events] == [("free", address, 100)]


def test_a_forked_child_tells_its_arrays() -> None:
    done = run_python("""
        import os
        import numpy as np
        import tack_memory as tm, tack_memory.numpy as tn
        tn.install()
        inherited = np.empty(50, np.uint8)
        events = []
        with tm.event_hook(events.append, sync=True):
            pid = os.fork()
            if not pid:
                a = np.empty(100, np.uint8)
                a.resize(1000, refcheck=False)
                np.fromstring("1 2 3 " * 1000, sep=" ")
                del a, inherited
                kinds = [e.kind for e in events]
                print(kinds[:3], kinds[-2:], events[-1].old_size, flush=True)
                os._exit(0)
            print(os.waitpid(pid, 0)[1], events)
    """)
    assert done.stdout.splitlines() == ["['new', 'renew', 'new'] ['free', 'free'] 50", "0 []"], done.stderr


def test_python_ends_with_arrays_and_hooks() -> None:
    done = run_python("""
        import threading
        import numpy as np
        import tack_memory as tm, tack_memory.numpy as tn
        tn.install()
        hooks = [tm.event_hook(lambda e: None, sync=True).__enter__(), tm.event_hook(lambda e: None).__enter__()]
        tm.set_event_hook(lambda *a: None, sync=True)
        kept = [np.empty(100) for _ in range(1999)]
        def busy():
            while True:
                np.fromstring("1 2 3 " * 1000, sep=" ")
        for _ in range(3):
            threading.Thread(target=busy, daemon=True).start()
        import time
        time.sleep(0.2)
    """)
    assert done.returncode == 0 and done.stderr == "", done.stderr
