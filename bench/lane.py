"""What a framework and its user do all the time: reading a pointer, launching, allocating, asking for figures."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from measure import NANO, Row, difference, interleave, ratio, statement

import tack_memory
from tack_memory._native import _fast, sim_library_path

DEVICE = "sim:0"
SIZES = (1, 4, 16, 64, 256)
SEVERAL = 500  # allocations in a row


class Checked:
    """What the same would be in Python: a property that looks at a flag and counts a use."""

    __slots__ = ("pointer", "spilled", "uses")

    def __init__(self, pointer: int) -> None:
        self.pointer, self.spilled, self.uses = pointer, False, 0

    def restore(self) -> None:
        raise AssertionError

    @property
    def device_ptr(self) -> int:
        if self.spilled:
            self.restore()
        self.uses += 1
        return self.pointer


def pointers(baseline: ModuleType, rounds: int) -> list[Row]:
    buffer = tack_memory.allocate(4096, DEVICE)
    view = buffer.view(16, 64)
    names = {"b": buffer, "v": view, "s": baseline.Slot(), "p": Checked(buffer.device_ptr)}
    t = interleave(
        {
            "ours": statement("b.device_ptr", names, 20),
            "slot": statement("s.value", names, 20),
            "member": statement("s.member", names, 20),
            "property": statement("p.device_ptr", names, 20),
            "view": statement("v.device_ptr", names, 20),
        },
        rounds,
    )
    note = f"{t['ours'].least * NANO:.1f} ns against {t['slot'].least * NANO:.1f} ns (slot) and {t['property'].least * NANO:.1f} ns (property)"
    rows = []
    for name, other, target in (("a plain slot of a C type", "slot", 2.3), ("a Python property that checks and counts", "property", 0.3)):
        value, median = ratio(t["ours"], t[other])
        rows.append(Row(f"device_ptr, warm, over {name}", value, "x", target, median=median, note=note))
    value, median = ratio(t["ours"], t["member"])
    rows.append(
        Row(
            "device_ptr, warm, over a slot of the kind T_OBJECT",
            value,
            "x",
            median=median,
            note="CPython reads the plain kind (T_OBJECT_EX) without a call, this one with one",
        )
    )
    value, median = ratio(t["view"], t["slot"])
    rows.append(Row("device_ptr of a view over a plain slot", value, "x", median=median))
    return rows


def launches(baseline: ModuleType, rounds: int) -> list[Row]:
    rows = []
    for count in SIZES:
        buffers = [tack_memory.allocate(4096, DEVICE) for _ in range(count)]
        names = {
            "l": buffers,
            "t": tuple(buffers),
            "enter": _fast.enter_launch,
            "leave": _fast.leave_launch,
            "empty": baseline.empty,
            "launch": tack_memory.launch,
        }
        repeat = 10 if count <= 16 else 1
        t = interleave(
            {
                "pass": statement("enter(l); leave(l)", names, repeat),
                "empty": statement("empty(l); empty(l)", names, repeat),
                "with": statement("with launch(*t): pass", names, repeat),
            },
            rounds,
        )
        value, median = difference(t["pass"], t["empty"])
        plural = "s" if count > 1 else ""
        rows.append(
            Row(
                f"launch pass over {count} buffer{plural}, above two empty calls",
                value,
                "ns",
                60 + 5 * count,
                median=median,
                note=f"enter and leave; the empty calls take {t['empty'].least * NANO:.0f} ns",
            )
        )
        rows.append(Row(f"with launch(...) of {count} buffer{plural}", t["with"].least * NANO, "ns", 400 + 15 * count, median=t["with"].median * NANO))
    return rows


def allocations(baseline: ModuleType, rounds: int) -> list[Row]:
    rows = []
    names = {"allocate": tack_memory.allocate, "synchronize": tack_memory.synchronize, "d": DEVICE, "several": range(SEVERAL)}
    for nbytes, zero, target in ((4096, False, 300.0), (4096, True, 300.0), (1 << 20, False, None)):
        # What a destructor lets go of is given back a little later: synchronize waits for that, so that it is in the time.
        code = f"for _ in several: allocate({nbytes}, d, zero={zero})\nsynchronize(d)"
        ours = statement(code, names)

        def drivers(nbytes: int = nbytes, zero: bool = zero) -> float:
            return float(baseline.driver_pairs(SEVERAL, nbytes, zero))

        t = interleave({"ours": lambda ours=ours: ours() / SEVERAL, "driver": drivers}, rounds)
        value, median = difference(t["ours"], t["driver"])
        how = "cleared" if zero else "not cleared"
        rows.append(
            Row(
                f"allocate + free of {nbytes} B, {how}, above the driver's own calls",
                value,
                "ns",
                target,
                median=median,
                note=f"{t['ours'].least * NANO:.0f} ns against {t['driver'].least * NANO:.0f} ns",
            )
        )
    try:
        import numpy
    except ImportError:
        return rows
    t = interleave({"numpy": statement("empty(4096, uint8)", {"empty": numpy.empty, "uint8": numpy.uint8}, 4)}, rounds)
    rows.append(Row("for comparison: numpy.empty of 4096 B, and its free", t["numpy"].least * NANO, "ns", median=t["numpy"].median * NANO))
    return rows


def origins(rounds: int) -> list[Row]:
    """What it costs an allocation to remember where it was made, on the CPU device, whose allocations cost least: their own noise is small."""

    def nested(depth: int, call: Callable[[], float]) -> float:
        return call() if depth == 0 else nested(depth - 1, call)

    plain = statement("allocate(64, 'cpu', zero=False)", {"allocate": tack_memory.allocate}, 4)

    def recorded(mode: str, depth: int = 0) -> Callable[[], float]:
        def measured() -> float:
            before = tack_memory.set_origins(mode)
            try:
                return nested(depth, plain)
            finally:
                tack_memory.set_origins(before)

        return measured

    t = interleave({"off": plain, "line": recorded("line"), "stack": recorded("stack"), "deep": recorded("stack", 24)}, rounds)
    found = []
    for mode, name, target in (("line", "line", 500), ("stack", "stack", None), ("deep", "stack, 24 frames deeper", None)):
        value, median = difference(t[mode], t["off"])
        note = f"{t[mode].least * NANO:.0f} ns against {t['off'].least * NANO:.0f} ns with origins off"
        found.append(Row(f"an allocation's origin, {name}", value, "ns", target, median=median, note=note))
    return found


def figures(baseline: ModuleType, rounds: int) -> list[Row]:
    keep = [tack_memory.allocate(4096, DEVICE) for _ in range(16)]
    names = {"info": tack_memory.memory_info, "counters": _fast.counters, "peak": tack_memory.memory_peak, "d": DEVICE, "setb": tack_memory.set_memory_budget}
    t = interleave(
        {
            "info": statement("info(d)", names),
            "driver": lambda: float(baseline.driver_query(2000)),
            "counters": statement("counters(d)", names, 10),
            "peak": statement("with peak(d): pass", names, 4),
            "budget": statement("setb(1 << 30, d)", names, 4),
        },
        rounds,
    )
    tack_memory.set_memory_budget(None, DEVICE)
    del keep
    value, median = difference(t["info"], t["driver"])
    return [
        Row(
            "memory_info() above the driver's own query",
            value,
            "ns",
            1500,
            median=median,
            note=f"{t['info'].least * NANO:.0f} ns against {t['driver'].least * NANO:.0f} ns",
        ),
        Row("counters alone", t["counters"].least * NANO, "ns", 500, median=t["counters"].median * NANO),
        Row("memory_peak, made, entered and left", t["peak"].least * NANO, "ns", 1000, median=t["peak"].median * NANO),
        Row("set_memory_budget, nothing to spill", t["budget"].least * NANO, "ns", median=t["budget"].median * NANO),
    ]


def rows(baseline: ModuleType, rounds: int) -> list[Row]:
    baseline.driver_open(sim_library_path(), tack_memory.stream(DEVICE))
    return [*(row for part in (pointers, launches, allocations, figures) for row in part(baseline, rounds)), *origins(rounds)]
