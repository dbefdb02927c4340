"""Interpreter exits: with resident, spilled and exported buffers and a daemon thread that allocates, the exit code is 0 each time."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

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


def test_100_exits(device: str) -> None:
    for round_ in range(100):
        done = run_python(SCRIPT, timeout=60, device=device)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), f"exit {round_}"


def test_an_exit_by_an_exception_and_by_sys_exit(device: str) -> None:
    for ending, code in (("raise SystemExit(7)", 7), ("raise LookupError", 1), ("import os; os._exit(3)", 3)):
        done = run_python(textwrap.dedent(SCRIPT) + ending, timeout=60, device=device)
        assert done.returncode == code, done.stderr
        assert "Fatal" not in done.stderr and "panic" not in done.stderr


AFTER_THE_END = """
    #include <stdlib.h>
    #include <unistd.h>
    #include <time.h>

    static unsigned long (*calls)(const char *);

    static void look(void)
    {
        unsigned long before = calls("*");
        struct timespec second = {0, 600000000L};
        nanosleep(&second, NULL);
        if (calls("*") != before) _exit(42);
    }

    void arm(void *function)
    {
        calls = (unsigned long (*)(const char *))function;
        atexit(look);
    }
    """


def test_no_driver_is_called_once_python_has_ended(simulated: str, tmp_path: Path) -> None:
    """The process's exit handlers run then, and the vendor's library takes itself down. Here one of them counts the calls of the driver, while what the
    program dropped last still waits for the device."""
    (tmp_path / "after.c").write_text(AFTER_THE_END)
    subprocess.run([*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-o", tmp_path / "after.so", tmp_path / "after.c"], check=True)
    script = f"""
        import ctypes
        import tack_memory as tm
        from tack_memory.hosts import sim_library

        device = "{simulated}:0"
        buffer = tm.allocate(1 << 20, device)
        tm.synchronize(device)
        driver = ctypes.CDLL(sim_library(device))
        driver.tmsoft_set.argtypes = [ctypes.c_char_p, ctypes.c_longlong]
        driver.tmsoft_set(b"delay_us", 400_000)  # what is queued takes longer than Python's end
        buffer.fill(1)
        ctypes.CDLL({str(tmp_path / "after.so")!r}).arm(ctypes.cast(driver.tmsoft_calls, ctypes.c_void_p))
        del buffer
        """
    done = run_python(script, timeout=60, simulated=simulated, TACK_MEMORY_POOLS="0")
    assert (done.returncode, done.stderr) == (0, ""), "42: the driver was called"


def test_python_without_room_for_one_more_function_at_its_end(device: str) -> None:
    """Other modules took all of its places. The program works; who looks into its exit finds a word in the log."""
    done = run_python(
        """
        import ctypes
        harmless = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
        while ctypes.pythonapi.Py_AtExit(harmless) == 0:
            pass
        import tack_memory
        buffer = tack_memory.allocate(4096, "sim:0")
        print(buffer.state)
        del buffer
        """,
        device=device,
    )
    assert (done.returncode, done.stdout) == (0, "resident\n"), done.stderr
    assert "Py_AtExit" in done.stderr


def test_launches_that_nobody_left_are_no_noise_at_the_end() -> None:
    """They become late while the modules are taken apart, when nothing can be imported that a log needs."""
    done = run_python(
        """
        import threading, tack_memory
        buffer, launches = tack_memory.allocate(1 << 20, "sim:0"), []

        def enters():
            launches.append(tack_memory.launch(buffer, stream=2))
            launches[-1].__enter__()

        threads = [threading.Thread(target=enters) for _ in range(2)]
        for thread in threads:
            thread.start()
            thread.join()
        """,
        device="sim:0",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
