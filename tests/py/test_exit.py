"""Interpreter exits: with resident, spilled and exported buffers and a daemon thread that allocates, the exit code is 0 each time."""

from __future__ import annotations

import textwrap

from support import run_python

SCRIPT = """
    import threading
    import tack_memory as tm

    resident = [tm.allocate(64 << 10, "sim:0", label="resident") for _ in range(4)]
    spilled = [tm.allocate(64 << 10, "sim:0") for _ in range(4)]
    tm.spill(*spilled)
    exported = tm.allocate(1000, "sim:0").export("dlpack")
    capsule = exported.__dlpack__()
    hold = resident[0].hold("for ever")
    hold.__enter__()
    launch = tm.launch(resident[1])
    launch.__enter__()
    peak = tm.memory_peak("sim:0").__enter__()
    cycle = [tm.allocate(10, "cpu")]
    cycle.append(cycle)
    tm.set_memory_budget("512 KiB", "sim:0")
    started = threading.Event()

    def work():
        while True:
            buffers = [tm.allocate(48 << 10, "sim:0") for _ in range(8)]
            buffers[0].spill(), buffers[0].restore()
            started.set()

    threading.Thread(target=work, daemon=True).start()
    started.wait()
    """


def test_100_exits(simulated: str) -> None:
    for round_ in range(100 if simulated == "sim" else 20):
        done = run_python(SCRIPT, timeout=60, simulated=simulated)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), f"exit {round_}"


def test_an_exit_by_an_exception_and_by_sys_exit(simulated: str) -> None:
    for ending, code in (("raise SystemExit(7)", 7), ("raise LookupError", 1), ("import os; os._exit(3)", 3)):
        done = run_python(textwrap.dedent(SCRIPT) + ending, timeout=60, simulated=simulated)
        assert done.returncode == code, done.stderr
        assert "Fatal" not in done.stderr and "panic" not in done.stderr
