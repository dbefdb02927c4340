"""Hooks under threads, with and without the GIL: order, and hooks that come and go under load."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from events_support import DEVICE, PINNED, WITHOUT_GIL, Table, compile_module, load, together
from support import MIB, run_python, wait_until

import tack_memory
from tack_memory import Event

THREADS = 16


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return sys.modules.get("c_hooks") or load(compile_module(tmp_path_factory.mktemp("c_hooks")))


@pytest.fixture(autouse=True)
def threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def allocator(device: str, seed: int, steps: int = 150) -> Any:
    def run() -> None:
        generator = random.Random(seed)
        mine: list[tack_memory.Buffer] = []
        for _ in range(steps):
            if generator.random() < 0.5 and len(mine) < 24:
                mine.append(tack_memory.allocate(generator.randrange(1, MIB), device))
            elif mine and generator.random() < 0.5:
                mine.pop(generator.randrange(len(mine)))
            elif mine:
                generator.choice(mine).device_ptr  # noqa: B018

    return run


def test_three_kinds_of_hooks_see_one_order(c: Any, device: str, budget: int) -> None:
    """Sixteen threads, spilling; each hook keeps a table that must be right at every moment."""
    sync, deferred, legacy, native = Table(), Table(), Table(), Table()
    c.take()
    token = c.add(DEVICE)
    tack_memory.set_event_hook(legacy.of_2012, sync=True)
    spilled = tack_memory.memory_info(device).spill_count
    dropped = tack_memory.event_counts().dropped
    with tack_memory.event_hook(sync, sync=True), tack_memory.event_hook(deferred):
        together(*(allocator(device, seed) for seed in range(THREADS)))
    tack_memory.set_event_hook(None)
    c.remove(token)
    native.replay(c.take())
    assert tack_memory.event_counts().dropped == dropped
    for table in (sync, deferred, legacy, native):
        assert table.wrong == [] and table.live == {}
    assert sync.events == deferred.events == native.events == legacy.events > 500
    assert tack_memory.memory_info(device).spill_count > spilled


def test_events_without_the_gil_among_those_with_it(c: Any) -> None:
    """C threads tell while Python threads allocate and a hook lets others run in its middle: nothing overtakes anything of its own address."""
    tables = [Table(), Table(), Table()]
    c.take()

    def slow(event: Event) -> None:
        tables[0](event)
        if event.seq % 64 == 0:
            time.sleep(0)  # lets go of the GIL

    dropped = tack_memory.event_counts().dropped
    with (
        tack_memory.event_hook(slow, {"pinned", "device"}, sync=True),
        tack_memory.event_hook(tables[1], {"pinned", "device"}, sync=True),
        tack_memory.event_hook(tables[2], {"pinned", "device"}),
    ):
        together(
            lambda: c.tell_from_threads(8, 400, 2), *(allocator("cpu", seed) for seed in range(4)), lambda: [tack_memory.flush_events() for _ in range(50)]
        )
        tack_memory.flush_events()
    assert tack_memory.event_counts().dropped == dropped
    for table in tables:
        assert table.wrong == [] and table.live == {} and table.events > 8 * 400 * 3
    assert tables[0].events == tables[1].events == tables[2].events


def test_sixteen_threads_add_and_remove_hooks_under_load(c: Any, device: str, budget: int) -> None:
    c.take()
    stop = threading.Event()
    heard = [0] * THREADS

    def coming_and_going(number: int) -> Any:
        def hook(*_: object) -> None:
            heard[number] += 1

        def run() -> None:
            generator = random.Random(number)
            rounds = 0
            while not stop.is_set() or rounds < 20:
                rounds += 1
                kind = generator.randrange(4)
                if kind == 0:
                    with tack_memory.event_hook(hook, sync=True):
                        tack_memory.allocate(10, device)
                elif kind == 1:
                    with tack_memory.event_hook(hook):
                        tack_memory.allocate(10, device)
                elif kind == 2:
                    token = c.add(DEVICE | PINNED, generator.choice([0, WITHOUT_GIL]))
                    tack_memory.allocate(10, device)
                    assert c.remove(token) == 0
                else:
                    tack_memory.set_event_hook(hook, number, sync=generator.random() < 0.5)
                    tack_memory.allocate(10, device)
                if rounds % 16 == 0:
                    c.take()

        return run

    def load_() -> None:
        try:
            together(lambda: c.tell_from_threads(4, 300, 2), *(allocator(device, seed) for seed in range(3)))
        finally:
            stop.set()

    together(load_, *(coming_and_going(n) for n in range(THREADS)))
    tack_memory.set_event_hook(None)
    assert all(heard)
    assert tack_memory.event_counts().waiting == 0


def test_a_removed_c_hook_never_runs_again(c: Any) -> None:
    """What remove_event_hook promises for user data: no call is under way when it returns."""
    stop = threading.Event()

    def tell() -> None:
        while not stop.is_set():
            c.tell_from_threads(4, 50, 2)

    called = False

    def remove() -> None:
        nonlocal called
        try:
            for _ in range(30):
                token = c.add(PINNED, WITHOUT_GIL, 3)  # each call takes 3 ms
                time.sleep(0.005)
                assert c.remove(token) == 0
                called = bool(c.take()) or called
                time.sleep(0.005)
                assert c.take() == [], "a call ended after the removal"
        finally:
            stop.set()

    together(tell, remove)
    assert called


@pytest.mark.parametrize("sync", [True, False])
def test_a_hook_is_replaced_while_another_thread_is_in_it_and_waits_for_who_replaces_it(sync: bool) -> None:
    """In a process of its own: what fails here would wait for ever."""
    done = run_python(
        """
        import sys, threading
        import tack_memory
        from support import wait_until

        lock, inside, calls = threading.Lock(), threading.Event(), []
        def hook(old, new, size, data):
            inside.set()
            with lock:
                calls.append(new)
        def other():
            buffer = tack_memory.allocate(10, "cpu")
            tack_memory.flush_events()
        tack_memory.set_event_hook(hook, sync=sys.argv[1] == "True")
        with lock:
            thread = threading.Thread(target=other)
            thread.start()
            inside.wait()
            assert tack_memory.set_event_hook(None).hook is hook
            assert calls == []
        thread.join()
        assert len(calls) == 1, calls
        """,
        str(sync),
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_ctrl_c_ends_the_waiting_for_a_c_hook_that_is_replaced() -> None:
    """Its owner may free its user data once it is replaced, so the call that is under way is waited for."""
    done = run_python(
        """
        import ctypes, os, signal, threading
        import tack_memory

        inside, go_on, ended = threading.Event(), threading.Event(), threading.Event()
        @ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        def hook(old, new, size, data):
            inside.set()
            go_on.wait()
            ended.set()
        make = ctypes.pythonapi.PyCapsule_New
        make.argtypes, make.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
        capsule = make(ctypes.cast(hook, ctypes.c_void_p), b"tack_memory.event_hook", None)

        def replaced(meanwhile):
            tack_memory.set_event_hook(capsule)
            inside.clear(), go_on.clear(), ended.clear()
            thread = threading.Thread(target=tack_memory.allocate, args=(10, "cpu"))
            thread.start()
            inside.wait()
            threading.Timer(0.2, meanwhile).start()
            try:
                tack_memory.set_event_hook(None)
                return ended.is_set()
            except KeyboardInterrupt:
                return "interrupted"
            finally:
                go_on.set()
                thread.join()

        assert replaced(go_on.set) is True
        assert replaced(lambda: os.kill(os.getpid(), signal.SIGINT)) == "interrupted"
        assert tack_memory.set_event_hook(None) is None, "it was replaced all the same"
        """,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_flush_waits_for_a_hook_that_another_thread_is_calling() -> None:
    inside, go_on = threading.Event(), threading.Event()
    events: list[Event] = []

    def hook(event: Event) -> None:
        inside.set()
        go_on.wait()
        events.append(event)

    def other() -> None:
        buffer = tack_memory.allocate(10, "cpu")
        del buffer
        tack_memory.flush_events()

    with tack_memory.event_hook(hook):
        # The thread calls the hook; the main thread is in C, so that it is not asked.
        thread = threading.Thread(target=other)
        thread.start()
        wait_until(inside.is_set, "nobody called the hook")
        threading.Timer(0.2, go_on.set).start()
        tack_memory.flush_events()
        assert len(events) == 2
        thread.join()


def test_a_hook_that_waits_for_a_thread_whose_events_wait() -> None:
    """No lock is held while a hook runs, so other threads allocate and free meanwhile."""
    events: list[Event] = []

    def other() -> None:
        buffer = tack_memory.allocate(20, "cpu")
        del buffer

    def hook(event: Event) -> None:
        events.append(event)
        if len(events) == 1:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

    with tack_memory.event_hook(hook, sync=True):
        buffer = tack_memory.allocate(10, "cpu")
        del buffer
    assert sorted(e.kind for e in events) == ["free", "free", "new", "new"]


def test_a_hook_that_waits_for_a_thread_with_many_events(c: Any) -> None:
    """More than make others wait for the one that delivers: here it is that one which waits for them."""
    table, many, before = Table(), 20_000, tack_memory.event_counts().dropped

    def other() -> None:
        for number in range(many):
            c.tell(1, 2, 0, (1 << 40) + 64 * number, 64)

    def hook(event: Event) -> None:
        table(event)
        if table.events == 1:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

    with tack_memory.event_hook(hook, "pinned", sync=True):
        c.tell_both(2, 5)
        tack_memory.flush_events()
    assert table.wrong == [] and table.events == 6 + many and tack_memory.event_counts().dropped == before
