"""What every test gets: simulated devices, checked books, and nothing left behind.

The switches are set before tack_memory is imported for the first time. `sim:0` has 256 MiB and `sim:1` 64 MiB; addresses that were freed are
never used again (quarantine), so that a stale pointer fails instead of reading something else's memory.
"""

from __future__ import annotations

import os
import signal
import sys

# A run that a shell started in the background ignores Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# These change how pytest, argparse and rich print, and tests read what they print.
for setting in ("CI", "BUILD_NUMBER", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "PYTHON_COLORS"):
    os.environ.pop(setting, None)

SIM = "256 MiB,64 MiB"

if "tack_memory" not in sys.modules:
    for name in [name for name in os.environ if name.startswith("TACK_MEMORY_") and not name.endswith(("_LIBRARY", "_TEST_DEVICES"))]:
        del os.environ[name]
    os.environ.update(TACK_MEMORY_SIM=SIM, TACK_MEMORY_CHECK="1", TACK_MEMORY_AUTOINSTALL="0", TMSOFT_QUARANTINE="1")

from collections.abc import Generator, Iterator, Sequence  # noqa: E402

import pytest  # noqa: E402
from support import MIB, REAL, SIMULATED, SoftDriver, books_of, opened_devices, settle  # noqa: E402

import tack_memory  # noqa: E402
from tack_memory._control import call as call_go  # noqa: E402
from tack_memory._native import _fast  # noqa: E402

failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether a test failed: then its traceback keeps buffers alive, and what is left says nothing."""
    report = yield
    if report.when == "call":
        item.stash[failed] = report.failed
    return report


CONTROLS = {"soft", "steered", "simulated", "flavour", "vendor"}
"""The fixtures of tests that need a software driver: they make it slow, small or faulty, look into it, or run a stand-in of a framework over it."""

unchosen = pytest.StashKey[list[pytest.Item]]()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Remember what `-m gpu` leaves out."""
    for item in items:
        item.config.stash.setdefault(unchosen, []).append(item)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what ran on the real devices and what did not, and why."""
    if not REAL or config.option.markexpr != "gpu" or config.option.keyword:
        return
    items = terminalreporter._session.items if terminalreporter._session else []
    chosen = {item.nodeid.partition("[")[0] for item in items}
    left_out = config.stash.get(unchosen, [])
    others = [item for item in left_out if item.nodeid.partition("[")[0] not in chosen]
    steering = sum(not CONTROLS.isdisjoint(getattr(item, "fixturenames", ())) for item in others)
    terminalreporter.write_line(
        f"on {', '.join(REAL)}: {len(items)} tests. Left out: {len(left_out) - len(others)} are these on other devices, {steering} steer a software driver, "
        f"{len(others) - steering} are on no device or on one that they name"
    )


@pytest.fixture(autouse=True)
def books_are_exact_and_nothing_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test ends with the books as they were, every identity checked, and no budget, hold, launch, label or peak scope left."""
    for name in ("last_exc", "last_value", "last_traceback"):
        vars(sys).pop(name, None)  # of a test that failed before
    settle()
    before = {device: books_of(device) for device in opened_devices()}
    open_before = _fast.still_open()
    yield
    if request.node.stash.get(failed, False):
        for device in opened_devices():
            tack_memory.set_memory_budget(None, device)
        return
    settle()
    assert _fast.still_open() == open_before, "the test left a peak scope, hold, launch or label open"
    for device in opened_devices():
        call_go("Check", tack_memory._devices.resolve(device))
        info = tack_memory.memory_info(device)
        found, start = books_of(device), before.get(device, (0, 0))
        assert found == start, f"{device}: (in_use, spilled) were {start} before the test and are {found} after it"
        assert info.reserved == 0, f"{device}: {info.reserved} bytes are still reserved"
        assert info.pending_free == 0, f"{device}: {info.pending_free} dropped bytes did not come back"
        assert info.budget is None, f"{device}: the test left a budget"


@pytest.fixture
def lines() -> Iterator[None]:
    """The line of each allocation is recorded."""
    before = tack_memory.set_origins("line")
    yield
    tack_memory.set_origins(before)


@pytest.fixture
def stacks() -> Iterator[None]:
    """The stack of each allocation is recorded."""
    before = tack_memory.set_origins("stack")
    yield
    tack_memory.set_origins(before)


@pytest.fixture(params=[*SIMULATED, *(pytest.param(name, marks=pytest.mark.gpu) for name in REAL)])
def device(request: pytest.FixtureRequest) -> str:
    """A device that spills: each vendor's backend over its software driver, and real devices in `make test-gpu`."""
    return str(request.param)


@pytest.fixture(params=[name.partition(":")[0] for name in SIMULATED])
def simulated(request: pytest.FixtureRequest) -> str:
    """A kind of simulated device whose software driver a script of the test's own (`run_python`) steers. Scripts that steer nothing take `device`."""
    return str(request.param)


@pytest.fixture(params=[*SIMULATED, "cpu", *(pytest.param(name, marks=pytest.mark.gpu) for name in REAL)])
def any_device(request: pytest.FixtureRequest) -> str:
    """Any device, the CPU included, where nothing is ever spilled."""
    return str(request.param)


@pytest.fixture(params=SIMULATED)
def steered(request: pytest.FixtureRequest) -> str:
    """A simulated device whose software driver the test steers (`soft`)."""
    return str(request.param)


@pytest.fixture
def soft(request: pytest.FixtureRequest) -> Iterator[SoftDriver]:
    """The controls of a software driver, that of `steered` or of sim:0; what a test sets is undone."""
    driver = SoftDriver(request.getfixturevalue("steered") if "steered" in request.fixturenames else "sim:0")
    yield driver
    driver.restore()


@pytest.fixture
def budget(device: str) -> Iterator[int]:
    """A soft budget of 8 MiB on `device`."""
    with tack_memory.memory_budget(8 * MIB, device):
        yield 8 * MIB
