"""A hook that is slower than the program: those that allocate wait for it, those that free do not, and nothing is lost, unless nobody goes on otherwise."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from events_support import Table, compile_module, load, together
from support import run_python, wait_until

import tack_memory
import tack_memory.numpy as tn
from tack_memory import Event

MOST = 65_536
"""Events that can wait, in the ring and for one hook."""

PINNED = 2
"""The domain's number in C."""


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return sys.modules.get("c_hooks") or load(compile_module(tmp_path_factory.mktemp("c_hooks")))


@pytest.fixture
def counted() -> Iterator[None]:
    tn.install()
    yield
    tn.uninstall()


@contextmanager
def running(*functions: Any) -> Iterator[None]:
    """In threads of their own, which have ended at the end."""
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()


class Gate:
    """A hook that stays in its first call until the end of a block."""

    def __init__(self) -> None:
        self.table, self.inside, self.go_on = Table(), threading.Event(), threading.Event()

    def __call__(self, event: Event) -> None:
        self.inside.set()
        self.go_on.wait()
        self.table(event)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.go_on.set()


@pytest.mark.parametrize("threads", [2, 4])
def test_a_deferred_hook_hears_all_of_many_threads(threads: int, counted: None) -> None:
    """While the main thread waits for them, so that they have to call it."""
    table, each, before = Table(), 160_000 // threads, tack_memory.event_counts().dropped

    def work() -> None:
        for _ in range(each):
            np.empty(100)

    with tack_memory.event_hook(table, "numpy"):
        together(*[work] * threads)
        tack_memory.flush_events()
        assert tack_memory.event_counts().dropped == before
        assert table.events == 2 * each * threads > 4 * MOST and table.wrong == [] and table.live == {}


def test_a_deferred_hook_hears_all_of_many_threads_with_device_memory() -> None:
    table, each, before = Table(), 25_000, tack_memory.event_counts().dropped

    def work() -> None:
        for _ in range(each):
            tack_memory.allocate(10, "cpu")

    with tack_memory.event_hook(table, "device"):
        together(*[work] * 4)
        tack_memory.flush_events()
        assert tack_memory.event_counts().dropped == before
        assert table.events == 8 * each > 3 * MOST and table.wrong == [] and table.live == {}


@contextmanager
def others_run_only_when_this_thread_lets_them() -> Iterator[Any]:
    """Gives a function that says how often another thread, which always wants to run, has done so."""
    turns, stop, interval = 0, False, sys.getswitchinterval()

    def turn() -> None:
        nonlocal turns
        while not stop:
            turns += 1
            time.sleep(0)

    with running(turn):
        try:
            wait_until(lambda: turns > 0, "the other thread does not run")
            sys.setswitchinterval(1000)
            time.sleep(0.05)  # who waited before that waits for the interval of then, and would be let in once more
            yield lambda: turns
        finally:
            sys.setswitchinterval(interval)
            stop = True


def test_frees_wait_for_nobody_and_are_not_lost(counted: None) -> None:
    """More than there is room for, while another thread is in the hook: a destructor that let others run would surprise everybody."""
    arrays, gate, before = [np.empty(10) for _ in range(MOST + 5000)], Gate(), tack_memory.event_counts().dropped

    def other() -> None:
        np.empty(10)
        tack_memory.flush_events()

    def free() -> None:
        gate.inside.wait()
        with gate, others_run_only_when_this_thread_lets_them() as turns:
            then = turns()
            arrays.clear()
            assert turns() == then, "a free let another thread run"
            assert tack_memory.event_counts().waiting > MOST

    with tack_memory.event_hook(gate, "numpy"):
        together(other, free)
        tack_memory.flush_events()
        assert tack_memory.event_counts().dropped == before
    assert gate.table.events == 2 + MOST + 5000


def test_a_buffer_that_is_dropped_waits_for_nobody(c: Any) -> None:
    """While another thread delivers, and so much waits that an allocation would wait for it."""
    gate, buffers = Gate(), [tack_memory.allocate(10, "cpu")]

    def other() -> None:
        c.tell(1, PINNED, 0, 1 << 40, 64, 1)  # without the GIL: it is in the ring
        tack_memory.flush_events()

    def drop() -> None:
        gate.inside.wait()
        with gate:
            c.tell_from_threads(1, MOST // 4, PINNED)  # three events each, without the GIL, so nobody waits
            with others_run_only_when_this_thread_lets_them() as turns:
                then = turns()
                buffers.clear()
                assert turns() == then, "a destructor let another thread run"

    with tack_memory.event_hook(gate, ("pinned", "device"), sync=True):
        together(other, drop)
        tack_memory.flush_events()
    assert gate.table.events == 2 + 3 * (MOST // 4)


def test_a_hook_that_waits_for_a_lock_of_who_waits_for_it() -> None:
    """Patience ends, the program goes on, and what was not told is counted. In a process of its own: what fails here would wait for ever."""
    done = run_python(
        """
        import threading
        import numpy as np
        import tack_memory, tack_memory.numpy as tn

        tn.install()
        lock, inside, told = threading.Lock(), threading.Event(), 0
        def hook(event):
            global told
            inside.set()
            with lock:
                told += 1
        def other():
            np.empty(10)
            tack_memory.flush_events()
        each = 60_000
        def producer():
            with lock:
                thread.start()
                inside.wait()
                for _ in range(each):
                    np.empty(10)
        with tack_memory.event_hook(hook, "numpy"):
            thread, main = threading.Thread(target=other), threading.Thread(target=producer)
            main.start()
            main.join()
            thread.join()
            tack_memory.flush_events()
            counts = tack_memory.event_counts()
            assert counts.dropped > 0 and counts.waiting == 0, counts
            assert told + counts.dropped == 2 * (each + 1), (told, counts)
            before = told
            np.empty(10)
            tack_memory.flush_events()
            assert told == before + 2, "it goes on afterwards"
        tn.uninstall()
        """,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("others_listen", [False, True])
def test_what_a_hook_had_allocated_is_forgotten_with_the_last_hook(others_listen: bool, c: Any) -> None:
    """Nobody hears then how it ends, and whoever has its addresses next is told of as always. Of another domain everything stays as it was."""
    kept: list[int] = []

    def allocates(event: Event) -> None:
        if not kept:
            kept.append(1)
            for number in range(100):
                c.tell(1, PINNED, 0, (2 << 40) + 64 * number, 64)
                c.tell(1, 1, 0, (3 << 40) + 64 * number, 64)

    events: list[Event] = []
    other = tack_memory.event_hook(events.append, "device", sync=True)
    if others_listen:
        other.__enter__()
    with tack_memory.event_hook(allocates, ("pinned", "device"), sync=True):
        c.tell(1, PINNED, 0, 1 << 40, 64)
    events.clear()
    with tack_memory.event_hook(events.append, "pinned", sync=True):
        for number in range(100):
            c.tell(3, PINNED, (2 << 40) + 64 * number, (4 << 40) + 64 * number, 64)
            c.tell(2, PINNED, (4 << 40) + 64 * number, 0, 64)
            c.tell(2, 1, (3 << 40) + 64 * number, 0, 64)
    if others_listen:
        other.__exit__(None, None, None)
    assert [event.kind for event in events] == ["renew", "free"] * 100
