"""fork: the child is told at once, what can work there works, and the parent goes on unharmed."""

from __future__ import annotations

from support import run_python

SCRIPT = """
    import os, sys, gc, traceback
    import tack_memory as tm
    from tack_memory._native import _fast

    resident, spilled = tm.allocate(4096, "sim:0"), tm.allocate(4096, "sim:0")
    resident.copy_from_host(b"resident")
    spilled.copy_from_host(b"spilled")
    spilled.spill()
    exported = tm.allocate(64, "sim:0").export("dlpack")
    cpu = tm.allocate(4096, "cpu")
    cpu.copy_from_host(b"on the cpu")
    tm.memory_info()
    before = tm.memory_info("sim:0")

    def child():
        work = {
            "allocate": lambda: tm.allocate(16, "sim:0"),
            "device_ptr": lambda: resident.device_ptr,
            "read": lambda: resident.copy_to_host(),
            "read spilled": lambda: spilled.copy_to_host(),
            "write": lambda: resident.copy_from_host(b"x"),
            "fill": lambda: resident.fill(0),
            "spill": lambda: resident.spill(),
            "restore": lambda: spilled.restore(),
            "free": lambda: resident.free(),
            "hold": lambda: resident.hold("x").__enter__(),
            "export": lambda: resident.export("dlpack"),
            "launch": lambda: tm.launch(resident).__enter__(),
            "budget": lambda: tm.set_memory_budget(1 << 20, "sim:0"),
            "synchronize": lambda: tm.synchronize("sim:0"),
            "empty_cache": lambda: tm.empty_cache("sim:0"),
            "report": lambda: tm.memory_report("sim:0"),
            "timeline": lambda: tm.record_timeline("sim:0").__enter__(),
            "new device": lambda: tm.memory_info("sim:1"),
            "reserve": lambda: tm.reserve(1, "sim:0"),
        }
        for name, call in work.items():
            try:
                call()
            except tm.ForkError as error:
                assert "spawn" in str(error) and "fork" in str(error), error
            else:
                print("no ForkError:", name)
        in_use, peak, held = _fast.counters("sim:0")
        assert (in_use, held) == (before.in_use, before.spilled), "counters can still be read"
        # The CPU path goes on.
        assert bytes(cpu.copy_to_host(nbytes=10)) == b"on the cpu"
        start = _fast.counters("cpu")[0]
        more = tm.allocate(1000, "cpu")
        more.fill(7)
        assert bytes(more.copy_to_host()) == bytes([7]) * 1000
        assert _fast.counters("cpu")[0] == start + 1000
        with tm.launch(more, cpu):
            pass
        del more
        assert _fast.counters("cpu")[0] == start
        gc.collect()

    sys.stdout.flush()
    for round in range({rounds}):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child()
                globals().pop("exported", None), globals().pop("resident", None), globals().pop("spilled", None)
                gc.collect()  # destructors do nothing
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
    after = tm.memory_info("sim:0")
    assert (after.in_use, after.spilled) == (before.in_use, before.spilled)
    assert bytes(resident.copy_to_host(nbytes=8)) == b"resident" and bytes(spilled.copy_to_host(nbytes=7)) == b"spilled"
    spilled.restore()
    tm.allocate(1 << 20, "sim:0").spill()
    print("done")
    """


def test_the_child_is_told_at_once_and_the_parent_goes_on(simulated: str) -> None:
    done = run_python(SCRIPT.replace("{rounds}", "20"), simulated=simulated)
    assert done.stdout.strip() == "done" and done.returncode == 0, done.stdout + done.stderr


def test_a_child_whose_parent_had_used_no_device() -> None:
    done = run_python(
        """
        import os, sys
        import tack_memory as tm
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                assert tm.memory_info().device == "cpu" and tm.devices() == ["cpu"]
                assert tm.memory_report().device == "cpu" and not tm.memory_report().holders
                assert tm.reserve(7).nbytes == 7
                tm.allocate(100).fill(1)
                try:
                    tm.allocate(100, "sim:0")
                except tm.ForkError:
                    code = 0
            finally:
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), tm.allocate(100, "sim:0").nbytes)
        """
    )
    assert done.stdout.strip() == "0 100", done.stdout + done.stderr


def test_a_child_forked_while_another_thread_moves_memory(simulated: str) -> None:
    done = run_python(
        """
        import os, threading
        import tack_memory as tm
        buffer = tm.allocate(1 << 20, "sim:0")
        stop = threading.Event()
        def move():
            while not stop.is_set():
                buffer.spill(); buffer.restore()
        thread = threading.Thread(target=move)
        thread.start()
        codes = []
        for _ in range(30):
            pid = os.fork()
            if pid == 0:
                try:
                    tm.allocate(1, "sim:0")
                except tm.ForkError:
                    os._exit(0)
                os._exit(1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        stop.set(); thread.join()
        print(sum(codes), len(codes), buffer.nbytes)
        """,
        simulated=simulated,
    )
    assert done.stdout.split() == ["0", "30", str(1 << 20)], done.stdout + done.stderr


def test_spawn_works() -> None:
    done = run_python(
        """
        import multiprocessing
        import tack_memory as tm
        tm.allocate(1, "sim:0")
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            print(pool.map(abs, [-1, -2]), tm.memory_info("sim:0").in_use)
        """
    )
    assert done.stdout.strip() == "[1, 2] 0", done.stdout + done.stderr
