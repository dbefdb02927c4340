"""The pytest plug-in of tack-memory.

pytest loads it wherever tack-memory is installed, so it imports nothing but pytest until an option asks for more, and it is a module of its
own so that loading it does not import tack_memory.

`pytest --device-memory-simulate "64 KiB"` runs a project's tests with Tack's CPU backend on a simulated device that spills: whatever relies
on an array staying where it is fails. It must act before anything imports Tack, a project's conftest.py included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import argparse
    from types import ModuleType
    from typing import Any

    from tack_memory import MemoryPeak
    from tack_memory._imports import Awaited
    from tack_memory.hosts._simulate import Simulation as Wanted

TACK = "tack"

# Of one process: what happened there, or why nothing was simulated. Goes from xdist's workers to the controller.
Figures = dict[str, int] | str


class Option:
    """One option: a command-line flag, and a key of the configuration file with the same meaning. The flag wins."""

    def __init__(self, flag: str, metavar: str | None, help: str, choices: tuple[str, ...] | None = None) -> None:
        self.flag, self.metavar, self.help, self.choices = flag, metavar, help, choices
        self.key = flag.lstrip("-").replace("-", "_")

    def add(self, parser: pytest.Parser, group: Any) -> None:
        group.addoption(self.flag, dest=self.key, metavar=self.metavar, default=None, choices=self.choices, help=self.help)
        parser.addini(self.key, f"{self.flag}: {self.help}", default="")

    def value(self, config: pytest.Config, line: argparse.Namespace) -> str | None:
        """What was given on the command line, else in the configuration file, or None."""
        given: str | None = getattr(line, self.key, None)
        if given is None:
            given = str(config.getini(self.key)).strip() or None
        if given is not None and self.choices and given not in self.choices:
            raise pytest.UsageError(f"{self.key}: must be {' or '.join(self.choices)}, not {given!r}")
        return given


SIMULATE = Option(
    "--device-memory-simulate",
    "SIZE",
    'compute with Tack\'s CPU backend on a simulated device that spills, under a soft budget of SIZE: "64 KiB", "1 MiB"; 0: whatever is not in use is spilled',
)
ADDRESSES = Option(
    "--device-memory-simulate-addresses",
    None,
    "whether that device uses addresses again; fresh (the default): never, a stale pointer crashes; reuse: at once, a stale pointer finds other data",
    ("fresh", "reuse"),
)


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
        from tack_memory import _auto, _imports

        _auto.stop()
        self.awaited = _imports.when_imported(TACK, self.plug_in, strict=True)

    def end(self) -> None:
        """Leave Tack as it was: another run of pytest in this process may ask for something else."""
        from tack_memory import hosts

        if self.awaited is not None:
            self.awaited.cancel()
        if self.peak is not None:
            self.peak.__exit__(None, None, None)
        plugged = hosts.plugged(TACK)
        if self.peak is not None and plugged is not None and plugged.adapter.simulated is not None:
            try:
                hosts.uninstall(plugged.adapter.module)
            except (BufferError, MemoryError, RuntimeError) as still:  # what a test holds, or has put on top, is there to the end of the process
                from tack_memory._logging import warning

                warning("device memory: %s stays simulated after the tests: %s", TACK, still)

    def plug_in(self, tack: ModuleType) -> None:
        from tack_memory import hosts, memory_peak

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
        from tack_memory import memory_info

        info = memory_info(device)
        return {name: getattr(info, name) or 0 for name in ("spill_count", "restore_count", "spilled_bytes", "restored_bytes")}

    def __str__(self) -> str:
        return f"device memory: Tack's CPU backend is simulated, {self.wanted}"

    def summary(self, figures: list[Figures]) -> str:
        """One line for people; of several processes the sums, but the highest peak."""
        from tack_memory._sizes import format_bytes

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


simulation_of = pytest.StashKey[Simulation]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("device-memory", "device memory of arrays (tack-memory)")
    for option in (SIMULATE, ADDRESSES):
        option.add(parser, group)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    _start(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    _start(config, config.option)  # where the plug-in itself came from a conftest.py


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    simulation = config.stash.get(simulation_of, None)
    if simulation is not None:
        simulation.end()


def pytest_report_header(config: pytest.Config) -> str | None:
    simulation = config.stash.get(simulation_of, None)
    return None if simulation is None else str(simulation)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist tells the controller."""
    simulation = session.config.stash.get(simulation_of, None)
    if simulation is not None and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tack_memory"] = simulation.figures()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """The controller of xdist hears of a worker's end."""
    simulation = node.config.stash.get(simulation_of, None)
    if simulation is None:
        return
    output = getattr(node, "workeroutput", {})
    if "tack_memory" in output:
        simulation.told.append(output["tack_memory"])
    else:
        simulation.silent += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    simulation = config.stash.get(simulation_of, None)
    if simulation is not None:
        distributed = simulation.told or simulation.silent
        terminalreporter.write_line(simulation.summary(simulation.told if distributed else [simulation.figures()]))


def _start(config: pytest.Config, line: argparse.Namespace) -> None:
    size, addresses = SIMULATE.value(config, line), ADDRESSES.value(config, line)
    if simulation_of in config.stash or (size is None and addresses is None):
        return
    if size is None:
        raise pytest.UsageError(f"{ADDRESSES.flag} is for a simulated device: give {SIMULATE.flag}, too")
    from tack_memory.hosts import _simulate

    try:
        wanted = _simulate.wanted(size, None, addresses)
    except ValueError as wrong:
        raise pytest.UsageError(f"{SIMULATE.flag}: {wrong}") from None
    simulation = config.stash[simulation_of] = Simulation(wanted)
    try:
        simulation.start()  # plugs in at once where this process has imported Tack before
    except Exception as wrong:
        raise pytest.UsageError(f"{SIMULATE.flag}: {wrong}") from wrong
