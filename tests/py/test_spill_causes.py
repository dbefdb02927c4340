"""Why buffers were spilled, which take turns, and what was live at a device's own peak, as the core's Report tells it (`_control.call_json`)."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support import KIB, MIB, SoftDriver, filled

import tack_memory
from tack_memory import Buffer, allocate, launch, memory_budget, reset_peak_memory, set_origins
from tack_memory._control import call_json
from tack_memory._devices import resolve
from tack_memory._native import _fast

HERE = __file__


pytestmark = pytest.mark.usefixtures("lines")


def report(device: str) -> dict[str, Any]:
    told: dict[str, Any] = call_json("Report", resolve(device))
    return told


def here() -> str:
    """The caller's line, as an origin."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"{HERE}:{frame.f_back.f_lineno}"


def spills_since(device: str, began: int) -> list[dict[str, Any]]:
    """Those whose last spill was after that moment; other tests in this process spill, too."""
    return [spill for spill in report(device)["spills"] if spill["last_ns"] >= began]


def pushed_out(device: str, push: Callable[[], object]) -> dict[str, Any]:
    """What one call pushed out."""
    began = time.time_ns()
    kept = push()
    (found,) = spills_since(device, began)
    del kept
    return found


def test_an_allocation_is_named_by_its_line_and_label(device: str) -> None:
    out, line = allocate(6 * MIB, device, label="out"), here()
    with memory_budget(8 * MIB, device):
        began = time.time_ns()
        coming, by = allocate(4 * MIB, device, label="coming"), here()
        (spill,) = spills_since(device, began)
        assert {name: spill[name] for name in ("label", "origin", "bytes", "nbytes", "count", "restores", "still_out")} == {
            "label": "out", "origin": line, "bytes": 6 * MIB, "nbytes": 6 * MIB, "count": 1, "restores": 0, "still_out": 1,
        }  # fmt: skip
        assert (spill["cause"], spill["by_label"], spill["by_origin"], spill["by_nbytes"]) == ("budget", "coming", by, 4 * MIB)
        assert spill["stack"] is None and spill["by_stack"] is None
        time.sleep(0.01)
        later = spills_since(device, began)[0]
        assert spill["out_ns"] + 10_000_000 <= later["out_ns"] <= time.time_ns() - began
        coming.free()
        out.restore()
        done = [one for one in report(device)["spills"] if one["label"] == "out" and one["origin"] == line][0]
        assert (done["restores"], done["still_out"]) == (1, 0) and done["out_ns"] >= later["out_ns"]
        assert done == [one for one in report(device)["spills"] if one["label"] == "out" and one["origin"] == line][0], "it is over"


def _restore(buffer: Buffer) -> object:
    buffer.restore()  # restores
    return None


def _pointer(buffer: Buffer) -> object:
    return buffer.device_ptr  # reads


def _launch(buffer: Buffer) -> object:
    with launch(buffer):  # launches
        return None


def _hold(buffer: Buffer) -> object:
    with buffer.hold("h"):  # holds
        return None


def _export(buffer: Buffer) -> object:
    return buffer.export("dlpack")  # exports


def _copy(buffer: Buffer) -> object:
    other = allocate(8, buffer.device, zero=False)
    other.copy_from(buffer, nbytes=8)  # copies
    return other


@pytest.mark.parametrize(
    ("bring", "word"), [(_restore, "restores"), (_pointer, "reads"), (_launch, "launches"), (_hold, "holds"), (_export, "exports"), (_copy, "copies")]
)
def test_whatever_brings_a_buffer_back_is_named_by_its_line(bring: Callable[[Buffer], object], word: str, device: str) -> None:
    with open(HERE, encoding="utf-8") as file:
        (line,) = (number for number, text in enumerate(file, 1) if text.rstrip().endswith(f"  # {word}"))
    with memory_budget(8 * MIB, device):
        spilled = filled(6 * MIB, device, label="comes back")
        other = allocate(4 * MIB, device, label="goes")
        assert spilled.is_spilled
        found = pushed_out(device, lambda: bring(spilled))
        assert other.is_spilled and found["label"] == "goes" and found["bytes"] == 4 * MIB
        assert (found["cause"], found["by_label"], found["by_origin"], found["by_nbytes"]) == ("budget", "comes back", f"{HERE}:{line}", 6 * MIB)


