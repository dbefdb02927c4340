"""`--device-memory-simulate`: Tack on a simulated device, for one run of pytest in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tack_memory import _auto, _imports, hosts, memory_info, memory_peak
from tack_memory._logging import warning
from tack_memory._sizes import format_bytes

if TYPE_CHECKING:
    from types import ModuleType

    from tack_memory import MemoryPeak
    from tack_memory._imports import Awaited
    from tack_memory.hosts._simulate import Simulation as Wanted

TACK = "tack"

# Of one process: what happened there, or why nothing was simulated. Goes from xdist's workers to the controller.
Figures = dict[str, int] | str


class Simulation:
    """Tack on a simulated device, for one run of pytest in this process."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.peak: MemoryPeak | None = None  # of the device, from the moment when Tack was plugged in
        self.before: dict[str, int] = {}  # what was moved there until that moment
        self.why_not = f"nothing imported {TACK}"  # while there is no peak
        self.told: list[Figures] = []  # by xdist's workers
        self.awaited: Awaited | None = None  # the import of Tack
        self.silent = 0  # workers that ended without a word

    def start(self) -> None:
        """Plug in to Tack as soon as it is imported. What cannot be simulated fails in that import, and so in the test that needs it."""
        _auto.stop()
        self.awaited = _imports.when_imported(TACK, self.plug_in, strict=True)

    def end(self) -> None:
        """Leave Tack as it was: another run of pytest in this process may ask for something else."""
        if self.awaited is not None:
            self.awaited.cancel()
        if self.peak is not None:
            self.peak.__exit__(None, None, None)
        plugged = hosts.plugged(TACK)
        if self.peak is not None and plugged is not None and plugged.adapter.simulated is not None:
            try:
                hosts.uninstall(plugged.adapter.module)
            except (BufferError, MemoryError, RuntimeError) as still:  # what a test holds, or has put on top, is there to the end of the process
                warning("device memory: %s stays simulated after the tests: %s", TACK, still)

    def plug_in(self, tack: ModuleType) -> None:
        try:
            hosts.install(tack, simulate=self.wanted.budget, simulate_addresses=self.wanted.addresses)
        except Exception as error:
            self.why_not = f"{type(error).__name__}: {error}"
            raise
        plugged = hosts.plugged(TACK)
        if self.peak is None and plugged is not None and plugged.adapter.simulated is not None:
            self.before = self.moved(plugged.adapter.simulated)
            self.peak = memory_peak(plugged.adapter.simulated, "pytest")
            self.peak.__enter__()

    def figures(self) -> Figures:
        """What happened in this process."""
        if self.peak is None:
            return self.why_not
        moved = {name: value - self.before[name] for name, value in self.moved(self.peak.device).items()}
        return {**moved, "peak": self.peak.bytes}

    def moved(self, device: str) -> dict[str, int]:
        """What was moved on the device since the process began."""
        info = memory_info(device)
        return {name: getattr(info, name) or 0 for name in ("spill_count", "restore_count", "spilled_bytes", "restored_bytes")}

    def __str__(self) -> str:
        return f"device memory: Tack's CPU backend is simulated, {self.wanted}"

    def summary(self, figures: list[Figures]) -> str:
        """One line for people; of several processes the sums, but the highest peak."""
        told = [one for one in figures if not isinstance(one, str)]
        silent = f"; {self.silent} of the workers ended without telling theirs" if self.silent else ""
        if not told:
            reasons = sorted({one for one in figures if isinstance(one, str)})
            return f"device memory: nothing was simulated: {'; '.join(reasons)}{silent}"
        total = {name: sum(one[name] for one in told) for name in told[0]}
        peak = format_bytes(max(one["peak"] for one in told)) + (f" in one of {len(told)} processes" if len(told) > 1 else "")
        spilled, restored = format_bytes(total["spilled_bytes"]), format_bytes(total["restored_bytes"])
        return (
            f"device memory: {total['spill_count']:,} spills ({spilled}), {total['restore_count']:,} restores ({restored}), peak {peak}"
            f" under a soft budget of {format_bytes(self.wanted.budget)}{silent}"
        )
