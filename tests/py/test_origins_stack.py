"""set_origins("stack"): the frames that allocated, told by reports and buffers; all that shows a line shows the innermost one."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
from support import KIB, MIB, filled

import tack_memory
from tack_memory import Buffer, DeviceMemoryError, allocate, memory_peak, memory_report, set_origins
from tack_memory._control import call, call_json
from tack_memory._devices import resolve
from tack_memory._holders import by_line
from tack_memory._native import PACKAGE_FOLDER, _fast

HERE = __file__


pytestmark = pytest.mark.usefixtures("stacks")


def told(device: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call_json("Report", resolve(device))["holders"]
    return found


def line_of(text: str) -> int:
    """The only line of this file with that text."""
    with open(HERE, encoding="utf-8") as file:
        lines = [number for number, line in enumerate(file, 1) if text in line and "line_of" not in line]
    assert len(lines) == 1, (text, lines)
    return lines[0]


def innermost(device: str, nbytes: int = KIB) -> Buffer:
    return allocate(nbytes, device)  # here it is


def between(device: str, nbytes: int = KIB) -> Buffer:
    return innermost(device, nbytes)  # the one way


def beside(device: str, nbytes: int = KIB) -> Buffer:
    return innermost(device, nbytes)  # the other way


def test_a_buffer_tells_the_frames_that_allocated_it(any_device: str) -> None:
    buffer = between(any_device)
    here = f"{HERE}:{line_of('# here it is')}"
    assert buffer.origin == here and buffer.view(0, 1).origin == here
    stack = buffer.origin_stack
    assert stack is not None and stack[:2] == (f"{here} innermost", f"{HERE}:{line_of('# the one way')} between")
    assert stack[2].startswith(f"{HERE}:") and stack[2].endswith(" test_a_buffer_tells_the_frames_that_allocated_it")
    assert 3 < len(stack) <= 32 and not any(frame.startswith(PACKAGE_FOLDER) for frame in stack)
    assert buffer.view(0, 1).origin_stack is stack and between(any_device).origin_stack != stack, "another line of this test"
    buffer.free()
    assert buffer.origin_stack == stack, "it can be read afterwards, too"


def test_equal_stacks_are_one_and_others_are_not(any_device: str) -> None:
    same = [way(any_device) for way in [between] * 3]
    assert len({buffer.origin_stack for buffer in same}) == 1
    assert between(any_device).origin_stack not in {buffer.origin_stack for buffer in same}


def test_without_stacks_there_is_none(any_device: str) -> None:
    for mode in ("line", "off"):
        set_origins(mode)  # type: ignore[arg-type]
        buffer = innermost(any_device)
        assert buffer.origin_stack is None and buffer.view(0, 1).origin_stack is None and (buffer.origin is None) == (mode == "off")
        assert told(any_device)[0]["stack"] is None
    assert set_origins("stack") == "off"
    foreign = tack_memory.wrap(0x1000, 8, any_device, None)
    assert foreign.origin_stack is None


def test_reports_tell_holders_apart_by_stack(any_device: str) -> None:
    kept = [between(any_device), beside(any_device, 2 * KIB)]
    kept += [way(any_device, nbytes) for way, nbytes in ((beside, KIB), (between, 5 * KIB))]
    sums: dict[tuple[str, ...] | None, int] = {}
    for buffer in kept:
        sums[buffer.origin_stack] = sums.get(buffer.origin_stack, 0) + buffer.nbytes
    holders = told(any_device)
    assert {holder["origin"] for holder in holders} == {f"{HERE}:{line_of('# here it is')}"}
    assert {tuple(holder["stack"]): holder["bytes"] for holder in holders} == sums and len(holders) == len(sums) == 4
    merged = list(by_line(memory_report(any_device).holders).values())
    assert [(holder.origin, holder.bytes, holder.count) for holder in merged] == [(kept[0].origin, 9 * KIB, 4)]


def test_merged_holders_add_up_and_leave_the_report_as_it_was(device: str) -> None:
    one, other = between(device), beside(device, 2 * KIB)
    one.spill()
    report = memory_report(device)
    with other.hold("texture"), memory_peak(device):
        held = memory_report(device)
    parts = [(holder.bytes, holder.resident) for holder in report.holders]
    (merged,) = by_line(report.holders).values()
    assert (merged.resident, merged.spilled, merged.count, merged.holds, merged.device) == (2 * KIB, KIB, 2, "", device)
    assert [(holder.bytes, holder.resident) for holder in report.holders] == parts == [(2 * KIB, 2 * KIB), (KIB, 0)]
    assert next(iter(by_line(held.holders).values())).holds == "hold: texture"


def test_errors_show_lines_and_each_once(device: str) -> None:
    kept = [between(device), beside(device, 2 * KIB)]
    with pytest.raises(DeviceMemoryError) as caught:
        allocate("1000 GiB", device)
    assert [(holder.origin, holder.bytes, holder.count) for holder in caught.value.holders] == [(kept[0].origin, 3 * KIB, 2)]
    assert f"{HERE}:{line_of('# here it is')}" in str(caught.value) and "innermost" not in str(caught.value)


def test_events_and_at_peak_tell_the_line(any_device: str) -> None:
    sites = []
    with memory_peak(any_device) as peak, tack_memory.event_hook(lambda event: sites.append(event.site), domains={"device"}):
        kept = [between(any_device), beside(any_device)]
    assert len(set(sites)) == 1 and call("OriginText", sites[0]) == kept[0].origin
    assert peak.at_peak is not None
    assert {holder.origin for holder in peak.at_peak} == {kept[0].origin} and by_line(peak.at_peak).popitem()[1].count == 2


def test_deep_stacks_end_after_32_frames(any_device: str) -> None:
    def deep(left: int) -> Buffer:
        return deep(left - 1) if left else allocate(8, any_device)

    stacks = [deep(50).origin_stack or (), deep(31).origin_stack or (), deep(30).origin_stack or ()]
    assert [len(stack) for stack in stacks] == [32, 32, 32]
    assert stacks[0] == stacks[1] and all(frame.endswith("<locals>.deep") for frame in stacks[0]) and not stacks[2][-1].endswith("deep")


def test_this_package_and_hosts_machinery_are_passed_over(any_device: str) -> None:
    space: dict[str, Any] = {"made_by": between, "device": any_device}
    code = compile("def machinery(make):\n    return make()\n", f"{PACKAGE_FOLDER}inside.py", "exec")
    exec(code, space)
    buffer = space["machinery"](lambda: between(any_device))
    stack = buffer.origin_stack
    assert "between" in stack[1] and "<lambda>" in stack[2] and stack[3].endswith("passed_over") and not any("inside.py" in frame for frame in stack)
    exec(compile("import tack_memory\nmade = tack_memory.allocate(8, device)", f"{PACKAGE_FOLDER}inside.py", "exec"), space)
    assert space["made"].origin.startswith(HERE) and space["made"].origin_stack[0].startswith(space["made"].origin)


@pytest.mark.parametrize(
    ("file", "origin"),
    [("\udc80x.py", "\\udc80x.py:2"), ("x" * 5000 + ".py", "..." + "x" * 997 + ".py:2"), ("a\nb 1.py", "a\\nb 1.py:2"), ("ä.py", "ä.py:2")],
)
def test_names_of_files_and_functions_never_make_an_allocation_fail(file: str, origin: str, any_device: str) -> None:
    for mode in ("stack", "line"):
        set_origins(mode)  # type: ignore[arg-type]
        names: dict[str, Any] = {}
        code = compile(f"import tack_memory\nbuffer = tack_memory.allocate(5, {any_device!r})", file, "exec")
        exec(code.replace(co_qualname="f\ng " + "y" * 5000), names)
        buffer = names["buffer"]
        assert buffer.origin == origin
        if mode == "stack":
            stack = buffer.origin_stack
            assert stack[0].startswith(f"{origin} f\\ng yyy") and stack[0].endswith("y...") and len(stack[0]) < 2100
            assert [held["stack"] for held in told(any_device)] == [list(stack)]
        assert [held["origin"] for held in told(any_device)] == [origin]
        del buffer, names["buffer"]


def test_very_long_stacks_lose_their_outermost_frames(any_device: str) -> None:
    space: dict[str, Any] = {}
    source = "import tack_memory\ndef deep(left, device):\n    return deep(left - 1, device) if left else tack_memory.allocate(8, device)"
    exec(compile(source, "x" * 5000 + ".py", "exec"), space)
    stack = space["deep"](40, any_device).origin_stack
    assert 10 < len(stack) < 32 and sum(map(len, stack)) < 16 * KIB and len(set(stack[1:])) == 1


def test_code_that_is_gone_is_not_mistaken_for_what_has_its_address(any_device: str) -> None:
    seen = set()
    for number in range(600):
        space: dict[str, Any] = {}
        exec(compile(f"def made(make, device):\n    return make({number + 1}, device)", f"generated{number}.py", "exec"), space)
        buffer = space["made"](allocate, any_device)
        assert buffer.origin == f"generated{number}.py:2" and buffer.origin_stack[0] == f"generated{number}.py:2 made"
        seen.add(buffer.origin_stack)
        del space, buffer
    gc.collect()
    assert len(seen) == 600


def test_threads_have_their_own_stacks(any_device: str) -> None:
    made: list[tuple[str, tuple[str, ...]]] = []

    def work(way: Any) -> None:
        for _ in range(200):
            buffer = way(any_device)
            made.append((way.__name__, buffer.origin_stack))

    threads = [threading.Thread(target=work, args=(way,)) for way in (between, beside) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 800 and all(stack[1].endswith(f" {name}") for name, stack in made)


def test_who_needs_lines_leaves_stacks_on() -> None:
    assert _fast.need_origins("line") == "stack" and set_origins("off") == "stack"
    assert _fast.need_origins("line") == "off" and _fast.need_origins("stack") == "line" and set_origins("stack") == "stack"
    with pytest.raises(ValueError, match='"off", "line" or "stack", not \'all\''):
        _fast.need_origins("all")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match='"off", "line" or "stack", not int'):
        set_origins(1)  # type: ignore[arg-type]


def test_tracks_of_numpy_tell_lines(device: str) -> None:
    pytest.importorskip("numpy")
    import tack_memory.numpy

    with tack_memory.numpy.track() as track:
        kept = [between(device), beside(device, 2 * KIB)]
        gone = [between(device, 4 * KIB), beside(device, 8 * KIB)]
        del gone
    assert set_origins("stack") == "stack", "a track leaves them on"
    assert kept[0].origin_stack is not None
    (row,) = (row for row in track.report(coverage=False).rows if row.device == device)
    assert (f"{row.file}:{row.line}", row.live, row.live_count, row.allocations, row.frees, row.total) == (kept[0].origin, 3 * KIB, 2, 4, 2, 15 * KIB)
    assert (row.at_peak, row.at_peak_count, row.peak) == (15 * KIB, 4, 15 * KIB)


def test_a_line_costs_little_and_a_stack_not_much_more() -> None:
    """Of the allocations of one place, as a loop makes them, with books that nobody checks: the cheapest of many rounds, on a machine that others use."""
    script = """
        import time, tack_memory
        def cost(mode):
            tack_memory.set_origins(mode)
            best = 1e9
            for _ in range(60):
                began = time.perf_counter()
                for _ in range(200):
                    tack_memory.allocate(64, "cpu", zero=False)
                best = min(best, (time.perf_counter() - began) / 200)
            return best
        def deep(left):
            return deep(left - 1) if left else cost("stack")
        off = min(cost("off"), cost("off"))
        print(*(round((one - off) * 1e9) for one in (cost("line"), cost("stack"), deep(40))))
        """
    environment = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, env=environment)
    line, stack, deep = map(int, done.stdout.split())
    assert line < 1000 and stack < 2000 and deep < 5000, f"{line}, {stack}, {deep} ns more than without"  # 0.5 us on a machine of its own


def test_a_forked_child_goes_on_with_stacks_on_the_cpu() -> None:
    script = """
        import os, tack_memory
        tack_memory.set_origins("stack")
        def make(): return tack_memory.allocate(8, "cpu")
        before = make()
        if not os.fork():
            made = make()
            assert made.origin.endswith(":4") and made.origin_stack[0].endswith(":4 make"), made.origin_stack
            assert tack_memory.memory_report("cpu").holders[0].origin
            assert tack_memory.set_origins("line") == "stack" and make().origin_stack is None
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0", done.stdout + done.stderr


def test_pushed_out_buffers_keep_their_stacks(device: str) -> None:
    buffer = filled(MIB, device)
    buffer.spill()
    (holder,) = told(device)
    assert holder["spilled"] == MIB and holder["stack"][0].split(" ")[1] == "filled"