def test_where_all_is_resident_a_launch_asks_nobody(device: str) -> None:
    """The fast path takes no origin: a line that only launches what is there makes no text."""
    buffer = filled(KIB, device)
    space: dict[str, Any] = {"launch": launch, "buffer": buffer}
    exec(compile("with launch(buffer): pass\nbuffer.device_ptr", "never seen.py", "exec"), space)
    numbers = _fast.set_origins("line")
    assert numbers == "line"
    made = allocate(8, device)
    exec(compile("made.label = 'x'", "nor this.py", "exec"), {"made": made})
    from tack_memory._control import call

    texts = {call("OriginText", number) for number in range(1, 20_000)}
    assert made.origin in texts and not any("never seen" in text for text in texts)


def test_a_reservation_and_room_for_a_host_are_named(device: str) -> None:
    with memory_budget(8 * MIB, device):
        kept = filled(6 * MIB, device, label="kept")
        found = pushed_out(device, lambda: tack_memory.reserve(4 * MIB, device))
        assert (found["cause"], found["by_origin"], found["by_label"], found["by_nbytes"]) == ("budget", f"{HERE}:{line_before()}", None, 4 * MIB)
        kept.restore()
        found = pushed_out(device, lambda: _fast.make_room(1 << 50, device))
        assert (found["cause"], found["by_origin"], found["by_nbytes"]) == ("device", f"{HERE}:{line_before()}", 1 << 50)


def line_before() -> int:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno - 1


def test_what_is_asked_for_and_a_lower_budget_are_causes(device: str) -> None:
    buffer = filled(3 * MIB, device, label="mine")
    found = pushed_out(device, lambda: buffer.spill())
    assert (found["cause"], found["by_origin"], found["by_label"], found["by_nbytes"]) == ("asked", f"{HERE}:{line_before()}", None, None)
    buffer.restore()
    began = time.time_ns()
    with memory_budget(MIB, device):
        (found,) = (spill for spill in spills_since(device, began) if spill["cause"] == "budget lowered")
        assert (found["by_origin"], found["by_label"], found["by_nbytes"]) == (f"{HERE}:{line_before() - 1}", None, 2 * MIB)


def test_a_full_device_is_a_cause(soft: SoftDriver, device: str) -> None:
    kept = filled(40 * MIB, device, label="kept")
    info = tack_memory.memory_info(device)
    free = (info.device_free or 0) + (info.cached or 0)
    began = time.time_ns()
    coming, line = allocate(free + MIB, device, label="coming", zero=False), here()
    (found,) = spills_since(device, began)
    assert kept.is_spilled and (found["cause"], found["by_label"], found["by_origin"], found["by_nbytes"]) == ("device", "coming", line, coming.nbytes)


def test_stacks_of_both_sides(device: str) -> None:
    set_origins("stack")
    with memory_budget(8 * MIB, device):
        out = allocate(6 * MIB, device, label="with stack")
        found = pushed_out(device, lambda: allocate(4 * MIB, device))
        assert tuple(found["stack"]) == out.origin_stack and found["origin"] == out.origin
        assert found["by_stack"][0] == f"{found['by_origin']} {test_stacks_of_both_sides.__qualname__}.<locals>.<lambda>"
        assert found["by_stack"][1].endswith(" pushed_out")


def test_without_origins_spills_are_counted_as_lost(device: str) -> None:
    set_origins("off")
    before = report(device)
    assert before["origins"] == "off"
    buffer = filled(MIB, device)
    buffer.spill()
    buffer.restore()
    told = report(device)
    assert told["spills_lost"] == before["spills_lost"] + 1 and told["spills"] == before["spills"] and told["at_peak"] is None
    set_origins("line")
    buffer.spill()
    told = report(device)
    assert told["origins"] == "line" and told["spills_lost"] == before["spills_lost"] + 1 and len(told["spills"]) >= len(before["spills"])


def test_arrays_that_take_turns_are_named(device: str) -> None:
    with memory_budget(8 * MIB, device):
        one, two = filled(6 * MIB, device, label="one"), filled(5 * MIB, device, label="two")
        for _ in range(3):
            one.restore()
            two.restore()
        began = time.time_ns()
        told = report(device)["thrashing"]
        assert told is not None and told["since_ns"] <= began and told["rounds"] == 3
        assert {holder["label"]: (holder["origin"], holder["spills"], holder["restores"], holder["bytes"]) for holder in told["holders"]} == {
            "one": (one.origin, 3, 3, 6 * 6 * MIB)
        }
        one.restore()
        assert {holder["label"]: holder["spills"] for holder in report(device)["thrashing"]["holders"]} == {"one": 3, "two": 3}
        set_origins("off")
        assert report(device)["thrashing"] is not None
        del two, one
        assert report(device)["thrashing"] is None, "they are gone"


