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


def test_the_child_is_told_at_once_and_the_parent_goes_on(device: str) -> None:
    done = run_python(SCRIPT.replace("{rounds}", "20"), device=device)
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


def test_what_the_parent_entered_is_left_in_the_child_without_an_error(device: str) -> None:
    """Also where the block ends by an exception, which is what the child sees."""
    done = run_python(
        """
        import contextlib, os, traceback
        import tack_memory as tm
        buffer = tm.allocate(4096, "sim:0")
        def blocks():
            return {
                "memory_budget": tm.memory_budget("1 MiB", "sim:0"),
                "memory_peak": tm.memory_peak("sim:0"),
                "record_timeline": tm.record_timeline("sim:0"),
                "hold": tm.hold(buffer),
                "a buffer's hold": buffer.hold("test"),
                "launch": tm.launch(buffer),
                "label": tm.label("test"),
            }
        def leave(name, block, raises):
            try:
                with block:
                    pid = os.fork()
                    if raises and not pid:
                        raise KeyError("of the block")
            except KeyError as error:
                code = 0 if raises and not getattr(error, "__notes__", None) else 1
            except BaseException:
                traceback.print_exc()
                code = 2
            else:
                code = 0
            if not pid:
                os._exit(code)
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) or code:
                print("wrong:", name, "raises" if raises else "")
        for raises in (False, True):
            for name, block in blocks().items():
                leave(name, block, raises)
        with tm.record_timeline("sim:0") as timeline:
            pid = os.fork()
            if not pid:
                timeline.__exit__(None, None, None)
                os._exit(len(timeline.points))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
            tm.allocate(1, "sim:0").free()
        print(len(timeline.points), tm.get_memory_budget("sim:0"))
        """,
        device=device,
    )
    assert done.stdout.strip() == "3 None", done.stdout + done.stderr


def test_what_a_child_has_given_out_is_not_freed_under_it() -> None:
    """An export of the child's own, of memory of the child's and of the parent's, as a hold: BufferError, and nothing has changed."""
    done = run_python(
        """
        import os
        import tack_memory as tm
        inherited = tm.allocate(1 << 20, "cpu")
        inherited.fill(5)
        kept = inherited.export("parent")

        def is_kept(buffer):
            try:
                buffer.free()
            except BufferError:
                return buffer.state == "resident" and bytes(buffer.copy_to_host(nbytes=4)) == b"\\5" * 4
            return False

        pid = os.fork()
        if pid == 0:
            try:
                assert is_kept(inherited), "an export of the parent's"
                kept.close()
                own = tm.allocate(1 << 20, "cpu")
                own.fill(5)
                for buffer in (own, inherited):
                    first, second = buffer.export("dlpack"), buffer.view(4096, 4096).export("dlpack")
                    capsule = first.__dlpack__()
                    assert is_kept(buffer), "three have it"
                    with tm.launch(buffer):
                        assert buffer.holds == {"launch": 1, "hold or export": 2}, buffer.holds
                    first.close()
                    assert is_kept(buffer), "a tensor and a view's export have it"
                    del capsule
                    assert is_kept(buffer), "a view's export has it"
                    second.close()
                    assert buffer.holds == {}, buffer.holds
                    buffer.free()
                assert tm.memory_info("cpu").in_use == 0, tm.memory_info("cpu")
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), is_kept(inherited))
        """
    )
    assert done.stdout.strip() == "0 True", done.stdout + done.stderr


def test_an_error_in_a_child_names_what_was_called_and_what_works(device: str) -> None:
    done = run_python(
        """
        import os
        import tack_memory as tm
        from tack_memory._native import _fast
        tm.memory_info("cpu"), tm.memory_info("sim:0")
        memory = bytearray(64)
        import ctypes
        address = ctypes.addressof((ctypes.c_char * 64).from_buffer(memory))
        pid = os.fork()
        if not pid:
            try:
                for what in (
                    lambda: tm.memory_report("sim:0"),
                    lambda: tm.record_timeline("cpu").__enter__(),
                    lambda: tm.adopt(address, 64, "cpu", how="host"),
                ):
                    try:
                        what()
                    except tm.ForkError as error:
                        text = str(error)
                        print("tack_memory." not in text and "Report" not in text and "spawn" in text, "GPU or sim" in text, "on the CPU" in text, flush=True)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        """,
        device=device,
    )
    assert done.stdout.splitlines() == ["True False False", "True False False", "True False True"], done.stdout + done.stderr


def test_a_report_in_a_child_adds_up_while_others_allocate() -> None:
    done = run_python(
        """
        import os, sys, threading
        import tack_memory as tm
        kept = tm.allocate(1000, "cpu")
        pid = os.fork()
        if not pid:
            stop = threading.Event()
            def work():
                while not stop.is_set():
                    buffers = [tm.allocate(64, "cpu") for _ in range(5)]
            sys.setswitchinterval(1e-5)
            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            wrong = 0
            for _ in range(100):
                report = tm.memory_report("cpu")
                wrong += sum(held.resident for held in report.holders) != report.info.in_use
            stop.set()
            for thread in threads:
                thread.join()
            print(wrong, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        """
    )
    assert done.stdout.strip() == "0", done.stdout + done.stderr


def test_a_child_forked_while_another_thread_moves_memory(device: str) -> None:
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
        device=device,
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
