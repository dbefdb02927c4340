"""Hooks that do what hooks should not: allocate, raise, collect garbage, set other hooks, and end in another order than they began."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from events_support import Table

import tack_memory
from tack_memory import Event, EventHook


@contextmanager
def unraisable() -> Iterator[list[Any]]:
    """What went to sys.unraisablehook."""
    caught: list[Any] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda args: caught.append(args.exc_value)
    try:
        yield caught
    finally:
        sys.unraisablehook = before


def work(count: int = 1, nbytes: int = 100) -> None:
    """Each time a new buffer and its free."""
    for _ in range(count):
        buffer = tack_memory.allocate(nbytes, "cpu")
        del buffer


# ---- what hooks allocate


@pytest.mark.parametrize("sync", [True, False])
def test_what_a_hook_allocates_is_never_told(any_device: str, sync: bool) -> None:
    table, kept = Table(), []
    before = tack_memory.event_counts().suppressed

    def hook(event: Event) -> None:
        table(event)
        kept.append(tack_memory.allocate(10, any_device))
        temporary = tack_memory.allocate(20, any_device)
        del temporary

    with tack_memory.event_hook(hook, sync=sync):
        for _ in range(5):
            buffer = tack_memory.allocate(100, any_device)
            del buffer
        tack_memory.flush_events()
        assert table.events == 10 and table.live == {} and table.wrong == []
        kept.clear()  # outside of the hook: still its own
        tack_memory.flush_events()
        assert table.events == 10
    assert tack_memory.event_counts().suppressed - before == 10 * 4


@pytest.mark.parametrize("sync", [True, False])
def test_what_ends_while_a_hook_runs_is_told_behind_it(sync: bool) -> None:
    table, depth, depths = Table(), 0, []
    victims = [tack_memory.allocate(100, "cpu") for _ in range(3)]
    addresses = {v.device_ptr for v in victims}
    table.live = dict.fromkeys(addresses, 100)

    def hook(event: Event) -> None:
        nonlocal depth
        depth += 1
        depths.append(depth)
        table(event)
        if victims:
            victims.pop()
        depth -= 1

    with tack_memory.event_hook(hook, sync=sync):
        work()
    assert depths == [1] * 5 and table.live == {} and table.wrong == []


def test_a_hook_that_moves_told_memory_each_time_comes_to_an_end(device: str) -> None:
    buffer = tack_memory.allocate(4096, device)
    moves = 0

    def hook(event: Event) -> None:
        nonlocal moves
        moves += 1
        if buffer.is_spilled:
            buffer.restore()
        else:
            buffer.spill()

    before = tack_memory.event_counts().suppressed
    with tack_memory.event_hook(hook, sync=True):
        work()
    assert 100 < moves <= 2 * 1002, "it is called again for what it has moved, but not for ever"
    assert tack_memory.event_counts().suppressed > before
    del hook


# ---- garbage


class Node:
    """In a cycle, with a buffer."""

    def __init__(self, device: str) -> None:
        self.me, self.buffer = self, tack_memory.allocate(64, device)


@pytest.mark.parametrize("sync", [True, False])
def test_a_hook_that_collects_garbage_while_cycles_with_buffers_die(any_device: str, sync: bool) -> None:
    table = Table()
    alive: weakref.WeakSet[Node] = weakref.WeakSet()

    def hook(event: Event) -> None:
        table(event)
        gc.collect()

    gc.freeze()  # what the other tests have left is looked at 100 times else
    try:
        with tack_memory.event_hook(hook, sync=sync):
            for _ in range(60):
                node = Node(any_device)
                alive.add(node)
                del node
            gc.collect()
            tack_memory.flush_events()
    finally:
        gc.unfreeze()
    assert len(alive) == 0
    assert table.wrong == [] and table.live == {}, "each address was told as new once, and as freed once"
    assert table.events == 120


def test_automatic_collections_are_off_in_a_sync_hook_and_on_again_after_it() -> None:
    states: list[bool] = []
    assert gc.isenabled()
    with tack_memory.event_hook(lambda e: states.append(gc.isenabled()), sync=True):
        work()
        assert gc.isenabled()
        gc.disable()
        try:
            work()
            assert not gc.isenabled(), "the program's own choice stays"
        finally:
            gc.enable()
    assert states == [False] * 4
    with tack_memory.event_hook(lambda e: states.append(gc.isenabled())):
        work()
    assert states[4:] == [True] * 2


# ---- exceptions


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("sync", [True, False])
def test_a_hook_that_always_raises_is_switched_off_after_ten_calls(sync: bool, legacy: bool) -> None:
    calls = 0

    def fail(*_: object) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("of the hook")

    with unraisable() as caught, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if legacy:
            tack_memory.set_event_hook(fail, sync=sync)
            work(20)
            tack_memory.flush_events()
            old = tack_memory.set_event_hook(None)
            assert old is not None and old.hook is fail, "whoever set it finds it"
        else:
            with tack_memory.event_hook(fail, sync=sync):
                work(20)
    assert calls == 10 and len(caught) == 10 and all(type(e) is ValueError for e in caught)
    assert len(warned) == 1 and warned[0].category is RuntimeWarning and "10 times in a row" in str(warned[0].message)


@pytest.mark.parametrize("legacy", [True, False])
def test_nothing_waits_for_a_hook_that_is_switched_off(legacy: bool) -> None:
    """Else the main thread would be asked again at each of its lines to deliver what nobody takes."""
    calls = 0

    def fail(*_: object) -> None:
        nonlocal calls
        calls += 1
        raise ValueError

    before = tack_memory.event_counts()
    with unraisable(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hook = tack_memory.event_hook(fail)
        if legacy:
            tack_memory.set_event_hook(fail)
        else:
            hook.__enter__()
        kept = list(map(tack_memory.allocate, [10] * 200, ["cpu"] * 200))  # in C: nothing is delivered before the last one
        tack_memory.flush_events()
        after = tack_memory.event_counts()
        kept.clear()
        ended = tack_memory.event_counts()
        if legacy:
            tack_memory.set_event_hook(None)
        else:
            hook.__exit__(None, None, None)
    assert calls == 10
    assert after.waiting == ended.waiting == before.waiting
    assert after.dropped == ended.dropped == before.dropped + 190, "they are lost, and counted; what comes later is for nobody"


def test_nine_failures_and_a_success_count_as_none() -> None:
    calls = 0

    def hook(event: Event) -> None:
        nonlocal calls
        calls += 1
        if calls % 10:
            raise ValueError

    with unraisable() as caught, tack_memory.event_hook(hook, sync=True):
        work(50)
    assert calls == 100 and len(caught) == 90


def test_where_warnings_are_errors_the_program_goes_on() -> None:
    def fail(event: Event) -> None:
        raise ValueError

    with unraisable() as caught, warnings.catch_warnings(), tack_memory.event_hook(fail, sync=True):
        warnings.simplefilter("error")
        work(10)
    assert [type(e) for e in caught] == [ValueError] * 10 + [RuntimeWarning]


def test_an_exception_that_is_on_its_way_stays(any_device: str) -> None:
    """A call that has failed lets go of its arguments while its exception is set."""
    events: list[Event] = []
    fails: Any = len

    def hook(event: Event) -> None:
        events.append(event)
        try:
            raise ValueError("handled")
        except ValueError:
            pass
        raise ValueError("not handled")

    with unraisable(), tack_memory.event_hook(hook, sync=True), pytest.raises(TypeError, match="exactly one argument"):
        fails(tack_memory.allocate(10, any_device), 1)
    assert [e.kind for e in events] == ["new", "free"]


@pytest.mark.parametrize("sync", [True, False])
def test_ctrl_c_in_a_hook_reaches_the_program(sync: bool) -> None:
    calls = 0

    def hook(event: Event) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            signal.raise_signal(signal.SIGINT)  # the handler runs in the hook, at its next line
            for _ in range(1000):
                pass

    with unraisable() as caught:
        with pytest.raises(KeyboardInterrupt), tack_memory.event_hook(hook, sync=sync):
            work()
            tack_memory.flush_events()
            for _ in range(1000):
                pass
    assert caught == [] and calls >= 1


@pytest.mark.parametrize("sync", [True, False])
def test_system_exit_of_a_hook_does_not_end_the_program(sync: bool) -> None:
    def hook(event: Event) -> None:
        raise SystemExit(3)

    with unraisable() as caught, tack_memory.event_hook(hook, sync=sync):
        work()
    assert [type(e) for e in caught] == [SystemExit] * 2


# ---- hooks that come and go


@pytest.mark.parametrize("sync", [True, False])
def test_a_hook_that_ends_itself(sync: bool) -> None:
    calls = 0

    def hook(event: Event) -> None:
        nonlocal calls
        calls += 1
        one.__exit__(None, None, None)

    one = tack_memory.event_hook(hook, sync=sync).__enter__()
    work(3)
    tack_memory.flush_events()
    assert calls == 1
    with pytest.raises(RuntimeError, match="left already"):
        one.__exit__(None, None, None)


def test_a_hook_that_adds_and_removes_hooks() -> None:
    inner: list[Event] = []
    hooks: list[tack_memory.event_hook] = []

    def hook(event: Event) -> None:
        if hooks:
            hooks.pop().__exit__(None, None, None)
        else:
            hooks.append(tack_memory.event_hook(inner.append, sync=True).__enter__())

    with tack_memory.event_hook(hook, sync=True):
        work()  # adds at the new one: it hears nothing of that event
        assert [e.kind for e in inner] == []  # and is removed before its turn at the free
        work()
    assert inner == [] and hooks == []


def test_hooks_end_in_any_order(any_device: str) -> None:
    lists: list[list[str]] = [[] for _ in range(4)]
    hooks = [tack_memory.event_hook(lambda e, mine=mine: mine.append(e.kind), sync=True) for mine in lists]
    for hook in hooks:
        hook.__enter__()
    for place in (1, 3, 0, 2):
        buffer = tack_memory.allocate(10, any_device)
        hooks[place].__exit__(None, None, None)
        del buffer
    assert [len(mine) for mine in lists] == [5, 1, 7, 3]


def test_entering_twice_and_leaving_twice() -> None:
    hook = tack_memory.event_hook(print)
    with pytest.raises(RuntimeError, match="not entered"):
        hook.__exit__(None, None, None)
    with hook:
        assert "open" in repr(hook)
        with pytest.raises(RuntimeError, match="entered already"):
            hook.__enter__()
    with pytest.raises(RuntimeError, match="left already"):
        hook.__exit__(None, None, None)


@pytest.mark.parametrize("sync", [True, False])
def test_a_hook_that_is_dropped_ends_itself(sync: bool) -> None:
    events: list[Event] = []
    before = tack_memory.event_counts().waiting
    dropped = tack_memory.event_hook(events.append, sync=sync).__enter__()
    work()
    del dropped
    told = len(events)
    work()
    tack_memory.flush_events()
    assert len(events) == told and tack_memory.event_counts().waiting == before


@contextmanager
def interrupted_at(function: Callable[..., Any], instruction: int) -> Iterator[list[int]]:
    """Ctrl-C before one instruction of the next call of a function. Gives a list that has the instruction then, where there are so many."""
    met: list[int] = []
    at = 0

    def trace(frame: Any, kind: str, arg: Any) -> Any:
        nonlocal at
        frame.f_trace_opcodes = True
        if kind == "opcode" and frame.f_code is function.__code__:
            at += 1
            if at == instruction:
                met.append(at)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            yield met
    finally:
        sys.settrace(None)


def test_ctrl_c_while_a_hook_is_added_leaves_none_behind() -> None:
    """It comes between the end of the C function and the next line of Python."""
    events: list[Event] = []
    interrupted = 0
    for instruction in range(1, 12):
        with interrupted_at(tack_memory.event_hook.__enter__, instruction) as met, tack_memory.event_hook(events.append, sync=True):
            pass
        interrupted += len(met)
        gc.collect()
        work()
    assert interrupted > 5 and events == []


def test_ctrl_c_while_a_hook_is_removed_leaves_none_behind() -> None:
    """At any instruction of the end of the block: the hook is gone then, or can be removed still."""
    events: list[Event] = []
    interrupted = 0
    for instruction in range(1, 25):
        hook = tack_memory.event_hook(events.append, sync=True).__enter__()
        with interrupted_at(tack_memory.event_hook.__exit__, instruction) as met:
            hook.__exit__(None, None, None)
        interrupted += len(met)
        if "open" in repr(hook):
            hook.__exit__(None, None, None)
        work()
    assert interrupted > 5 and events == []


def test_the_end_of_the_block_delivers_what_waits() -> None:
    events: list[Event] = []
    with tack_memory.event_hook(events.append):
        work(500)
    assert len(events) == 1000 and [e.seq for e in events] == sorted(e.seq for e in events)


def test_a_hook_hears_nothing_of_what_was_before_it() -> None:
    first: list[Event] = []
    second: list[Event] = []
    with tack_memory.event_hook(first.append):
        work()
        with tack_memory.event_hook(second.append):
            pass
    assert len(first) == 2 and second == []


# ---- set_event_hook


def recorder() -> tuple[list[tuple[Any, ...]], Callable[..., None]]:
    calls: list[tuple[Any, ...]] = []
    return calls, lambda *args: calls.append(args)


@pytest.mark.parametrize("sync", [True, False])
def test_the_signature_of_2012(any_device: str, sync: bool) -> None:
    calls, hook = recorder()
    data = object()
    assert tack_memory.set_event_hook(hook, data, sync=sync) is None
    buffer = tack_memory.allocate(4096, any_device)
    address = buffer.device_ptr
    with pytest.raises(tack_memory.DeviceMemoryError):
        tack_memory.allocate(1 << 59, any_device)
    del buffer
    tack_memory.set_event_hook(None)
    assert calls == [(0, address, 4096, data), (address, 0, 0, data)], "a failure is not told"
    work()
    assert len(calls) == 2


def test_the_previous_hook_comes_back_with_its_user_data() -> None:
    class Data:
        pass

    outer_calls, outer = recorder()
    inner_calls, inner = recorder()
    data = Data()
    gone = weakref.ref(data)
    assert tack_memory.set_event_hook(outer, data, sync=True) is None
    del data
    previous = tack_memory.set_event_hook(inner, "inner", sync=True)
    assert isinstance(previous, EventHook)
    assert (previous.hook, previous.user_data, previous.sync) == (outer, gone(), True) and "sync" in repr(previous)
    work()
    assert len(inner_calls) == 2 and outer_calls == []
    replaced = tack_memory.set_event_hook(previous)
    assert replaced is not None and replaced.user_data == "inner"
    work()
    assert len(outer_calls) == 2 and outer_calls[0][3] is gone() and len(inner_calls) == 2
    last = tack_memory.set_event_hook(None)
    assert last is previous
    outer_calls.clear()
    assert gone() is not None, "the hook that was handed back owns it"
    del previous, replaced, last
    gc.collect()
    assert gone() is None


def test_set_and_event_hook_listen_side_by_side() -> None:
    calls, hook = recorder()
    events: list[Event] = []
    tack_memory.set_event_hook(hook, sync=True)
    with tack_memory.event_hook(events.append, sync=True):
        work()
        tack_memory.set_event_hook(None)
        work()
    assert len(calls) == 2 and len(events) == 4


def test_a_hook_that_sets_another_one() -> None:
    calls, second = recorder()
    previous: list[object] = []

    def first(old: int, new: int, size: int, data: object) -> None:
        previous.append(tack_memory.set_event_hook(second, "second", sync=True))

    tack_memory.set_event_hook(first, sync=True)
    work(2)
    assert len(previous) == 1 and isinstance(previous[0], EventHook) and previous[0].hook is first
    assert len(calls) == 3 and {c[3] for c in calls} == {"second"}
    tack_memory.set_event_hook(None)


def test_wrong_arguments() -> None:
    set_event_hook: Any = tack_memory.set_event_hook
    event_hook: Any = tack_memory.event_hook
    previous = set_event_hook(print, 1)
    assert previous is None
    mine = set_event_hook(None)
    for wrong, error in [((1,), TypeError), (("x",), TypeError), ((), TypeError), ((None, 1), TypeError), ((mine, 1), TypeError)]:
        with pytest.raises(error):
            set_event_hook(*wrong)
    with pytest.raises(TypeError):
        set_event_hook(mine, sync=True)
    assert set_event_hook(None) is None, "nothing was set by all that"
    with pytest.raises(TypeError, match="callable"):
        event_hook(1)
    with pytest.raises(ValueError, match="there are numpy, device, pinned, shared"):
        event_hook(print, "gpu")
    with pytest.raises(ValueError, match="empty"):
        event_hook(print, ())
    with pytest.raises(TypeError, match="names"):
        event_hook(print, (1,))
    with pytest.raises(TypeError):
        event_hook(print, "device", True)  # sync is by name


def test_a_hook_on_another_thread_has_the_events_of_all_threads() -> None:
    events: list[Event] = []
    ids: list[int] = []

    def other() -> None:
        ids.append(threading.get_native_id())
        work()

    with tack_memory.event_hook(events.append, sync=True):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        work()
    assert [e.thread for e in events] == [ids[0]] * 2 + [threading.get_native_id()] * 2
