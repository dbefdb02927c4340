"""The end of launch(..., stream=...): its holds last until the device comes after the launch's work, or that work is over, whatever fails or interrupts it.

Each operation of the software driver takes long here, so whoever ends a hold too early moves the memory before the launch's work has run. Each script is the
host, too (test_stream_order.py)."""

from __future__ import annotations

import pytest
from support import SIMULATED, run_python
from test_stream_order import HOST

HOST += """
    import os, signal, threading

    RECORD = {"sim:0": "cuEventRecord", "sim-hip:0": "hipEventRecord", "sim-level_zero:0": "zeCommandListHostSynchronize"}[device]
    WAIT = {"sim:0": "cuStreamWaitEvent", "sim-hip:0": "hipStreamWaitEvent"}.get(device)
    FAILS = 999 if WAIT else 0x7FFFFFFE
    buffer = filled(N, device)

    def queue(pointer):
        for value in range(1, QUEUED + 1):
            host.fill(pointer, value)

    def no_join():  # neither the first attempt nor the second; Level Zero has none, and waits
        if WAIT:
            soft.fail(RECORD, 1, FAILS)
            soft.fail(WAIT, 1, FAILS)

    def interrupt_soon():
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

    def is_kept():
        assert buffer.holds == {"launch": 1}, buffer.holds
        assert buffer.spill() == 0 and buffer.state == "resident"
        try:
            buffer.free()
        except BufferError:
            return
        raise AssertionError("freed while the launch's work still runs")

    def is_right():
        found = contents(buffer)
        assert found == bytes([QUEUED]) * N, ("moved before the launch's work had run", found[:1])
"""

WITH_DEFAULT_STREAMS = SIMULATED[:2]


