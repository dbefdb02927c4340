"""The CPU path in a forked child, which goes on in C: contents, books, peaks, launches, holds, and the same errors."""

from __future__ import annotations

from support import run_python


def test_everything_that_the_cpu_offers() -> None:
    done = run_python(
        """
        import os, sys, traceback
        import numpy as np
        import tack_memory as tm
        from tack_memory._native import _fast

        parents = tm.allocate(1000, "cpu", label="of the parent")
        parents.copy_from_host(bytes(range(250)) * 4)
        doomed = tm.allocate(500, "cpu")
        outer = tm.memory_peak("cpu").__enter__()

        def child():
            start, _, _ = _fast.counters("cpu")
            assert start == 1500
            with tm.memory_peak("cpu") as peak:
                a = tm.allocate(300, "cpu", label="a")
                b = tm.allocate("1 KiB", "cpu")
                zero = tm.allocate(0, "cpu")
                assert a.copy_to_host() == bytes(300), "new memory is zero"
                a.fill(b"abc")
                assert a.copy_to_host(nbytes=7) == b"abcabca"
                b.copy_from_host(np.arange(256, dtype=np.uint32))
                b.copy_from(a, 4, 1, 8)
                assert b.view(4, 8).copy_to_host() == b"bcabcabc"
                b.copy_from(b, 0, 2, 100)
                assert parents.copy_to_host(None, 249, 2) == bytes([249, 0])
                parents.view(0, 2).fill(255)
                assert (a.state, a.is_spilled, a.label, a.spill(), zero.device_ptr) == ("resident", False, "a", 0, 0)
                a.restore()
                address = a.device_ptr
                assert address == a.device_ptr == a.view(0, 1).device_ptr
                with tm.launch(a, b, parents) as pointers:
                    assert pointers[0] == address
                    try:
                        a.free()
                    except BufferError:
                        pass
                    else:
                        raise AssertionError("freed while launched on")
                assert _fast.enter_launch([a, b]) is False
                _fast.leave_launch([a, b])
                with a.hold("kept") as pointer:
                    assert pointer == address
                    try:
                        a.free()
                    except BufferError:
                        pass
                    else:
                        raise AssertionError("freed while held")
                array = np.from_dlpack(a.export("dlpack"))
                assert bytes(array[:3]) == b"abc"
                del array
                a.free()
                for use in (lambda: a.device_ptr, lambda: a.copy_to_host(), lambda: tm.launch(a).__enter__(), lambda: a.view(0, 1)):
                    try:
                        use()
                    except ValueError as error:
                        assert "freed" in str(error)
                    else:
                        raise AssertionError("used after free")
                assert _fast.counters("cpu")[0] == start + 1024
            assert (peak.bytes, peak.own, peak.delta, peak.end) == (start + 1324, 1324, 1324, start + 1024), (peak.bytes, peak.own)
            assert outer.bytes == start + 1324
            del b, pointers
            assert _fast.counters("cpu") == (start, start + 1324, 0)
            _fast.reset_peak_memory("cpu")
            assert _fast.counters("cpu") == (start, start, 0)
            assert _fast.set_memory_budget(5000, "cpu") is None and _fast.get_memory_budget("cpu") == 5000
            _fast.set_memory_budget(None, "cpu")
            info = tm.memory_info("cpu")
            assert (info.in_use, info.budget, info.device_free) == (start, None, None)
            assert (tm.stream("cpu"), tm.empty_cache("cpu"), tm.synchronize("cpu")) == (0, 0, None)
            global doomed
            del doomed
            assert _fast.counters("cpu")[0] == start - 500
            assert tm.devices() == ["cpu"]
            room = tm.reserve("2 KiB", "cpu")
            assert tm.memory_info("cpu").reserved == room.nbytes == 2048
            room.close(); room.close()
            dropped = tm.reserve(10, "cpu")
            assert tm.memory_info("cpu").reserved == 10
            del dropped
            assert tm.memory_info("cpu").reserved == 0
            mine = [tm.allocate(1000, "cpu", label="mine") for _ in range(3)]
            report = tm.memory_report("cpu")
            assert [(held.label, held.bytes, held.resident, held.count) for held in report.holders] == [
                ("mine", 3000, 3000, 3), ("of the parent", 1000, 1000, 1), (None, 0, 0, 1)], report.holders
            assert sum(held.bytes for held in report.holders) == report.info.in_use == 4000
            assert report.holds == {"device memory is host memory": 4000} and report.spilled == 0
            assert "of the parent" in str(report) and report._repr_html_()
            import weakref
            seen = []
            watched = weakref.ref(mine[0], lambda gone: seen.append(_fast.alive()))
            mine[1].free()
            del mine
            assert [buffer for buffer in seen[0] if buffer.label == "mine"] == [] and tm.memory_report("cpu").info.in_use == 1000
            try:
                tm.allocate(1 << 62, "cpu")
            except tm.DeviceMemoryError as error:
                assert error.device == "cpu" and error.requested == 1 << 62
            else:
                raise AssertionError("2^62 bytes were had")
            assert tm._native._fast.forked()
            # A budget holds as in the parent: a soft one is counted, a strict one refuses.
            tm.set_memory_budget(start + 1000, "cpu")
            over = tm.allocate(2000, "cpu")
            assert tm.memory_info("cpu").over_budget > 0
            del over
            tm.set_memory_budget(3000, "cpu", strict=True)
            room = tm.reserve(3000 - _fast.counters("cpu")[0], "cpu")
            none = tm.allocate(0, "cpu")
            for work, reason in ((lambda: tm.allocate(1, "cpu"), "budget"), (lambda: tm.reserve(1, "cpu"), "budget"),
                                 (lambda: tm.allocate(3001, "cpu"), "too_large"), (lambda: tm.reserve(3001, "cpu"), "too_large")):
                try:
                    work()
                except tm.DeviceMemoryError as error:
                    assert (error.reason, error.budget) == (reason, 3000), error
                else:
                    raise AssertionError("the strict budget was passed")
            room.close()
            assert tm.memory_info("cpu").reserved == 0
            fits = tm.allocate(3000 - _fast.counters("cpu")[0], "cpu")
            assert tm.memory_info("cpu").over_budget == 0 and tm.memory_info("cpu").reserved == 0

        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert _fast.counters("cpu")[0] == 1500 and parents.copy_to_host(nbytes=2) == bytes([0, 1]) and not _fast.forked()
        outer.__exit__(None, None, None)
        print(outer.bytes, outer.own)
        """
    )
    assert done.stdout.split() == ["1500", "0"], done.stdout + done.stderr


