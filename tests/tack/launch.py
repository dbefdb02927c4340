"""What a warm launch of Tack's CPU backend costs with us: plugged in (its fields are counted), and on a simulated device with room for all of them, so that
nothing is spilled. Stock launches and ours take turns in one process, in many rounds; each round plugs in, makes its fields, launches, and plugs out. The
stock launch is measured twice a round: what the second differs from the first is noise.

It also says what the difference consists of: which Python functions of ours a launch calls, and how long each part in C takes. These run in loops of their
own, and their sum is less than the difference of real launches.

Times are printed, with the targets beside them, and nothing depends on them. It fails where it would measure something else: where the fields are not ours,
or something is spilled.

Fields have one number each: so it is the launch that is measured, and not where the memory lies (fields on a simulated device begin at the start of a page,
and so compete for the same lines of a cache; small stock fields lie side by side).

    python tests/tack/launch.py [--rounds 100] [--numbers 1]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

os.environ["TACK_CPU_THREADS"] = "1"
os.environ["TACK_MEMORY_AUTOINSTALL"] = "0"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import tack
from measure import NANO, statement

import tack_memory
from tack_memory._native import _fast
from tack_memory.hosts._field_seams import DATA

ROOM = "1 GiB"
TARGETS = {1: 5.0, 16: 3.0}  # per cent above the stock launch, by fields
STOCK, AGAIN, INSTALLED, SIMULATED = "stock", "stock again", "installed", "simulated"
MODES = (STOCK, INSTALLED, SIMULATED, AGAIN)
TIMES = 5  # measurements of each launch in a round; the least counts


@tack.kernel
def one(a):  # type: ignore[no-untyped-def]
    for i in range(a.shape[0]):
        a[i] = a[i] + 1.0


@tack.kernel
def sixteen(a, b, c, d, e, f, g, h, j, k, m, n, o, p, q, r):  # type: ignore[no-untyped-def]
    for i in range(a.shape[0]):
        a[i] = b[i] + c[i] + d[i] + e[i] + f[i] + g[i] + h[i] + j[i] + k[i] + m[i] + n[i] + o[i] + p[i] + q[i] + r[i]


KERNELS = {1: one, 16: sixteen}


def nothing(backend: Any, kernel: Any, fields: Any, named: Any) -> None:
    """A launch that does nothing."""


def reads(backend: Any, kernel: Any, fields: Any, named: Any) -> None:
    """A launch that reads each field's array, as a real one does to bind its address."""
    for field in fields:
        field._buffer._data  # noqa: B018


class Rounds:
    """All that is measured: seconds, by mode and what was timed, of each round. Statements are made once, and run on whichever fields there are now."""

    def __init__(self, numbers: int) -> None:
        self.numbers = numbers
        self.fields: dict[int, list[Any]] = {count: [] for count in KERNELS}
        self.times: dict[tuple[str, str], list[float]] = {}
        with plugged(STOCK, self.fields, numbers):
            held = {"array": type(self.fields[1][0]), "storage": DATA}
            wrapped = _fast.HostLaunch(nothing, **held)
            functions = {
                "nothing": nothing,
                "reads": reads,
                "launch": wrapped,
                "inner": _fast.HostLaunch(_fast.HostLaunch(nothing, nested="skip", **held), **held),
                "launch of reads": _fast.HostLaunch(reads, **held),
            }
            self.statements: dict[str, Callable[[], float]] = {}
            for count, kernel in KERNELS.items():
                kernel(*self.fields[count])  # compiles it
                self.statements[f"kernel {count}"] = statement("kernel(*fields)", {"kernel": kernel, "fields": self.fields[count]}, 2)
                for name, function in functions.items():
                    names = {"function": function, "fields": self.fields[count], "named": {}}
                    self.statements[f"{name} {count}"] = statement("function(None, None, fields, named)", names, 4)

    def run(self, mode: str) -> None:
        """Once more, in this mode."""
        with plugged(mode, self.fields, self.numbers):
            for name, measured in self.statements.items():
                if mode in (INSTALLED, AGAIN) and not name.startswith("kernel"):
                    continue  # nothing stands in a launch there
                measured()  # the interpreter forgets what it knew of a class that was patched
                self.times.setdefault((mode, name), []).append(min(measured() for _ in range(TIMES)))

    def least(self, mode: str, name: str) -> float:
        return min(self.times[mode, name])

    def ratios(self, mode: str, name: str) -> list[float]:
        """Of each round: how many per cent it took longer than the stock launch."""
        return [100 * (ours / stock - 1) for ours, stock in zip(self.times[mode, name], self.times[STOCK, name], strict=True)]


