"""What the core has to say and no call can raise reaches Python's logger "tack_memory"."""

from __future__ import annotations

import json
import logging

import pytest
from support import doomed, run_python

import tack_memory
from tack_memory import _logging
from tack_memory._native import _fast


def lose_a_free() -> None:
    """Drop a buffer whose memory the driver will refuse to free."""
    buffer = doomed()
    del buffer
    tack_memory.synchronize("sim:0")


def test_a_failed_free_is_logged_with_the_next_call(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="tack_memory"):
        lose_a_free()
        tack_memory.synchronize("sim:0")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("tack_memory", "ERROR")
    text = record.getMessage()
    assert text.startswith("sim:0: the driver failed to free 64 bytes of device memory") and "CUDA_ERROR_INVALID_VALUE" in text
    assert json.loads(_fast.take_notices()) == []


def test_the_level_of_the_logger_holds(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL, logger="tack_memory"):
        lose_a_free()
        tack_memory.synchronize("sim:0")
    assert not caplog.records and _fast.take_notices() == "[]"


def test_a_handler_may_use_the_package_and_its_errors_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())
            tack_memory.allocate(10, "sim:0").spill()
            raise ZeroDivisionError

    unraisable: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda told: unraisable.append(told.exc_type))
    handler = Handler()
    _logging.logger().addHandler(handler)
    try:
        lose_a_free()
        assert tack_memory.allocate(5, "sim:0").nbytes == 5, "the call that brings word of it has its own result"
    finally:
        _logging.logger().removeHandler(handler)
    assert len(seen) == 1 and unraisable == [ZeroDivisionError]


LOSE = """
    import os, sys, time
    import tack_memory as tm
    from support import SoftDriver, doomed, wait_until
    from tack_memory import _logging
    from tack_memory._native import _fast
    soft = SoftDriver()
    def lose():
        buffer, frees = doomed(), soft.calls("cuMemFreeAsync")
        del buffer
        wait_until(lambda: soft.calls("cuMemFreeAsync") > frees, "the drainer frees nothing")  # in the background: no call brings word of it
        time.sleep(0.05)  # for the message of it; without one these tests would pass, and show nothing
    """


def test_what_nobody_took_is_told_at_the_end_of_the_interpreter() -> None:
    done = run_python(LOSE + "lose(); print('the end', file=sys.stderr)", TACK_MEMORY_LOG="warning")
    before, _, after = done.stderr.partition("the end")
    assert "failed to free" not in before and after.count("tack_memory ERROR: sim:0: the driver failed to free 64 bytes") == 1, done.stderr


def test_what_the_parent_has_not_told_is_not_told_by_its_child() -> None:
    done = run_python(
        LOSE
        + """
    lose()
    pid = os.fork()
    if pid == 0:
        _logging.drain()
        os._exit(0)
    os.waitpid(pid, 0)
    """,
        TACK_MEMORY_LOG="warning",
    )
    assert done.stderr.count("failed to free") == 1, done.stderr


def test_too_many_are_counted() -> None:
    done = run_python(
        LOSE
        + """
    _fast.configure(notify=lambda: None)  # as if nobody came for them
    for _ in range(70):
        buffer = doomed()
        del buffer
        tm.synchronize("sim:0")
    """,
        TACK_MEMORY_LOG="warning",
    )
    assert done.stderr.count("failed to free") == 64 and "6 more messages were dropped" in done.stderr, done.stderr
