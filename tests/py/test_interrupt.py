"""Ctrl-C while gigabytes are moved: KeyboardInterrupt soon, and nothing lost."""

from __future__ import annotations

import fcntl
import os
import tempfile
import warnings
from collections.abc import Iterator

import pytest
from support import GIB, MIB, run_python

SCRIPT = """
    import os, signal, sys, threading, time
    import tack_memory as tm
    from support import SoftDriver

    nbytes, what = int(sys.argv[1]), sys.argv[2]
    soft = SoftDriver()
    buffer = tm.allocate(nbytes, "sim:0", zero=False)
    marks = range(0, nbytes, nbytes // 16)
    for mark in marks:
        buffer.copy_from_host(mark.to_bytes(8, "little"), mark)
    if what == "restore":
        buffer.spill()
    before = tm.memory_info("sim:0")
    soft.set("copy_mib_s", nbytes // 8 >> 20)  # 8 seconds for all of it
    sent = []

    def interrupt():
        while buffer.state not in ("spilling", "restoring"):
            time.sleep(0.01)
        time.sleep(0.3)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        buffer.spill() if what == "spill" else buffer.restore()
    except KeyboardInterrupt:
        took = time.monotonic() - sent[0]
        print("KeyboardInterrupt")
    else:
        sys.exit("no KeyboardInterrupt")
    soft.set("copy_mib_s", 0)
    after = tm.memory_info("sim:0")
    print("moved" if buffer.is_spilled != (what == "restore") else "stayed", "within a second" if took < 1 else f"after {took:.1f} s")
    assert (after.in_use, after.spilled, after.reserved) == (before.in_use, before.spilled, 0), (before, after)
    for mark in marks:
        assert buffer.copy_to_host(None, mark, 8) == mark.to_bytes(8, "little"), mark
    other = tm.allocate("8 MiB", "sim:0")
    other.fill(b"goes on")
    assert other.spill() == other.nbytes and other.copy_to_host(nbytes=7) == b"goes on"
    other.restore()
    assert other.copy_to_host(nbytes=7) == b"goes on"
    print("whole")
    """


WANTED = 4 * GIB


