"""An error inside the core, half-way through a call, breaks the device: everything on it is refused at once, nothing hangs, other devices go on.

There is no way to make the core fail from outside, so these tests damage the counters that it verifies after each operation: an address in a Buffer
leads to them.
"""

from __future__ import annotations

from support import run_python

BREAK = """
    import ctypes, gc, sys, threading, time
    import tack_memory as tm
    from tack_memory._native import _fast

    def break_device(buffer):
        books = ctypes.c_uint64.from_address(id(buffer) + object.__basicsize__ + 8).value  # tm_buffer.books
        in_use = ctypes.c_int64.from_address(books + 24)  # tm_books.in_use
        assert in_use.value == tm.memory_info(buffer.device).in_use
        in_use.value += 1
        try:
            buffer.fill(0)  # verified afterwards only where it moves something
            buffer.spill()
        except tm.DeviceLostError as error:
            return error
        raise AssertionError("nobody noticed")

    kept, spilled, other = tm.allocate(4096, "sim:0"), tm.allocate(4096, "sim:0"), tm.allocate(4096, "sim:1")
    spilled.spill()
    view, hold, launch = kept.view(0, 8), kept.hold("mine"), tm.launch(kept)
    exported = tm.allocate(64, "sim:0").export("dlpack")
    foreign = tm.wrap(1 << 40, 64, "sim:0", owner=None)
    hold.__enter__(); launch.__enter__()
    peak = tm.memory_peak("sim:0").__enter__()
"""


def test_everything_is_refused_at_once_and_nothing_hangs() -> None:
    done = run_python(
        BREAK
        + """
    text = str(break_device(tm.allocate(1 << 20, "sim:0")))
    for said in ("sim:0 refuses all calls from now on", "in_use is", "verify", "start a new one", "report"):
        assert said in text, text
    assert chr(10) not in text.replace(chr(10) + "sim:0: ", " ")
    calls = {
        "allocate": lambda: tm.allocate(16, "sim:0"),
        "device_ptr": lambda: spilled.device_ptr,
        "read": lambda: kept.copy_to_host(),
        "read spilled": lambda: spilled.copy_to_host(),
        "write": lambda: kept.copy_from_host(b"x"),
        "fill": lambda: view.fill(0),
        "copy": lambda: kept.copy_from(kept, 0, 8, 8),
        "spill": lambda: spilled.spill(),
        "restore": lambda: spilled.restore(),
        "free": lambda: spilled.free(),
        "hold": lambda: spilled.hold("x").__enter__(),
        "export": lambda: kept.export("dlpack"),
        "launch": lambda: tm.launch(spilled).__enter__(),
        "enter_launch": lambda: _fast.enter_launch([spilled]),
        "reserve": lambda: tm.reserve(1, "sim:0"),
        "adopt": lambda: tm.adopt(1 << 41, 8, "sim:0", how="cuMemAllocAsync"),
        "wrap": lambda: tm.wrap(1 << 41, 8, "sim:0", owner=None),
        "foreign": lambda: foreign.copy_to_host(),
        "make_room": lambda: _fast.make_room(1, "sim:0"),
        "budget": lambda: tm.set_memory_budget(1 << 20, "sim:0"),
        "stream": lambda: tm.stream("sim:0"),
        "synchronize": lambda: tm.synchronize("sim:0"),
        "empty_cache": lambda: tm.empty_cache("sim:0"),
        "spill_all": lambda: _fast.spill_all("sim:0"),
        "report": lambda: tm.memory_report("sim:0"),
    }
    for name, call in calls.items():
        begun = time.monotonic()
        try:
            call()
        except tm.DeviceLostError as error:
            assert str(error) == text, (name, error)
        else:
            print("not refused:", name)
    info = tm.memory_info("sim:0")
    assert info.in_use >= 4096 and info.spilled == 4096 and info.device_free is None, info
    assert _fast.counters("sim:0")[2] == 4096
    launch.__exit__(None, None, None); hold.__exit__(None, None, None); peak.__exit__(None, None, None)
    before = _fast.counters("sim:0")[0]
    del kept, view, hold, launch, exported, foreign
    gc.collect()
    assert _fast.counters("sim:0")[0] == before - 4096 - 64, "drops are still counted"
    other.fill(7); other.spill(); other.restore()
    assert bytes(other.copy_to_host()) == bytes([7]) * 4096 and tm.allocate(10, "sim:1").device_ptr
    print("done")
    """,
        TACK_MEMORY_CHECK="1",
    )
    assert done.stdout.strip() == "done" and done.returncode == 0, done.stdout + done.stderr


def test_threads_that_wait_are_woken_and_the_process_ends() -> None:
    done = run_python(
        BREAK
        + """
    told = []
    def work(number):
        while True:
            try:
                buffer = tm.allocate(1 << 16, "sim:0")
                buffer.spill(); buffer.restore()
            except tm.DeviceLostError as error:
                told.append(number)
                return
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads: thread.start()
    time.sleep(0.05)
    books = ctypes.c_uint64.from_address(id(kept) + object.__basicsize__ + 8).value
    ctypes.c_int64.from_address(books + 24).value += 1 << 40
    for thread in threads: thread.join(60)
    print(len(told), sum(thread.is_alive() for thread in threads))
    """,
        TACK_MEMORY_CHECK="1",
    )
    assert done.stdout.split() == ["6", "0"] and done.returncode == 0, done.stdout + done.stderr


def test_where_it_broke_is_in_the_log() -> None:
    done = run_python(BREAK + "    break_device(tm.allocate(1, 'sim:0'))", TACK_MEMORY_CHECK="1", TACK_MEMORY_LOG="error")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tack_memory ERROR: sim:0 refuses all calls from now on" in done.stderr and "gomem.(*Device).verify" in done.stderr
    assert done.stderr.count("refuses all calls") == 1