def test_what_was_live_at_the_devices_peak(any_device: str) -> None:
    reset_peak_memory(any_device)
    began = time.time_ns()
    kept, kept_line = allocate(2 * MIB, any_device, label="kept"), here()
    spilled = filled(3 * MIB, any_device, label="spilled")
    freed = spilled.spill()
    high = filled(5 * MIB, any_device, label="high")
    ended = time.time_ns()
    del high, spilled
    told = report(any_device)
    peak = told["at_peak"]
    assert peak["bytes"] == told["info"]["peak"] == sum(holder["resident"] for holder in peak["holders"])
    assert peak["spilled"] == freed == sum(holder["spilled"] for holder in peak["holders"])
    assert began <= peak["time_ns"] <= ended <= told["time_ns"]
    by_label = {holder["label"]: (holder["resident"], holder["spilled"], holder["count"]) for holder in peak["holders"]}
    on_device = 3 * MIB - freed
    assert by_label == {"kept": (2 * MIB, 0, 1), "high": (5 * MIB, 0, 1), "spilled": (on_device, freed, 1)}
    assert [holder["origin"] for holder in peak["holders"] if holder["label"] == "kept"] == [kept_line]
    reset_peak_memory(any_device)
    peak = report(any_device)["at_peak"]
    assert [(holder["label"], holder["bytes"]) for holder in peak["holders"]] == [("kept", kept.nbytes)]
    set_origins("off")
    assert report(any_device)["at_peak"] is None
    set_origins("line")
    again = filled(KIB, any_device)
    assert report(any_device)["at_peak"]["bytes"] == kept.nbytes + again.nbytes, "a new peak is known again"


def test_a_report_is_of_one_moment_while_others_work(device: str) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def work(label: str) -> None:
        try:
            while not stop.is_set():
                buffers = [allocate(100 * KIB, device, label=label, zero=False) for _ in range(8)]
                for buffer in buffers:
                    buffer.restore()
        except BaseException as error:
            failures.append(error)

    reset_peak_memory(device)
    base = report(device)
    known = base["info"]["spill_count"] - base["spills_lost"] - sum(spill["count"] for spill in base["spills"])
    with memory_budget(2 * MIB, device):
        threads = [threading.Thread(target=work, args=(label,)) for label in "abcd"]
        for thread in threads:
            thread.start()
        try:
            for _ in range(200):
                told = report(device)
                info, peak = told["info"], told["at_peak"]
                assert info["spill_count"] - told["spills_lost"] - sum(spill["count"] for spill in told["spills"]) == known
                assert peak["bytes"] == info["peak"] == sum(holder["resident"] for holder in peak["holders"])
                assert peak["spilled"] == sum(holder["spilled"] for holder in peak["holders"])
                for spill in told["spills"]:
                    assert 0 <= spill["restores"] + spill["still_out"] <= spill["count"] and spill["out_ns"] >= 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert failures == []


def test_code_that_runs_while_a_line_is_looked_up_may_free_the_buffer(device: str) -> None:
    """Letting go of a code object runs the callbacks of its weak references, in the middle of a restore."""
    import weakref

    buffers: list[Buffer] = []
    seen = []

    def gone(reference: object) -> None:
        seen.append(1)
        if buffers:
            buffers[0].free()

    references = []
    for number in range(700):
        buffer = filled(8, device)
        buffer.spill()
        code = compile("def use(buffer): return buffer.device_ptr", f"generated{number}.py", "exec")
        space: dict[str, Any] = {}
        exec(code, space)
        references.append(weakref.ref(space["use"].__code__, gone))
        use = space.pop("use")
        del code
        buffers[:] = [buffer]
        try:
            assert use(buffer) > 0
        except ValueError as error:
            assert "freed" in str(error)
        buffers.clear()
        del use, buffer
    assert seen


def test_a_device_that_is_opened_later_and_a_child_know_the_mode() -> None:
    script = """
        import os, tack_memory
        from tack_memory._control import call_json
        from tack_memory._devices import resolve
        assert tack_memory.set_origins("stack") == "off"
        buffer = tack_memory.allocate(1 << 20, "sim:0")
        told = call_json("Report", resolve("sim:0"))
        assert told["origins"] == "stack" and told["at_peak"]["bytes"] == 1 << 20, told
        if not os.fork():
            assert tack_memory.set_origins("off") == "stack" and tack_memory.set_origins("line") == "off"
            tack_memory.reset_peak_memory("cpu")
            tack_memory.reset_peak_memory("sim:0")
            made = tack_memory.allocate(8, "cpu")
            assert made.origin == "<string>:13", made.origin
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        assert call_json("Report", resolve("sim:0"))["origins"] == "stack"
        """
    environment = {"TACK_MEMORY_SIM": "16 MiB", "TACK_MEMORY_CHECK": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout.strip() == "0", done.stdout + done.stderr
