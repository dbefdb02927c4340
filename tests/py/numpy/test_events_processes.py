"""Hooks across fork, and at the end of Python; and what importing them brings in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from events_support import compile_module
from support import run_python


def lines(script: str, *arguments: str, **environment: str) -> list[str]:
    done = run_python(script, *arguments, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stderr.splitlines() if "AddressSanitizer failed to allocate" not in line]  # make asan: a size that is refused here, too
    assert not said
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def c_hooks(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_module(tmp_path_factory.mktemp("c_hooks")).parent)


def test_importing_the_package_loads_no_hooks() -> None:
    assert lines("""
        import sys
        import tack_memory
        buffer = tack_memory.allocate(100, "cpu")
        del buffer
        print("tack_memory._native._events" in sys.modules, "_events." in open("/proc/self/maps").read())
        tack_memory.event_hook
        print("tack_memory._native._events" in sys.modules, "numpy" in sys.modules, "set_event_hook" in dir(tack_memory))
    """) == ["False False", "True False True"]


def test_hooks_go_on_in_a_forked_child() -> None:
    """What waited at the fork is the parent's; what a child allocates and frees is told there, also of buffers of the parent's."""
    assert lines("""
        import os, sys
        import tack_memory as tm
        sync, deferred, legacy = [], [], []
        tm.set_event_hook(lambda old, new, size, data: legacy.append((bool(old), bool(new), size)), sync=True)
        hooks = [tm.event_hook(sync.append, sync=True).__enter__(), tm.event_hook(deferred.append).__enter__()]
        tm.flush_events()
        cpu, device = tm.allocate(100, "cpu"), tm.allocate(200, "sim:0")
        tm.flush_events()
        sync.clear(), deferred.clear(), legacy.clear()
        address = cpu.device_ptr
        def both():
            more = tm.allocate(300, "cpu"); del more   # nobody has delivered its events yet
            return os.fork()
        pid = both()
        if not pid:
            sync.clear(), deferred.clear(), legacy.clear()
            mine = tm.allocate(400, "cpu")
            del mine
            del cpu
            del device   # nothing happens to it here
            try:
                tm.allocate(1 << 59, "cpu")
            except MemoryError:
                pass
            try:
                tm.allocate(1, "sim:0")
            except tm.ForkError:
                pass
            tm.flush_events()
            print([(e.kind, e.new_size or e.old_size or e.requested) for e in sync], sync[2].old == address, sync[2].device, sync[0].thread == os.getpid())
            print([(e.kind, e.new_size or e.old_size or e.requested) for e in deferred])
            print(legacy, tm.event_counts().waiting)
            for hook in hooks: hook.__exit__(None, None, None)
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        tm.flush_events()
        print([e.kind for e in sync], [e.kind for e in deferred])
        del cpu, device
        tm.flush_events()
        print([e.kind for e in sync], [e.kind for e in deferred])
    """) == [
        "[('new', 400), ('free', 400), ('free', 100), ('fail', 576460752303423488)] True cpu True",
        "[('new', 400), ('free', 400), ('free', 100), ('fail', 576460752303423488)]",
        "[(False, True, 400), (True, False, 0), (True, False, 0)] 0",
        "['new', 'free'] ['new', 'free']",
        "['new', 'free', 'free', 'free'] ['new', 'free', 'free', 'free']",
    ]  # fmt: skip


def test_fork_in_a_hook_and_while_other_threads_are_in_hooks() -> None:
    """A child whose other threads were inside hooks, holding collections off and taking events, is not left waiting for them."""
    assert lines("""
        import gc, os, sys, threading
        import tack_memory as tm
        inside, go_on = threading.Event(), threading.Event()
        def slow(event):
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                go_on.wait()
        hook = tm.event_hook(slow, sync=True).__enter__()
        def other():
            tm.allocate(100, "cpu")
        thread = threading.Thread(target=other); thread.start(); inside.wait()
        assert not gc.isenabled()
        events = []
        pid = os.fork()
        if not pid:
            assert gc.isenabled(), "the other thread's hook does not end here"
            with tm.event_hook(events.append, sync=True), tm.event_hook(events.append):
                b = tm.allocate(10, "cpu"); del b
            hook.__exit__(None, None, None)
            print(sorted(e.kind for e in events), flush=True)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        go_on.set(); thread.join()
        hook.__exit__(None, None, None)
        assert gc.isenabled()

        pids, victims = [], [tm.allocate(20, "cpu")]
        def forking(event):
            if not pids:
                victims.clear()   # waits until this hook has returned
                pids.append(os.fork())
                if not pids[0]:
                    pids[0] = -1
        later, at_once = [], []
        with tm.event_hook(later.append), tm.event_hook(forking, sync=True), tm.event_hook(at_once.append, sync=True):
            b = tm.allocate(10, "cpu")
        if pids == [-1]:
            with tm.event_hook(events.append):
                del b
            print([e.kind for e in events], gc.isenabled(), [e.kind for e in later], [e.kind for e in at_once], flush=True)
            os._exit(0)
        assert os.waitpid(pids[0], 0)[1] == 0
        print([e.kind for e in later], [e.kind for e in at_once], flush=True)  # before the next fork copies what is buffered

        # Another thread is calling a hook with what waits.
        inside.clear(); go_on.clear()
        def delivers():
            b = tm.allocate(30, "cpu"); del b
            tm.flush_events()
        with tm.event_hook(slow):
            thread = threading.Thread(target=delivers); thread.start(); inside.wait()
            pid = os.fork()
            if not pid:
                tm.flush_events()
                print(tm.event_counts().waiting, flush=True)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            go_on.set(); thread.join()
    """) == ["['free', 'free', 'new', 'new']", "['free'] True [] ['new']", "['new', 'free'] ['new', 'free']", "0"]  # fmt: skip


def test_a_hook_that_forks_while_what_waits_is_delivered(c_hooks: str) -> None:
    """The child has none of it, and goes on behind the flush."""
    assert lines("""
        import functools, operator, os, signal, sys
        sys.path.insert(0, sys.argv[1])
        import c_hooks
        import tack_memory as tm
        children, events = [], []
        def forking(event):
            events.append(event)
            if len(events) == 2:
                children.append(os.fork())
                if not children[0]:
                    signal.alarm(60)   # what fails here would go on for ever
        with tm.event_hook(forking, "pinned", sync=True):
            tell = functools.partial(c_hooks.tell_from_threads, 2, 50, 2)
            list(map(operator.call, [tell, tm.flush_events]))   # in C: the main thread delivers nothing in between
            count = len(events)
        if not children[0]:
            print(count, tm.event_counts().waiting, flush=True)
            os._exit(0)
        assert os.waitpid(children[0], 0)[1] == 0
        print(count > 2, tm.event_counts().waiting)
    """, c_hooks) == ["2 0", "True 0"]  # fmt: skip


def test_a_c_hook_goes_on_in_a_forked_child(c_hooks: str) -> None:
    assert lines(
        """
        import os, sys
        sys.path.insert(0, sys.argv[1])
        import tack_memory as tm
        import c_hooks as c
        c.set_2012(); c.add(2, 1); token = c.add(2)
        pid = os.fork()
        if not pid:
            c.take()
            b = tm.allocate(10, "cpu"); del b
            c.tell_from_threads(2, 10, 2)
            print(len(c.take()), c.remove(token), c.restore_2012(), flush=True)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print(len(c.take()))
    """,
        c_hooks,
    ) == ["66 0 True", "0"]


END = """
    import os, sys, threading, atexit
    sys.path.insert(0, sys.argv[1])
    import tack_memory as tm
    import c_hooks as c
    tell = lambda event: os.write(1, f"{event.kind}\\n".encode())  # print() in a daemon thread can be fatal when Python ends (_enter_buffered_busy)
    kept = tm.event_hook(tell, {0}).__enter__()
    tm.set_event_hook(lambda *args: None, object(), sync=True)
    c.set_2012(1); c.add(2); c.add(2, 1)
    buffers = [tm.allocate(100, "cpu") for _ in range(3)]
    class Late:
        def __init__(self):
            self.me = self
            self.buffers = [tm.allocate(64, "cpu"), tm.allocate(64, "sim:0")]
        def __del__(self):
            tm.allocate(10, "cpu")
    late = Late()
    sys.modules["keeps_it_to_the_very_end"] = late
    def busy():
        while True:
            b = tm.allocate(10, "cpu"); del b
            c.tell_from_threads(1, 1, 1)
    {1}