def test_what_the_parent_holds_the_child_can_let_go_of() -> None:
    """Each has its own copy of the counts."""
    done = run_python(
        """
        import os
        import tack_memory as tm

        held, exported, launched = (tm.allocate(100, "cpu") for _ in range(3))
        hold, export, launch = held.hold("x"), exported.export("y"), tm.launch(launched)
        hold.__enter__()
        launch.__enter__()

        def let_go():
            for buffer in (held, exported, launched):
                try:
                    buffer.free()
                except BufferError:
                    pass
                else:
                    return "freed too early"
            hold.__exit__(None, None, None)
            export.close()
            launch.__exit__(None, None, None)
            for buffer in (held, exported, launched):
                buffer.free()
            return tm._native._fast.counters("cpu")[0]

        pid = os.fork()
        if pid == 0:
            try:
                os._exit(7 if let_go() == 0 else 8)
            finally:
                os._exit(9)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), let_go())
        """
    )
    assert done.stdout.split() == ["7", "0"], done.stdout + done.stderr


def test_counters_do_not_wrap() -> None:
    """As in the parent: what cannot be counted is refused, and what was counted before stays as it was."""
    done = run_python(
        """
        import os
        import tack_memory as tm

        def ask():
            kept, figures = [], []
            for _ in range(9):
                try:
                    kept.append(tm.adopt((len(kept) + 1) << 60, 2**60, "cpu", how="host", movable=False) if os.getpid() == parent else tm.reserve(2**60, "cpu"))
                except tm.DeviceMemoryError as error:
                    assert error.reason == "too_large", error.reason
                figures.append(sum(tm._native._fast.counters("cpu")[:1]))
            assert len(kept) == 7 and min(figures) >= 0, (len(kept), figures)
            return kept

        parent = os.getpid()
        tm.allocate(8, "cpu")
        pid = os.fork()
        if not pid:
            ask()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        ask()
        print("right")
        """
    )
    assert done.stdout.strip() == "right", done.stdout + done.stderr
