"""The pytest plug-in of tack-memory.

pytest loads it wherever tack-memory is installed, so it imports nothing but pytest until a test or an option asks for more, and it is a module of
its own so that loading it does not import tack_memory. What it does then is in tack_memory/_pytest.

    @pytest.mark.limit_device_memory("24 MiB")      a test that must stay under 24 MiB
    device_memory                                   a fixture: .peak(), .assert_below(size), .leaked
    pytest --device-memory-report                   what each test held
    pytest --device-memory-baseline memory.txt      what has grown since the last --device-memory-update
    pytest --device-memory-budget "8 GiB"           under a budget
    pytest --device-memory-simulate "64 KiB"        with Tack's CPU backend on a simulated device that spills: whatever relies on an array
                                                    staying where it is fails
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable
    from typing import Any

    from tack_memory._pytest.budget import Budget
    from tack_memory._pytest.measure import DeviceMemory
    from tack_memory._pytest.plugin import Measuring
    from tack_memory._pytest.simulation import Simulation

MARKER = "limit_device_memory"
FIXTURE = "device_memory"


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


BUDGET = Option(
    "--device-memory-budget",
    "SIZE",
    'run under a budget: "8 GiB" for each device, or "cuda:0=8GiB,cuda:1=50%%", as TACK_MEMORY_BUDGET',
)
BASELINE = Option(
    "--device-memory-baseline",
    "FILE",
    "fail tests that hold more device memory than FILE says, and list all that differ from it",
)
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
UPDATE = "--device-memory-update"

simulation_of: pytest.StashKey[Simulation] = pytest.StashKey()
budget_of: pytest.StashKey[Budget] = pytest.StashKey()
measuring_of: pytest.StashKey[Measuring] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("device-memory", "device memory of arrays (tack-memory)")
    group.addoption("--device-memory-report", dest="device_memory_report", action="store_true", help="list the tests that held most device memory")
    group.addoption("--device-memory-report-top", dest="device_memory_report_top", type=int, metavar="N", help="list N of them, not 10; 0: all")
    group.addoption("--device-memory-report-json", dest="device_memory_report_json", metavar="FILE", help="write the figures of all tests to FILE, in bytes")
    BASELINE.add(parser, group)
    group.addoption(UPDATE, dest="device_memory_update", action="store_true", help="write what has changed to the baseline's file")
    for option in (BUDGET, SIMULATE, ADDRESSES):
        option.add(parser, group)
    parser.addini(
        "device_memory_limit",
        f'limits of every test, which its own {MARKER} overrides; one a line: "24 MiB", or "24 MiB, device=cuda:0, kind=peak"',
        "linelist",
        default=[],
    )
    parser.addini("device_memory_baseline_tolerance", 'how far a test may be from its baseline: "64 KiB", "5%"', default="0")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    _start(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f'{MARKER}(size, device=None, kind="own"): fail the test where it holds more device memory than size ("24 MiB"; size itself is allowed). kind: own '
        "(what the test's body allocated), delta (above what was in use when it began), peak (all that is in use), footprint (and what is spilled), leak "
        "(what it left behind)",
    )
    _start(config, config.option)  # where the plug-in itself came from a conftest.py
    option = config.option
    if (
        option.device_memory_report
        or option.device_memory_report_top is not None
        or option.device_memory_report_json is not None
        or option.device_memory_update
        or BASELINE.value(config, option) is not None
        or config.getini("device_memory_limit")
    ):
        _measuring(config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tests are measured where one of them asks for it. This looks at each test for some tenths of a microsecond."""
    if measuring_of not in session.config.stash and _asks(session.items):
        _measuring(session.config)


@pytest.fixture
def device_memory(request: pytest.FixtureRequest) -> DeviceMemory:
    """What the test's body holds of device memory: .peak() so far, in bytes; .assert_below("24 MiB"); .leaked, what it allocated and is alive."""
    return _measuring(request.config).memory_of(request)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    for started in (config.stash.get(simulation_of, None), config.stash.get(budget_of, None)):
        if started is not None:
            started.end()


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [str(started) for started in (config.stash.get(simulation_of, None), config.stash.get(budget_of, None)) if started is not None]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist tells the controller."""
    simulation = session.config.stash.get(simulation_of, None)
    if simulation is not None and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tack_memory"] = simulation.figures()  # pyright: ignore[reportAttributeAccessIssue]  # xdist's


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


def _asks(items: Iterable[pytest.Item]) -> bool:
    """Whether a test has the marker, on itself or on what it is in, or uses the fixture."""
    known: set[int] = set()  # ids of the nodes above that have no marker
    for item in items:
        node: Any = item
        while node is not None and id(node) not in known:
            for mark in node.own_markers:
                if mark.name == MARKER:
                    return True
            if node is not item:
                known.add(id(node))
            node = node.parent
        if FIXTURE in getattr(item, "fixturenames", ()):
            return True
    return False


def _measuring(config: pytest.Config) -> Measuring:
    """What measures the tests of this run; it is there from the first call on."""
    measuring = config.stash.get(measuring_of, None)
    if measuring is None:
        from tack_memory._pytest.asked import asked
        from tack_memory._pytest.plugin import NAME, Measuring

        try:
            measuring = config.stash[measuring_of] = Measuring(config, asked(config))
        except (ValueError, TypeError, OSError) as wrong:
            raise pytest.UsageError(str(wrong)) from None
        config.pluginmanager.register(measuring, NAME)
    return measuring


def _start(config: pytest.Config, line: argparse.Namespace) -> None:
    """What must act before anything imports Tack, a project's conftest.py included."""
    budget = BUDGET.value(config, line)
    if budget is not None and budget_of not in config.stash:
        _start_budget(config, budget)
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
    from tack_memory._pytest.simulation import Simulation

    simulation = config.stash[simulation_of] = Simulation(wanted)
    try:
        simulation.start()  # plugs in at once where this process has imported Tack before
    except Exception as wrong:
        raise pytest.UsageError(f"{SIMULATE.flag}: {wrong}") from wrong


def _start_budget(config: pytest.Config, text: str) -> None:
    from tack_memory._pytest.budget import Budget

    try:
        budget = Budget(text, BUDGET.flag)
        budget.start()
    except (ValueError, MemoryError) as wrong:
        raise pytest.UsageError(str(wrong)) from None
    config.stash[budget_of] = budget
