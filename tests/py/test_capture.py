"""A host records a graph from a stream while tack_memory is at work: from the device's own stream, or from another one.

Each script runs in a process of its own, since whether the device has memory pools is settled when it is opened. It is the host, too: it calls the
vendor's functions in the software driver's library.
"""

from __future__ import annotations

import pytest
from support import run_python

HOST = """
    import ctypes, sys, time
    import tack_memory as tm
    from support import MIB, books_of, contents, filled, pattern, wait_until
    from tack_memory.hosts import sim_library

    device = sys.argv[1]
    hip = "hip" in device
    library = ctypes.CDLL(sim_library(device))

    def must(function, *arguments):
        code = getattr(library, function)(*arguments)
        assert code == 0, (function, code)

    def asked(function, *arguments, first=False):
        answer = ctypes.c_void_p()
        must(function, *((ctypes.byref(answer), *arguments) if first else (*arguments, ctypes.byref(answer))))
        return ctypes.c_void_p(answer.value)

    def other_stream():
        if not hip:
            must("cuCtxPushCurrent_v2", asked("cuDevicePrimaryCtxRetain", 0, first=True))
        return asked("hipStreamCreateWithFlags" if hip else "cuStreamCreate", 1, first=True)

    def begin(stream, mode):
        must("hipStreamBeginCapture" if hip else "cuStreamBeginCapture_v2", stream, mode)

    def end(stream):  # works only for a recording that nobody has spoiled
        must("hipGraphDestroy" if hip else "cuGraphDestroy", asked("hipStreamEndCapture" if hip else "cuStreamEndCapture", stream))

    def thread_mode():
        mode = ctypes.c_int(0)
        must("hipThreadExchangeStreamCaptureMode" if hip else "cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        return mode.value

    a, b, c = (filled(MIB, device, seed) for seed in (1, 2, 3))
    c.spill()
    tm.synchronize(device)
"""

pytestmark = [
    pytest.mark.parametrize("device", ["sim:0", "sim-hip:0"]),
    pytest.mark.parametrize("pools", ["1", "0"]),
]


def test_another_stream_is_captured(device: str, pools: str) -> None:
    """Everything goes on, and the recording is not spoiled, whatever its mode."""
    done = run_python(
        HOST
        + """
    stream = other_stream()
    for mode in (0, 1, 2):
        begin(stream, mode)
        a.spill(); c.restore()
        assert contents(a) == pattern(MIB, 1) and contents(c) == pattern(MIB, 3)
        made = filled(MIB, device, 4)
        tm.set_memory_budget(2 * MIB, device)  # lowered during the capture
        assert books_of(device) == (2 * MIB, 2 * MIB), books_of(device)
        tm.set_memory_budget(None, device)
        with tm.launch(a, b, c, made):
            assert books_of(device) == (4 * MIB, 0)
        made.free()
        tm.synchronize(device)
        tm.memory_info(device)
        assert thread_mode() == 0, "the thread's own mode is as it was"
        end(stream)
        a.spill(); b.restore(); c.spill()
    assert [contents(x) for x in (a, b, c)] == [pattern(MIB, seed) for seed in (1, 2, 3)]
    """,
        device,
        TMSOFT_POOLS=pools,
    )
    assert done.returncode == 0, done.stderr


def test_the_own_stream_is_captured(device: str, pools: str) -> None:
    """Nothing is moved or made, the error is typed and says why, a launch of what is resident goes on, and nothing was lost."""
    done = run_python(
        HOST
        + """
    stream = ctypes.c_void_p(tm.stream(device))
    for mode in (0, 1, 2):
        begin(stream, mode)
        for call in (
            a.spill,
            c.restore,
            a.copy_to_host,
            lambda: a.fill(0),
            lambda: tm.allocate(MIB, device),
            lambda: tm.launch(a, c).__enter__(),
            lambda: tm.set_memory_budget(MIB, device),
            lambda: tm.synchronize(device),
            lambda: tm.empty_cache(device),
        ):
            try:
                call()
            except tm.StreamCaptureError as error:
                assert device in str(error) and "the device's stream is being captured" in str(error), error
                assert "until the capture ends" in str(error), error
            else:
                raise AssertionError("it went through")
            assert books_of(device) == (2 * MIB, MIB), books_of(device)
            assert [x.state for x in (a, b, c)] == ["resident", "resident", "spilled"]
        with tm.launch(a, b):
            pass
        assert contents(c) == pattern(MIB, 3), "read from its copy in host memory"
        assert tm.get_memory_budget(device) == MIB, "set, and kept from the next allocation on"
        end(stream)
        tm.set_memory_budget(None, device)
        assert [contents(x) for x in (a, b, c)] == [pattern(MIB, seed) for seed in (1, 2, 3)]
        a.restore(); b.restore(); c.spill()
    """,
        device,
        TMSOFT_POOLS=pools,
    )
    assert done.returncode == 0, done.stderr


def test_memory_freed_during_a_capture_comes_back_after_it(device: str, pools: str) -> None:
    done = run_python(
        HOST
        + """
    stream = ctypes.c_void_p(tm.stream(device))
    begin(stream, 0)
    a.free()
    assert books_of(device) == (MIB, MIB)
    for _ in range(20):  # nor does it come back in the background, which would spoil the recording
        time.sleep(0.01)
        assert tm.memory_info(device).pending_free == MIB, tm.memory_info(device)
    end(stream)
    wait_until(lambda: tm.memory_info(device).pending_free == 0, "nobody gives it back")
    """,
        device,
        TMSOFT_POOLS=pools,
    )
    assert done.returncode == 0, done.stderr
