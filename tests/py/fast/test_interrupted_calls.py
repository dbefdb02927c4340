"""Ctrl-C and other signals while a call is under way: it ends soon, and what it had done is undone or whole."""

from __future__ import annotations

import pytest
from support import run_python

PREAMBLE = """
    import os, signal, sys, threading, time
    import tack_memory as tm
    from tack_memory._native import _fast
    from support import MIB, SoftDriver, contents, filled, pattern

    soft = SoftDriver()

    inside = threading.Event()  # the main thread is where it can be interrupted

    def interrupt_when(ready):
        inside.clear()
        return signal_when(lambda: inside.is_set() and ready(), signal.SIGINT)

    def signal_when(ready, number):
        def wait():
            while not ready():
                time.sleep(0.005)
            time.sleep(0.1)  # until it is in the middle of it; a signal that is early or late interrupts less, and nothing goes wrong
            os.kill(os.getpid(), number)
        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def interrupted(call):
        began = time.monotonic()
        try:
            inside.set()
            call()
        except KeyboardInterrupt:
            return time.monotonic() - began < 20
        return "no KeyboardInterrupt"
    """


def test_a_launch_that_waits_for_another() -> None:
    done = run_python(
        PREAMBLE
        + """
    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    first, second = filled(5 * MIB, "sim:0", 1), filled(5 * MIB, "sim:0", 2)
    entered, end = threading.Event(), threading.Event()
    def other():
        with tm.launch(first):
            entered.set()
            end.wait()
    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    interrupt_when(lambda: True)
    print(interrupted(lambda: _fast.enter_launch([second])), second.holds, second.state)
    interrupt_when(lambda: True)
    print(interrupted(lambda: tm.launch(second).__enter__()), second.holds, second.state)
    interrupt_when(lambda: True)
    print(interrupted(lambda: second.hold("x").__enter__()), second.holds, second.state)
    end.set()
    thread.join()
    with tm.launch(second):
        print(first.state, contents(second) == pattern(5 * MIB, 2))
    """
    )
    assert done.stdout.splitlines() == ["True {} spilled"] * 3 + ["spilled True"], done.stdout + done.stderr


def test_lowering_a_budget() -> None:
    done = run_python(
        PREAMBLE
        + """
    buffers = [filled(16 * MIB, "sim:0", seed) for seed in range(6)]
    soft.set("copy_mib_s", 16)
    interrupt_when(lambda: any(b.state == "spilling" for b in buffers))
    print(interrupted(lambda: tm.set_memory_budget(16 * MIB, "sim:0")))
    soft.set("copy_mib_s", 0)
    info = tm.memory_info("sim:0")
    print(info.footprint == 96 * MIB, info.spilled < 80 * MIB, info.budget == 16 * MIB)
    tm.set_memory_budget(None, "sim:0")
    print(all(contents(b) == pattern(16 * MIB, seed) for seed, b in enumerate(buffers)))
    """
    )
    assert done.stdout.split() == ["True"] * 5, done.stdout + done.stderr


def test_a_handler_that_does_not_raise_may_use_the_library() -> None:
    done = run_python(
        PREAMBLE
        + """
    buffer = filled(48 * MIB, "sim:0")
    seen = []
    def handler(number, frame):
        soft.set("copy_mib_s", 0)  # it need not take longer
        seen.append(tm.memory_info("sim:0").in_use)
        small = tm.allocate(100, "cpu")
        small.fill(1)
        seen.append(bytes(small.copy_to_host(nbytes=2)))
    signal.signal(signal.SIGUSR1, handler)
    soft.set("copy_mib_s", 4)
    signal_when(lambda: buffer.state == "spilling", signal.SIGUSR1)
    print(buffer.spill() == 48 * MIB, seen == [48 * MIB, b"\\x01\\x01"])
    print(contents(buffer) == pattern(48 * MIB))
    """
    )
    assert done.stdout.split() == ["True", "True", "True"], done.stdout + done.stderr


@pytest.mark.parametrize("call", ["allocate", "reserve", "hold", "export", "launch", "restore", "device_ptr", "make_room", "spill_all", "free"])
def test_each_long_call_can_be_interrupted_and_leaves_nothing(call: str) -> None:
    """A handler that raises at once: whether the call is cut short or done by then, nothing of it may be left."""
    done = run_python(
        PREAMBLE
        + """
    old, new = filled(48 * MIB, "sim:0", 1), filled(48 * MIB, "sim:0", 2)
    old.spill()
    new.device_ptr
    tm.empty_cache("sim:0")  # else what it gives back is room enough
    tm.set_memory_budget(64 * MIB, "sim:0")
    busy = filled(MIB, "sim:1")
    calls = {
        "allocate": lambda: tm.allocate(48 * MIB, "sim:0"),
        "reserve": lambda: tm.reserve(48 * MIB, "sim:0"),
        "hold": lambda: old.hold("x").__enter__(),
        "export": lambda: old.export("x"),
        "launch": lambda: _fast.enter_launch([old]),
        "restore": old.restore,
        "device_ptr": lambda: old.device_ptr,
        "make_room": lambda: tm._native._fast.make_room(48 * MIB, "sim:0"),
        "spill_all": lambda: _fast.spill_all("sim:0"),
        "free": lambda: None,
    }
    before = tm.memory_info("sim:0")
    soft.set("copy_mib_s", 24)
    if sys.argv[1] == "free":  # wants the lock that another thread has
        thread = threading.Thread(target=new.spill)
        thread.start()
        calls["free"] = old.free
    waiter = interrupt_when(lambda: new.state == "spilling")
    print(interrupted(calls[sys.argv[1]]))
    waiter.join()
    if sys.argv[1] == "free":
        thread.join()
    soft.set("copy_mib_s", 0)
    after = tm.memory_info("sim:0")
    print(after.footprint == before.footprint, after.reserved, old.holds, new.holds)
    tm._control.call("Check", tm._devices.resolve("sim:0"))
    tm.set_memory_budget(None, "sim:0")
    print(contents(old) == pattern(48 * MIB, 1), contents(new) == pattern(48 * MIB, 2))
    """,
        call,
    )
    assert done.stdout.split() == ["True", "True", "0", "{}", "{}", "True", "True"], done.stdout + done.stderr


def test_a_handler_that_forks() -> None:
    """In the child the call that was interrupted has no end of its own: it raises ForkError; the parent's goes on."""
    done = run_python(
        PREAMBLE
        + """
    buffer = filled(48 * MIB, "sim:0")
    children = []
    def handler(number, frame):
        children.append(os.fork())
        if children[0]:
            soft.set("copy_mib_s", 0)  # it need not take longer
    signal.signal(signal.SIGUSR1, handler)
    soft.set("copy_mib_s", 4)
    signal_when(lambda: buffer.state == "spilling", signal.SIGUSR1)
    try:
        spilled = buffer.spill()
    except tm.ForkError:
        os._exit(7 if children == [0] else 8)
    print(spilled == 48 * MIB, os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]), contents(buffer) == pattern(48 * MIB))
    """,
        timeout=60,
    )
    assert done.stdout.split() == ["True", "7", "True"], done.stdout + done.stderr