def run(device: str, script: str) -> str:
    done = run_python(HOST + script, device, TMSOFT_QUARANTINE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.parametrize("device", SIMULATED)
def test_a_driver_call_that_fails_at_the_end(device: str) -> None:
    run(
        device,
        """
    soft.set("delay_us", 5000)
    with tm.launch(buffer, stream=host.stream.value) as (pointer,):
        queue(pointer)
        soft.fail(RECORD, 1, FAILS)
    assert buffer.holds == {} and buffer.spill() == N
    is_right()
    """,
    )


@pytest.mark.parametrize("device", SIMULATED)
def test_streams_that_cannot_be_joined_are_waited_for(device: str) -> None:
    run(
        device,
        """
    soft.set("delay_us", 5000)
    told = None
    try:
        with tm.launch(buffer, stream=host.stream.value) as (pointer,):
            queue(pointer)
            no_join()
    except RuntimeError as error:
        told = error
    assert (told is not None) == (WAIT is not None), told
    assert buffer.holds == {} and buffer.spill() == N
    is_right()
    """,
    )


def test_ctrl_c_in_the_handler_of_what_waits_to_be_logged() -> None:
    run(
        "sim:0",
        """
    import logging
    from support import doomed
    from tack_memory import _logging

    class Handler(logging.Handler):
        def emit(self, record):
            _logging.logger().removeHandler(self)
            signal.raise_signal(signal.SIGINT)

    lost = doomed(device)
    _fast.configure(notify=lambda: None)
    del lost
    tm.synchronize(device)
    _fast.configure(notify=_logging.drain)
    try:
        with tm.launch(buffer, stream=host.stream.value) as (pointer,):
            soft.set("delay_us", 5000)
            lost = doomed(device)  # what the end of the launch brings word of
            _fast.configure(notify=lambda: None)
            del lost
            tm.synchronize(device)
            _logging.logger().addHandler(Handler())
            queue(pointer)
            _fast.configure(notify=_logging.drain)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("no KeyboardInterrupt")
    assert buffer.holds == {} and buffer.spill() == N
    is_right()
    """,
    )


@pytest.mark.parametrize("device", SIMULATED)
def test_ctrl_c_while_the_end_is_waited_for_keeps_the_holds(device: str) -> None:
    said = run(
        device,
        """
    soft.set("delay_us", 3_000_000)
    try:
        with tm.launch(buffer, stream=host.stream.value) as (pointer,):
            queue(pointer)
            no_join()
            interrupt_soon()
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("no KeyboardInterrupt")
    assert buffer.holds == {"launch": 1}, buffer.holds
    if not WAIT:
        is_kept()  # the others can be joined by now
    soft.set("delay_us", 0)
    host.wait()
    assert buffer.spill() == N and buffer.holds == {}
    is_right()
    with tm.launch(buffer, stream=host.stream.value):
        pass
    buffer.free()
    """,
    )
    assert "its 1 buffers stay held until it is over" in said


@pytest.mark.parametrize("device", SIMULATED)
def test_a_block_that_is_dropped_waits_for_nothing_and_loses_nothing(device: str) -> None:
    run(
        device,
        """
    soft.set("delay_us", 3_000_000)
    launch = tm.launch(buffer, stream=host.stream.value)
    queue(*launch.__enter__())
    no_join()
    del launch
    assert buffer.holds == {"launch": 1}, buffer.holds
    del buffer  # the program has nothing any more: what the launch works on must stay in its place
    assert tm.memory_info(device).in_use == N
    soft.set("delay_us", 0)
    host.wait()
    tm.synchronize(device)  # the second attempt to join fails, too
    tm.synchronize(device)
    assert tm.memory_info(device).in_use == 0, tm.memory_info(device)
    """,
    )


PER_THREAD = """
    named = host.stream
    host.stream = pointer_of(2)  # the per-thread default stream: another one on each thread
    worked, go_on = threading.Event(), threading.Event()
    host.fill(buffer.device_ptr, 0)
    host.wait()
"""


def run_with_per_thread_stream(device: str, script: str) -> str:
    return run(device, PER_THREAD + script)


@pytest.mark.parametrize("device", WITH_DEFAULT_STREAMS)
def test_a_per_thread_stream_is_joined_by_its_own_thread(device: str) -> None:
    run_with_per_thread_stream(
        device,
        """
    soft.set("delay_us", 5000)
    with tm.launch(buffer, stream=2) as (pointer,):
        queue(pointer)
    assert buffer.holds == {} and buffer.spill() == N
    is_right()
    """,
    )


@pytest.mark.parametrize("device", WITH_DEFAULT_STREAMS)
def test_a_per_thread_stream_that_cannot_be_joined_is_waited_for(device: str) -> None:
    """The main thread's waits are done by another one, whose stream of that name has nothing to do: it waits for the whole context."""
    run_with_per_thread_stream(
        device,
        """
    soft.set("delay_us", 5000)
    with tm.launch(buffer, stream=2) as (pointer,):
        queue(pointer)
        no_join()
    assert buffer.holds == {} and buffer.spill() == N
    is_right()
    """,
    )


@pytest.mark.parametrize("device", WITH_DEFAULT_STREAMS)
def test_a_launch_on_a_per_thread_stream_that_another_thread_leaves(device: str) -> None:
    run_with_per_thread_stream(
        device,
        """
    def work():
        if device == "sim:0":
            context = pointer_of()
            must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
            must("cuCtxPushCurrent_v2", context)
        queue(*launch.__enter__())
        worked.set()
        go_on.wait()

    soft.set("delay_us", 5000)
    launch = tm.launch(buffer, stream=2)
    thread = threading.Thread(target=work)
    thread.start()
    worked.wait()
    launch.__exit__(None, None, None)
    assert buffer.holds == {} and buffer.spill() == N
    is_right()
    go_on.set()
    thread.join()
    """,
    )


@pytest.mark.parametrize("device", WITH_DEFAULT_STREAMS)
def test_a_launch_on_a_per_thread_stream_that_another_thread_drops(device: str) -> None:
    """Only the thread whose stream it is can ask whether it is over."""
    run_with_per_thread_stream(
        device,
        """
    soft.set("delay_us", 1_000_000)
    launches = [tm.launch(buffer, stream=2)]
    queue(*launches[0].__enter__())
    thread = threading.Thread(target=launches.clear)
    thread.start()
    thread.join()
    assert buffer.holds == {"launch": 1}, buffer.holds
    soft.set("delay_us", 0)
    host.wait()
    found = []
    thread = threading.Thread(target=lambda: found.append(buffer.spill()))
    thread.start()
    thread.join()
    assert found == [0] and buffer.holds == {"launch": 1}, "another thread cannot know"
    assert buffer.spill() == N and buffer.holds == {}
    is_right()
    """,
    )


ENDS = {
    "synchronize": """
    tm.synchronize(device)
    assert buffer.holds == {} and buffer.spill() == N
    is_right()
    """,
    "free": """
    buffer.free()
    tm.synchronize(device)
    assert tm.memory_info(device).in_use == 0
    """,
    "a strict budget": """
    tm.set_memory_budget(tm.memory_info(device).in_use, device=device, strict=True)
    other = tm.allocate(N, device)
    assert buffer.state == "spilled" and buffer.holds == {}
    other.free()
    is_right()
    """,
    "a strict budget, inside of another launch": """
    tm.set_memory_budget(tm.memory_info(device).in_use + N, device=device, strict=True)
    with tm.launch(tm.allocate(N, device)):
        other = tm.allocate(N, device)
    assert buffer.state == "spilled" and buffer.holds == {}
    other.free()
    is_right()
    """,
}


@pytest.mark.parametrize("lives_on", [False, True])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("device", WITH_DEFAULT_STREAMS)
def test_a_launch_on_a_per_thread_stream_whose_thread_asks_no_more(device: str, ends: str, lives_on: bool) -> None:
    """The whole context is waited for then, by calls that wait for the device anyway, or would fail."""
    run_with_per_thread_stream(
        device,
        """
    def work():
        if device == "sim:0":
            context = pointer_of()
            must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
            must("cuCtxPushCurrent_v2", context)
        queue(*launches[0].__enter__())
        worked.set()
        go_on.wait()

    soft.set("delay_us", 20_000)
    launches = [tm.launch(buffer, stream=2)]
    thread = threading.Thread(target=work)
    thread.start()
    worked.wait()
"""
        + ("" if lives_on else "    go_on.set()\n    thread.join()\n")
        + """
    launches.clear()
    assert buffer.holds == {"launch": 1}, buffer.holds
"""
        + ENDS[ends]
        + """
    go_on.set()
    thread.join()
    """,
    )


@pytest.mark.parametrize("waits", ["tm.synchronize(device)", "buffer.free()"])
def test_ctrl_c_ends_the_wait_for_a_whole_context(waits: str) -> None:
    """The work of a per-thread stream whose thread has ended has no end here, and nobody but the whole context can tell."""
    run_with_per_thread_stream(
        "sim:0",
        """
    def work():
        context = pointer_of()
        must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        must("cuCtxPushCurrent_v2", context)
        queue(*launches[0].__enter__())

    soft.set("delay_us", 60_000_000)
    launches = [tm.launch(buffer, stream=2)]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    launches.clear()
    interrupt_soon()
    try:
"""
        + f"        {waits}\n"
        + """
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("no KeyboardInterrupt")
    assert buffer.holds == {"launch": 1} and buffer.state == "resident"
    """,
    )


@pytest.mark.parametrize("device", WITH_DEFAULT_STREAMS)
def test_a_stream_that_is_destroyed_inside(device: str) -> None:
    run(
        device,
        """
    soft.set("delay_us", 5000)
    try:
        with tm.launch(buffer, stream=host.stream.value) as (pointer,):
            queue(pointer)
            must("cuStreamDestroy_v2" if device == "sim:0" else "hipStreamDestroy", host.stream)
    except ValueError as error:
        assert "is not a stream of" in str(error), error
    else:
        raise AssertionError("nobody was told of the stream")
    assert buffer.holds == {} and buffer.spill() == N
    is_right()
    """,
    )


@pytest.mark.parametrize("device", WITH_DEFAULT_STREAMS)
def test_a_capture_that_begins_inside(device: str) -> None:
    run(
        device,
        """
    begin, end = {"sim:0": ("cuStreamBeginCapture_v2", "cuStreamEndCapture"), "sim-hip:0": ("hipStreamBeginCapture", "hipStreamEndCapture")}[device]
    soft.set("delay_us", 5000)
    try:
        with tm.launch(buffer, stream=host.stream.value) as (pointer,):
            queue(pointer)
            must(begin, host.stream, 2)
    except tm.StreamCaptureError:
        pass
    else:
        raise AssertionError("nobody was told of the capture")
    is_kept()
    graph = pointer_of()
    must(end, host.stream, ctypes.byref(graph))
    assert buffer.spill() == N and buffer.holds == {}
    is_right()
    """,
    )


def test_ctrl_c_while_the_beginning_is_waited_for() -> None:
    """Level Zero's streams are joined by the host, which waits."""
    run(
        "sim-level_zero:0",
        """
    source = filled(N, device, 2)
    before = contents(buffer)
    soft.set("delay_us", 3_000_000)
    buffer.copy_from(source)
    interrupt_soon()
    try:
        with tm.launch(buffer, stream=host.stream.value):
            raise AssertionError("the launch has begun")
    except KeyboardInterrupt:
        pass
    assert ctypes.string_at(buffer.device_ptr, N) == before, "the wait was not ended: it came to its end"
    assert buffer.holds == {}
    soft.set("delay_us", 0)
    assert contents(buffer) == pattern(N, 2)
    """,
    )


@pytest.mark.parametrize("device", SIMULATED)
def test_ctrl_c_in_a_small_copy_behind_a_long_queue(device: str) -> None:
    run(
        device,
        """
    source, out = filled(N, device, 2), bytearray(8)
    soft.set("delay_us", 3_000_000)
    buffer.copy_from(source)
    interrupt_soon()
    try:
        buffer.copy_to_host(out)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("no KeyboardInterrupt")
    assert out == bytes(8), "the copy was not ended: it came to its end"
    soft.set("delay_us", 0)
    assert buffer.copy_to_host(nbytes=8) == pattern(8, 2)
    """,
    )