@contextmanager
def plugged(mode: str, fields: dict[int, list[Any]], numbers: int) -> Iterator[None]:
    """With us or without, and with new fields for each kernel. RuntimeError where it was not what it should be."""
    if mode == INSTALLED:
        tack_memory.install(tack)
    elif mode == SIMULATED:
        tack_memory.install(tack, simulate=ROOM)
    with_us = mode in (INSTALLED, SIMULATED)
    try:
        before = tack.memory_info() if with_us else None
        for count, some in fields.items():
            some[:] = [tack.field(dtype=tack.f32, shape=(numbers,)) for _ in range(count)]
        yield
        if before is not None:
            after, nbytes = tack.memory_info(), sum(field._buffer.nbytes for some in fields.values() for field in some)
            if after.in_use - before.in_use != nbytes or after.spill_count != before.spill_count:
                raise RuntimeError(f"{mode}: {after.in_use - before.in_use} bytes of {nbytes} are ours, {after.spill_count - before.spill_count} spills")
    finally:
        for some in fields.values():
            some.clear()
        if with_us:
            tack_memory.uninstall(tack)


def python_functions(count: int, mode: str, numbers: int) -> list[str]:
    """The Python functions of ours that are called in one warm launch."""
    ours, called = str(Path(tack_memory.__file__).parent), []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ours):
            called.append(frame.f_code.co_name)

    fields: dict[int, list[Any]] = {count: []}
    with plugged(mode, fields, numbers):
        KERNELS[count](*fields[count])
        sys.setprofile(note)
        try:
            KERNELS[count](*fields[count])
        finally:
            sys.setprofile(None)
    return called


def told(measured: Rounds, count: int) -> None:
    """Print what was found for launches of so many fields."""
    name, plural = f"kernel {count}", "s" if count > 1 else ""
    stock = measured.least(STOCK, name)
    print(f"{count} array{plural}: stock {stock * 1e6:.2f} us, target at most +{TARGETS[count]:.0f} %")
    for mode in (INSTALLED, SIMULATED, AGAIN):
        ratios, least = measured.ratios(mode, name), measured.least(mode, name)
        print(
            f"  {mode}: {least * 1e6:.2f} us, {100 * (least / stock - 1):+.1f} % ({(least - stock) * NANO:+.0f} ns) of the least times; "
            f"of each round's ratio the least {min(ratios):+.1f} %, the median {statistics.median(ratios):+.1f} %"
        )
    for mode in (INSTALLED, SIMULATED):
        called = python_functions(count, mode, measured.numbers)
        print(f"  {mode}, Python functions of ours in a launch: {', '.join(called) or 'none, so what it costs is C'}")

    def of(mode: str, what: str) -> float:
        return measured.least(mode, f"{what} {count}") * NANO

    around = of(SIMULATED, "launch") - of(SIMULATED, "nothing")
    inner = of(SIMULATED, "inner") - of(SIMULATED, "launch")
    slots = of(SIMULATED, "launch of reads") - of(SIMULATED, "launch") - (of(STOCK, "reads") - of(STOCK, "nothing"))
    print(
        f"  simulated, the parts in C, each in a loop of its own: HostLaunch around execute {around:.0f} ns, the one around _dispatch {inner:.0f} ns, "
        f"HostArraySlot above a plain attribute {slots:.0f} ns"
    )


def main() -> int:
    """Measure, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--numbers", type=int, default=1, help="in each field")
    options = parser.parse_args()
    tack.init("cpu")
    measured = Rounds(options.numbers)
    for n in range(options.rounds):
        for mode in MODES if n % 2 else reversed(MODES):  # what slows down or speeds up in time meets both sides
            measured.run(mode)
    print(f"launch: {options.rounds} rounds, fields of {options.numbers} number{'s' if options.numbers > 1 else ''}")
    for count in KERNELS:
        told(measured, count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