@pytest.fixture
def alone() -> Iterator[None]:
    """One test at a time has gigabytes, also where the tests of this file are shared out to several processes (`-n 2` without `--dist loadfile`)."""
    with open(os.path.join(tempfile.gettempdir(), f"tack-memory-gigabytes.{os.getuid()}"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        yield


def room() -> int:
    """4 GiB, or less where the machine has not three times as much, which is said: the property is the same."""
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    found = max(256 * MIB, min(WANTED, available // 3 // (256 * MIB) * (256 * MIB)))
    if found < WANTED:
        warnings.warn(f"Ctrl-C was tried with {found // MIB} MiB, not {WANTED // MIB}: this machine has {available // MIB} MiB left", stacklevel=2)
    return found


# In pytest's summary, and not an error as other warnings are.
@pytest.mark.filterwarnings("always:Ctrl-C was:UserWarning")
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("what", ["spill", "restore"])
def test_ctrl_c_while_much_is_moved(what: str, simulated: str) -> None:
    """A second is long, but not for a machine that does three other things: one of three attempts must take less. All else holds in each attempt."""
    nbytes = room()
    late: list[str] = []
    while len(late) < 3:
        done = run_python(SCRIPT, str(nbytes), what, simulated=simulated, TACK_MEMORY_SIM=str(nbytes * 5 // 4), TACK_MEMORY_CHECK="0")
        assert done.returncode == 0, done.stdout + done.stderr
        interrupted, result, whole = done.stdout.splitlines()
        assert (interrupted, whole) == ("KeyboardInterrupt", "whole") and result.startswith("stayed "), f"attempt {len(late) + 1}: {done.stdout}"
        if result == "stayed within a second":
            break
        late.append(result.removeprefix("stayed "))
    else:
        pytest.fail(f"KeyboardInterrupt came {', '.join(late)}")
    if late:
        warnings.warn(f"Ctrl-C was seen within a second in attempt {len(late) + 1} only; before, {', '.join(late)}", stacklevel=1)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("what", ["fill", "fill what is spilled", "allocate"])
def test_ctrl_c_while_much_is_filled(what: str) -> None:
    """The signal comes in the first part of the fill: what comes after it stays as it was. A buffer that was to be made is not there."""
    device = "sim:0" if what == "fill what is spilled" else "cpu"
    done = run_python(
        """
        import signal, sys
        import tack_memory as tm
        what, device, nbytes = sys.argv[1], sys.argv[2], 2 << 30
        last = nbytes - 1
        buffer = None
        if what != "allocate":
            buffer = tm.allocate(nbytes, device, zero=False)
            buffer.copy_from_host(b"x", last)
            if what != "fill":
                buffer.spill()
        signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C, and in time
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        try:
            if buffer is None:
                tm.allocate(nbytes, device)
            else:
                buffer.fill(b"abc")
        except KeyboardInterrupt:
            print("interrupted")
        print(buffer is None or buffer.copy_to_host(None, last, 1) == b"x", tm.memory_info(device).footprint >> 30)
        """,
        what,
        device,
        TACK_MEMORY_SIM="3 GiB",
        TACK_MEMORY_CHECK="0",
    )
    assert done.stdout.split() == ["interrupted", "True", "0" if what == "allocate" else "2"], done.stdout + done.stderr


def test_ctrl_c_in_an_allocation_that_spills(simulated: str) -> None:
    done = run_python(
        """
        import os, signal, sys, threading, time
        import tack_memory as tm
        from support import SoftDriver
        soft = SoftDriver()
        buffers = [tm.allocate("64 MiB", "sim:0", zero=False) for _ in range(4)]
        for place, buffer in enumerate(buffers):
            buffer.copy_from_host(bytes([place]) * 8, 1000)
        soft.set("copy_mib_s", 16)

        def interrupt():
            while all(buffer.state != "spilling" for buffer in buffers):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            tm.allocate("200 MiB", "sim:0", zero=False)
        except KeyboardInterrupt:
            print("interrupted")
        soft.set("copy_mib_s", 0)
        info = tm.memory_info("sim:0")
        print(info.footprint == 256 << 20, info.reserved, all(b.copy_to_host(None, 1000, 8) == bytes([p]) * 8 for p, b in enumerate(buffers)))
        print(tm.allocate("200 MiB", "sim:0", zero=False).nbytes >> 20)
        """,
        simulated=simulated,
    )
    assert done.stdout.split() == ["interrupted", "True", "0", "True", "200"], done.stdout + done.stderr


ROUNDS = """
    import os, random, signal, sys, threading, time
    import tack_memory as tm
    from support import contents, filled, pattern

    nbytes, interrupts, told, moving, busy = 16 << 20, int(sys.argv[1]), 0, False, threading.Event()
    tm.set_memory_budget(3 * nbytes, "sim:0")
    buffers = [filled(nbytes, "sim:0", seed) for seed in range(5)]

    def handler(number, frame):  # as Python's own, except between two rounds, where nothing would catch it
        global moving, told
        if moving:
            moving, told = False, told + 1
            raise KeyboardInterrupt

    def interrupt():
        for number in range(interrupts):
            busy.wait()
            time.sleep(random.Random(number).random() / 200)
            busy.clear()
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, handler)
    sender = threading.Thread(target=interrupt)
    sender.start()
    number = 0
    while sender.is_alive():
        number += 1
        try:
            moving = True
            busy.set()
            buffers[number % 5].restore()
            buffers[number % 5].spill()
            with tm.launch(*(buffers[(number + more) % 5] for more in range(3))):
                pass
            if number % 7 == 0:
                tm.allocate(nbytes, "sim:0").fill(7)
            moving = False
        except KeyboardInterrupt:
            pass
    sender.join()
    info = tm.memory_info("sim:0")
    print(told > 0, info.in_use + info.spilled == 5 * nbytes, info.reserved, [contents(buffer) == pattern(nbytes, seed) for seed, buffer in enumerate(buffers)])
    tm._control.call("Check", tm._devices.resolve("sim:0"))
    """


def test_ctrl_c_at_any_moment_loses_nothing(device: str) -> None:
    """However fast the device is: the signals come at random moments of all that moves memory."""
    done = run_python(ROUNDS, "40", device=device)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == f"True True 0 {[True] * 5}", done.stdout + done.stderr
