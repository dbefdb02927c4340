"""Hooks in C, through tack_memory.h and the capsule, as another extension module uses them."""

from __future__ import annotations

import gc
import shlex
import shutil
import subprocess
import sysconfig
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from events_support import DEVICE, FAIL, FREE, NEW, NUMPY, PINNED, RENEW, SHARED, WITHOUT_GIL, Table, compile_module, load
from support import wait_until
from test_events_hooks import recorder, unraisable, work

import tack_memory
from tack_memory import Event

PINNED_NUMBER = 2


@pytest.fixture(scope="session")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(compile_module(tmp_path_factory.mktemp("c_hooks")))


@pytest.fixture
def c(module: Any) -> Iterator[Any]:
    module.take()
    yield module
    assert tack_memory.set_event_hook(None) is None, "the test left a hook"
    module.take()


INCLUDES = [f"-I{tack_memory.get_include()}", f"-I{sysconfig.get_path('include')}"]


def check(source: Path, text: str, *command: str) -> None:
    source.write_text(text)
    done = subprocess.run([*command, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *INCLUDES, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, shlex.join(command) + done.stderr


def test_the_header_is_installed_and_needs_nothing_but_c99(tmp_path: Path) -> None:
    header = Path(tack_memory.get_include(), "tack_memory.h")
    assert header.is_file() and header.parent.parent == Path(tack_memory.__file__).parent
    compiler = next(name for name in ("gcc", "clang", "cc") if shutil.which(name))
    text = '#include "tack_memory.h"\nint main(void) { tack_event e = {0}; return (int)(e.size + sizeof(tack_memory_api)) ? 0 : 1; }\n'
    check(tmp_path / "alone.c", text, compiler, "-std=c99", "-Wpedantic")


@pytest.mark.skipif(not (CPP := next((name for name in ("g++", "clang++", "c++") if shutil.which(name)), "")), reason="there is no C++ compiler here")
def test_the_header_is_cpp_too(tmp_path: Path) -> None:
    text = '#include <Python.h>\n#include "tack_memory.h"\nconst tack_memory_api *get() { return tack_memory_import(); }\n'
    check(tmp_path / "with_python.cpp", text, CPP, "-std=c++11")


# ---- 2012


def test_a_c_hook_with_the_signature_of_2012(c: Any, any_device: str) -> None:
    assert c.set_2012() is False, "there was none"
    buffer = tack_memory.allocate(4096, any_device)
    address = buffer.device_ptr
    with pytest.raises(tack_memory.DeviceMemoryError):
        tack_memory.allocate(1 << 59, any_device)
    del buffer
    assert c.restore_2012() is True
    work()
    records = c.take()
    assert [r[:5] for r in records] == [(NEW, 77, 0, address, 4096), (FREE, 77, address, 0, 0)], "failures are not given to it"
    assert all(gil for *_, gil in records)


def test_moves_are_given_to_it(c: Any, device: str, budget: int) -> None:
    table = Table()
    c.set_2012()
    buffers = [tack_memory.allocate(1 << 20, device) for _ in range(20)]
    for buffer in buffers:
        buffer.device_ptr  # noqa: B018
    del buffers, buffer
    c.restore_2012()
    records = c.take()
    table.replay(records)
    assert RENEW in {r[0] for r in records} and table.wrong == [] and table.live == {}


def test_c_nests_in_python_and_python_in_c(c: Any) -> None:
    class Data:
        pass

    calls, hook = recorder()
    data = Data()
    gone = weakref.ref(data)
    tack_memory.set_event_hook(hook, data, sync=True)
    del data
    assert c.set_2012(1) is True, "C has got Python's hook as the previous one, and calls it in turn"
    work()
    assert len(calls) == 2 and len(c.take()) == 2 and calls[0][3] is gone()
    assert c.restore_2012() is True
    work()
    assert len(calls) == 4 and c.take() == []
    last = tack_memory.set_event_hook(None)
    assert last is not None and last.hook is hook and last.user_data is gone()
    calls.clear()
    del last
    gc.collect()
    assert gone() is None, "no reference is lost on the way"


def test_a_previous_hook_that_c_does_not_set_again(c: Any) -> None:
    calls, hook = recorder()
    gone = weakref.ref(hook)
    tack_memory.set_event_hook(hook)
    c.set_2012()
    c.forget_previous()
    del hook, calls
    gc.collect()
    assert gone() is None
    c.restore_2012()


def test_python_nests_in_c(c: Any) -> None:
    c.set_2012()
    calls, hook = recorder()
    previous = tack_memory.set_event_hook(hook, sync=True)
    assert previous is not None and previous.user_data is None and "capsule" in repr(previous)
    work()
    assert len(calls) == 2 and c.take() == []
    tack_memory.set_event_hook(previous)
    work()
    assert [r[:2] for r in c.take()] == [(NEW, 77), (FREE, 77)], "its function and its user data are there again"
    assert tack_memory.set_event_hook(None) is previous


def test_a_hook_in_a_capsule(c: Any) -> None:
    destroyed = c.capsules_destroyed()
    assert tack_memory.set_event_hook(c.capsule()) is None
    work()
    assert [r[:2] for r in c.take()] == [(NEW, 88), (FREE, 88)]
    previous = tack_memory.set_event_hook(None)
    assert c.capsules_destroyed() == destroyed, "the previous hook owns it"
    del previous
    assert c.capsules_destroyed() == destroyed + 1
    with pytest.raises(ValueError, match="must be named"):
        tack_memory.set_event_hook(tack_memory._C_API)
    with pytest.raises(TypeError):
        tack_memory.set_event_hook(c.capsule(), 1)


def test_a_c_hook_that_raises_is_switched_off(c: Any) -> None:
    c.set_2012(0, 1000)
    with unraisable() as caught, pytest.warns(RuntimeWarning, match="10 times in a row"):
        work(20)
    assert len(c.take()) == 10 and {str(e) for e in caught} == {"the hook in C has failed"}
    c.restore_2012()
    c.set_2012(0, 0)
    c.restore_2012()


# ---- the newer one


@pytest.mark.parametrize("flags", [0, WITHOUT_GIL])
def test_a_c_hook_with_all_of_an_event(c: Any, any_device: str, flags: int) -> None:
    token = c.add(DEVICE, flags)
    buffer = tack_memory.allocate(4096, any_device)
    address = buffer.device_ptr
    with pytest.raises(tack_memory.DeviceMemoryError):
        tack_memory.allocate(1 << 59, any_device)
    del buffer
    assert c.remove(token) == 0 and c.remove(token) == -1
    work()
    records = c.take()
    assert [r[:4] for r in records] == [(NEW, 1, 0, address), (FAIL, 1, 0, 0), (FREE, 1, address, 0)]
    assert records[0][5] < records[1][5] < records[2][5] and len({r[6] for r in records}) == 1


def test_wrong_arguments(c: Any) -> None:
    for domains, flags in [(0, 0), (16, 0), (1, 8)]:
        with pytest.raises(ValueError, match="add_event_hook"):
            c.add(domains, flags)


def test_names_of_devices(c: Any, any_device: str) -> None:
    names = [c.device_name(n) for n in range(-1, 20)]
    tack_memory.memory_info(any_device)
    assert names[0] is None and any_device in [c.device_name(n) for n in range(20)]


# ---- an allocator that tells of its memory


@pytest.mark.parametrize("without_gil", [0, 1])
def test_an_allocator_of_somebody_else(c: Any, without_gil: int) -> None:
    events: list[Event] = []
    token, nogil = c.add(PINNED), c.add(PINNED, WITHOUT_GIL)
    with tack_memory.event_hook(events.append, "pinned", sync=True):
        c.tell(NEW, PINNED_NUMBER, 0, 4096, 100, without_gil)
        c.tell(RENEW, PINNED_NUMBER, 4096, 8192, 100, without_gil)
        c.tell(FREE, PINNED_NUMBER, 8192, 0, 100, without_gil)
        work()
        tack_memory.flush_events()
    c.remove(token)
    c.remove(nogil)
    assert [(e.kind, e.domain, e.device, e.old, e.new) for e in events] == [
        ("new", "pinned", None, None, 4096), ("renew", "pinned", None, 4096, 8192), ("free", "pinned", None, 8192, None),
    ]  # fmt: skip
    records = c.take()
    assert len(records) == 6
    assert [gil for *_, gil in records].count(0) == (3 if without_gil else 0), "at once, and without the GIL, for the hook that needs none"
    c.tell(NEW, PINNED_NUMBER, 0, 4096, 100, without_gil)
    c.tell(NEW, 99, 0, 4096, 100, without_gil)
    assert c.take() == []


def test_what_comes_without_the_gil_is_told_in_order_by_the_next_who_has_it(c: Any) -> None:
    """Old events first, then the one that has the GIL."""
    events: list[Event] = []
    token = c.add(PINNED | SHARED | NUMPY)
    with tack_memory.event_hook(events.append, {"pinned", "shared", "numpy"}, sync=True):
        c.tell_both(PINNED_NUMBER, 100)
        assert [e.new for e in events] == [*range(64, 64 * 102, 64)]
    c.remove(token)
    assert [r[3] for r in c.take()] == [e.new for e in events]


def test_the_main_thread_is_asked_where_nobody_else_comes(c: Any) -> None:
    token = c.add(PINNED)
    c.tell(NEW, PINNED_NUMBER, 0, 64, 64, 1)
    for _ in range(1000):  # lines of the main thread
        pass
    assert len(c.take()) == 1
    c.remove(token)


def test_more_than_the_ring_holds_is_lost_and_counted(c: Any) -> None:
    token = c.add(PINNED)
    before = c.counts()
    c.tell_from_threads(16, 2000, PINNED_NUMBER)  # 96,000 events while this thread, which has the GIL next, waits
    tack_memory.flush_events()
    told = c.take()
    after = c.counts()
    assert after[2] - before[2] == 96_000 - 65_536 and after[0] - before[0] == 65_536 == len(told)
    c.tell(NEW, PINNED_NUMBER, 0, 64, 64, 1)
    c.flush()
    assert len(c.take()) == 1, "it goes on"
    c.remove(token)


def test_while_the_main_thread_waits_for_others_no_event_is_lost(c: Any) -> None:
    """More than the queue of a hook holds: then whoever comes calls the hook."""
    numbers: list[int] = []
    before = tack_memory.event_counts().dropped

    def other() -> None:
        time.sleep(0.3)  # until the main thread waits; it would deliver by itself else
        for address in range(64, 64 * 70_001, 64):
            c.tell(NEW, PINNED_NUMBER, 0, address, 64)

    with tack_memory.event_hook(lambda e: numbers.append(e.new or 0), "pinned"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert numbers == list(range(64, 64 * 70_001, 64)) and tack_memory.event_counts().dropped == before


def test_many_threads_and_a_slow_hook_lose_nothing(c: Any) -> None:
    """What waits for the one thread that delivers makes the others wait, and does not run over."""
    table, before = Table(), tack_memory.event_counts().dropped

    def slow(event: Event) -> None:
        table(event)
        if threading.current_thread() is first and not blocked.is_set():
            blocked.set()
            gate.wait()  # now the others only add

    def until_blocked() -> None:
        """Tells, and delivers, but for what the main thread delivers while it waits for this one to start."""
        while not blocked.is_set():
            c.tell_both(PINNED_NUMBER, 300)
            for place in range(1, 302):
                c.tell(FREE, PINNED_NUMBER, 64 * place, 0, 64)
            rounds.append(2 * 301)

    gate, blocked = threading.Event(), threading.Event()
    rounds: list[int] = []
    first = threading.Thread(target=until_blocked)

    def other(number: int) -> None:
        base = (1 << 40) + (number << 24)
        for _ in range(6000):
            c.tell(NEW, PINNED_NUMBER, 0, base, 64)
            c.tell(FREE, PINNED_NUMBER, base, 0, 64)

    with tack_memory.event_hook(slow, "pinned", sync=True):
        c.tell_both(PINNED_NUMBER, 0)
        threads = [threading.Thread(target=other, args=(n,)) for n in range(8)]
        table.live.clear()
        first.start()
        wait_until(blocked.is_set, "the hook was not called by the thread that tells")
        for thread in threads:
            thread.start()
        threading.Timer(0.3, gate.set).start()
        for thread in [*threads, first]:
            thread.join()
        tack_memory.flush_events()
    assert table.wrong == [] and table.events == 1 + sum(rounds) + 8 * 12_000 and tack_memory.event_counts().dropped == before
