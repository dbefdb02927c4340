"""Long spills and restores report how far they have come, from the thread that waits for them, with no lock held; or draw tqdm's bars."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from support import KIB, run_python

import tack_memory

SIM = {"TACK_MEMORY_SIM": "2 GiB"}

BIG = """
    import sys, threading, time
    import tack_memory as tm
    MIB = 2**20
    def big(nbytes=512 * MIB):
        buffer = tm.allocate(nbytes, "sim:0", zero=False)
        buffer.fill(bytes(range(16)))
        return buffer
    told = []
    def note(device, kind, done, total):
        told.append((kind, done, total))
        assert device == "sim:0" and threading.current_thread() is expected, (device, threading.current_thread())
    expected = threading.main_thread()
    def ends(kind):
        "The reports of one call: they rise, and only the last one has all."
        mine = [(done, total) for one, done, total in told if one == kind]
        assert mine, told
        assert [done for done, _ in mine] == sorted(done for done, _ in mine), mine
        assert all(done < total for done, total in mine[:-1]) and mine[-1][0] == mine[-1][1], mine
        return mine[-1][1], len(mine)
    """


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = run_python(BIG + script, **SIM, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_a_spill_and_a_restore_report_and_the_contents_are_whole() -> None:
    run(
        """
    buffer = big()
    tm.set_progress(note, after=0)
    buffer.spill()
    total, reports = ends("spill")
    assert total == 512 * MIB and reports >= 2, told  # the first copy's pages are new: some 0.2 s at least
    told.clear()
    buffer.restore()
    if told:
        assert ends("restore")[0] == 512 * MIB and not [one for one in told if one[0] == "spill"]
    assert bytes(buffer.copy_to_host(None, 512 * MIB - 16, 16)) == bytes(range(16))
    """
    )


def test_on_another_thread_it_is_that_thread_which_is_told() -> None:
    run(
        """
    buffer = big()
    tm.set_progress(note, after=0)
    def work():
        global expected
        expected = threading.current_thread()
        buffer.spill()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ends("spill")[0] == 512 * MIB
    """
    )


def test_room_that_is_made_for_a_restore_is_one_report_of_each_kind() -> None:
    run(
        """
    first, second = big(), big()
    first.spill()
    tm.set_progress(note, after=0)
    with tm.memory_budget(600 * MIB, "sim:0"):
        told.clear()
        first.restore()
        assert ends("spill")[0] == 512 * MIB
    assert sum(done == total for kind, done, total in told if kind == "spill") == 1
    """
    )


def test_many_buffers_are_one_move_with_their_sum() -> None:
    run(
        """
    buffers = [big(64 * MIB) for _ in range(10)]
    tm.set_progress(note, after=0)
    tm.set_memory_budget(320 * MIB, "sim:0")
    assert {total for _, _, total in told} == {320 * MIB} and ends("spill")[0] == 320 * MIB, told
    """
    )


def test_what_is_short_is_not_reported_and_none_switches_it_off() -> None:
    run(
        """
    assert tm.set_progress(note) is None
    small = big(40 * MIB)
    small.spill(); small.restore()
    assert not told
    tm.set_progress(note, after=1000)
    buffer = big()
    buffer.spill(); buffer.restore()
    assert not told
    assert tm.set_progress(None) is note and tm.set_progress("tqdm") is None and tm.set_progress(None) == "tqdm"
    tm.set_progress(note, after=0); tm.set_progress(None)
    big().spill()
    assert not told
    """
    )


def test_an_error_of_the_callback_is_shown_once_and_the_move_goes_on() -> None:
    done = run(
        """
    seen = []
    def broken(*report):
        seen.append(report)
        raise ZeroDivisionError("in the callback")
    buffer = big()
    tm.set_progress(broken, after=0)
    assert buffer.spill() == 512 * MIB and buffer.is_spilled
    assert len(seen) == 1, seen
    """
    )
    assert done.stderr.count("ZeroDivisionError: in the callback") == 1


def test_ctrl_c_in_the_callback_ends_the_call_and_the_buffer_is_whole() -> None:
    run(
        """
    def interrupt(device, kind, done, total):
        told.append((kind, done, total))
        if len(told) == 1:
            raise KeyboardInterrupt
    buffer = big()
    before = tm.memory_info("sim:0")
    tm.set_progress(interrupt, after=0)
    try:
        buffer.spill()
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("it went on")
    assert buffer.state == "resident" and tm.memory_info("sim:0").in_use == before.in_use
    assert told[-1][1] == told[-1][2] < 512 * MIB, told  # the last word: what was moved until then
    assert bytes(buffer.copy_to_host(None, 512 * MIB - 16, 16)) == bytes(range(16))
    tm._control.call("Check", tm._devices.resolve("sim:0"))
    """
    )


def test_the_callback_may_use_the_package_also_the_device_that_moves() -> None:
    run(
        """
    made = []
    def use(device, kind, done, total):
        told.append((kind, done, total))
        tm.memory_info(device)
        made.append(tm.allocate(1000, device))
        moved = big(48 * MIB)  # a long call inside: it waits for the move, and is not reported
        moved.spill()
    buffer = big()
    tm.set_progress(use, after=0)
    buffer.spill()
    assert ends("spill")[0] == 512 * MIB and len(made) == len(told)
    """
    )


def test_other_threads_work_while_a_callback_takes_its_time() -> None:
    """No lock of ours is held while Python runs: another thread allocates on the device, though the callback does not return before."""
    run(
        """
    other = threading.Event()
    def wait(device, kind, done, total):
        told.append((kind, done, total))
        assert other.wait(60), "the other thread could not work"
    def work():
        while not told:
            time.sleep(0.001)
        tm.allocate(1000, "sim:0").copy_from_host(bytes(1000))
        other.set()
    buffer = big()
    thread = threading.Thread(target=work)
    thread.start()
    tm.set_progress(wait, after=0)
    buffer.spill()
    thread.join()
    assert other.is_set()
    """
    )


def test_in_a_forked_child_nothing_is_reported_and_the_parent_goes_on() -> None:
    run(
        """
    import os
    def fork(device, kind, done, total):
        told.append((kind, done, total))
        if len(told) == 1:
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    buffer = big()
    tm.set_progress(fork, after=0)
    buffer.spill()
    assert ends("spill")[0] == 512 * MIB
    """
    )


def test_a_child_that_goes_on_from_the_callback_gets_a_fork_error() -> None:
    run(
        """
    import os
    parent = os.getpid()
    def fork(device, kind, done, total):
        if not told:
            told.append(done)
            pid = os.fork()
            if pid:
                assert os.waitpid(pid, 0)[1] == 0
    buffer = big()
    tm.set_progress(fork, after=0)
    try:
        buffer.spill()
    except tm.ForkError:
        os._exit(0 if os.getpid() != parent else 3)
    assert os.getpid() == parent
    """
    )


def test_tqdm_draws_one_bar_for_each_move_and_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm", reason="needs tqdm (pip install 'tack-memory[test]')")
    from tack_memory import _progress

    drawn: list[Any] = []

    class Bar:
        def __init__(self, total: int, desc: str, **options: Any) -> None:
            self.total, self.desc, self.n, self.closed = total, desc, 0, False
            assert options["unit"] == "B" and options["unit_divisor"] == 1024
            drawn.append(self)

        def update(self, more: int) -> None:
            self.n += more

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(_progress, "_tqdm", lambda: Bar)
    bars = _progress.Bars()
    for report in (("sim:0", "spill", 0, 10), ("sim:0", "restore", 2, 5), ("sim:0", "spill", 8, 12), ("sim:0", "spill", 9, 9), ("sim:0", "restore", 5, 5)):
        bars(*report)
    assert [(bar.desc, bar.n, bar.total, bar.closed) for bar in drawn] == [("spill sim:0", 9, 9, True), ("restore sim:0", 5, 5, True)]
    bars("sim:0", "spill", 1, 2)
    assert len(drawn) == 3, "the next move has a bar of its own"


def test_a_bar_that_cannot_be_drawn_is_closed_and_the_next_move_has_a_new_one() -> None:
    pytest.importorskip("tqdm", reason="needs tqdm (pip install 'tack-memory[test]')")
    run(
        """
    import tqdm
    from tack_memory._native import _fast
    drawn, sys.unraisablehook = [], lambda error: told.append(error.exc_type)
    class Bar(tqdm.tqdm):
        def __init__(self, **options):
            drawn.append(self)
            super().__init__(**options)
        def update(self, more):
            if len(drawn) == 1:
                raise OSError("stderr is gone for a moment")
            return super().update(more)
    tqdm.tqdm = Bar
    tm.set_progress("tqdm", after=0)
    first, second = big(), big()
    first.spill()
    assert told == [OSError] and len(drawn) == 1 and drawn[0].disable and not _fast.get_progress()._bars
    second.spill()
    assert len(drawn) == 2 and drawn[1].n == drawn[1].total == 512 * MIB and not _fast.get_progress()._bars
    """
    )


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_bar_whose_end_fails_is_dropped_too(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    from tack_memory import _progress

    class Bar:
        n = 0

        def __init__(self, total: int, **options: Any) -> None:
            self.total = total

        def update(self, more: int) -> None:
            self.n += more

        def close(self) -> None:
            raise error

    monkeypatch.setattr(_progress, "tqdm_is_there", lambda: True)
    monkeypatch.setattr(_progress, "_tqdm", lambda: Bar)
    bars = _progress.Bars()
    bars("sim:0", "spill", 1, 2)
    with pytest.raises(error):
        bars("sim:0", "spill", 2, 2)
    assert not bars._bars


def test_a_widget_has_the_total_too(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = pytest.importorskip("tqdm.notebook", reason="needs tqdm (pip install 'tack-memory[test]')")
    from types import SimpleNamespace

    from tack_memory import _progress

    if notebook.IProgress is None:  # without ipywidgets, what tqdm does with them
        notebook_bar = SimpleNamespace(value=0, max=100, bar_style="", layout=SimpleNamespace(width=None))

        class Bar:
            def __init__(self, total: int, **options: Any) -> None:
                self.total, self.n = total, 0
                self.container = SimpleNamespace(children=(SimpleNamespace(value=""), notebook_bar, SimpleNamespace(value="")))

            def update(self, more: int) -> None:
                self.n += more
                notebook_bar.value = self.n

            def close(self) -> None: ...

        monkeypatch.setattr(_progress, "_tqdm", lambda: Bar)
    else:
        monkeypatch.setattr(_progress, "_tqdm", lambda: notebook.tqdm)
    bars = _progress.Bars()
    for done, total in ((0, 100), (90, 100), (100, 1000), (200, 1000), (210, 400)):
        bars("sim:0", "spill", done, total)
        (bar,) = bars._bars.values()
        widget = bar.container.children[1]
        assert widget.max == total == bar.total and widget.value <= done
    bars("sim:0", "spill", 210, 210)
    assert widget.max == 210 and not bars._bars


def test_the_real_tqdm_writes_to_stderr() -> None:
    pytest.importorskip("tqdm", reason="needs tqdm (pip install 'tack-memory[test]')")
    done = run("tm.set_progress('tqdm', after=0)\n    big().spill()")
    assert "spill sim:0" in done.stderr and "512M" in done.stderr


def test_without_tqdm_the_error_says_what_to_install() -> None:
    run(
        """
    sys.modules["tqdm"] = None
    import importlib.util
    found = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *more: None if name == "tqdm" else found(name, *more)
    try:
        tm.set_progress("tqdm")
    except ModuleNotFoundError as error:
        assert "pip install tqdm" in str(error) and error.name == "tqdm"
    else:
        raise AssertionError
    """
    )


def test_a_small_move_costs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback of small moves is never called, so nothing of a program slows down by it."""
    told: list[Any] = []
    before = tack_memory.set_progress(lambda *report: told.append(report), after=0)
    try:
        buffer = tack_memory.allocate(64 * KIB, "sim:0")
        for _ in range(20):
            buffer.spill()
            buffer.restore()
    finally:
        tack_memory.set_progress(before)
    assert not told