"""


@pytest.mark.parametrize("options", ["'device'", "'device', sync=True"])
@pytest.mark.parametrize("last", ["", "threading.Thread(target=busy, daemon=True).start()", "buffers.append(buffers)"])
def test_python_ends_well_with_hooks_and_memory_left(c_hooks: str, options: str, last: str) -> None:
    done = run_python(END.replace("{0}", options).replace("{1}", last), c_hooks)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.splitlines()[:5] == ["new"] * 5, "what waited is delivered before Python ends"


@pytest.mark.parametrize(
    ("options", "starts"),
    [("'device', sync=True", "tm.allocate(100, 'cpu')"), ("'device'", "[tm.allocate(100, 'cpu') for _ in range(5)]; tm.flush_events()")],
)
def test_python_ends_where_a_daemon_thread_is_stuck_in_a_hook(c_hooks: str, options: str, starts: str) -> None:
    done = run_python(
        f"""
        import sys, threading
        sys.path.insert(0, sys.argv[1])
        import tack_memory as tm
        import c_hooks as c
        inside, never = threading.Event(), threading.Event()
        def hook(event):
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                never.wait()
        def work():
            {starts}
            c.tell_from_threads(1, 1, 1)
        kept = tm.event_hook(hook, {options}).__enter__()
        threading.Thread(target=work, daemon=True).start()
        inside.wait()
        tm.allocate(10, "cpu")
        c.tell_from_threads(1, 1, 1)
        print("the program is done", flush=True)
        """,
        c_hooks,
        timeout=60,
    )
    assert done.returncode == 0 and done.stdout == "the program is done\n" and done.stderr == "", done.stderr


def test_a_hook_that_does_not_end_does_not_hide_the_error_of_the_program() -> None:
    done = run_python("""
        import tack_memory as tm
        kept = tm.event_hook(lambda e: print(e.kind)).__enter__()
        b = tm.allocate(10, "cpu")
        raise SystemExit(7)
    """)
    assert done.returncode == 7 and done.stdout.split() == ["new", "free"][: len(done.stdout.split())] and "new" in done.stdout


def test_loading_it_twice_is_refused() -> None:
    script = """
        import importlib.util, sys
        import tack_memory
        tack_memory.event_hook
        from tack_memory._native import _events
        spec = importlib.util.spec_from_file_location("tack_memory._native._events", _events.__file__)
        try:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        except ImportError as error:
            print(error)
    """
    assert lines(script) == ["tack_memory._native._events can be loaded once per process only"]


def test_what_is_said_in_another_process_of_the_header(tmp_path: Path) -> None:
    out: Any = lines("import tack_memory, os; print(os.listdir(tack_memory.get_include()))")
    assert out == ["['tack_memory.h']"]
