"""Measures tests: registered by `_tack_memory_pytest` as soon as a test, an option or the configuration file asks for it.

In a run that is distributed (pytest-xdist) the workers measure and judge, and their reports carry the figures to the controller, which makes
tables and writes files. In any other run one process does both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tack_memory
from tack_memory import _devices
from tack_memory._native import _fast

from . import baseline, limits, results
from .measure import DeviceMemory, Measurement

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Literal

    from .asked import Asked

NAME = "tack_memory_measuring"

measurement_of = pytest.StashKey[Measurement | None]()  # None: the test is not measured

TOLD = "tack_memory_measured"
"""The attribute of a test's report, and the key of a worker's last words."""

PROPERTY = "device_memory"
"""How the names of JUnit's properties begin: `device_memory[sim:0].own`."""


class Measuring:
    """One run of pytest in this process."""

    def __init__(self, config: pytest.Config, asked: Asked) -> None:
        self.config = config
        self.asked = asked
        self.defaults = limits.of_configuration(asked.limits, config.inipath.name if config.inipath else "the configuration")
        self.tolerance = baseline.Tolerance(asked.tolerance)
        self.before = baseline.read(asked.baseline) if asked.baseline is not None and asked.baseline.exists() else {}
        self.every_test = bool(asked.table or asked.json or asked.baseline or self.defaults)
        self.seen = baseline.Seen()
        self.gone: set[str] = set()  # tests of the baseline that are no more
        self.results: dict[str, results.Result] = {}  # by the test's id
        self.silent = 0  # workers that ended without a word
        self.comparison: baseline.Comparison | None = None  # with the baseline, when all is over
        self.written = False  # the baseline's file was
        self.unwritten: list[str] = []  # why files could not be written
        self.origins: Literal["off", "line", "stack"] = _fast.need_origins("line")

    # ---- what is there

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> Generator[None, object, object]:
        self.seen.tests = {item.nodeid for item in items}
        return (yield)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.passed and report.nodeid and "::" not in report.nodeid:
            self.seen.files.add(report.nodeid)
        elif report.failed:
            self.seen.files.discard(report.nodeid.partition("::")[0])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Which tests of the baseline are no more. Where tests are named by their ids, or chosen by an earlier run, a file that was collected may have more."""
        self.seen.doctests = bool(getattr(self.config.option, "doctestmodules", False))
        if getattr(self.config.option, "lf", False):
            self.seen.files.clear()
        for argument in self.config.args:
            file, colons, _ = argument.partition("::")
            if colons:
                path = (self.config.invocation_params.dir / file).resolve()
                self.seen.files.discard(path.relative_to(self.config.rootpath).as_posix() if path.is_relative_to(self.config.rootpath) else file)
        self.gone = {test for test, _ in self.before if self.seen.lacks(test, self.config.rootpath)}

    # ---- one test

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.user_properties[:] = [each for each in item.user_properties if not each[0].startswith(PROPERTY + "[")]  # of a run before this one
        item.stash[measurement_of] = None
        try:
            own = list(limits.of_markers(item))
            for default in self.defaults:
                limits.checked(default.size, default.device, default.kind)
        except (ValueError, TypeError) as wrong:
            raise pytest.fail.Exception(f"{limits.MARKER}: {wrong}", pytrace=False) from None
        if self.every_test or own or "device_memory" in getattr(item, "fixturenames", ()):
            self.measured(item, own)

    def measured(self, item: pytest.Item, own: list[limits.Limit]) -> Measurement:
        measurement = item.stash[measurement_of] = Measurement(item, [*own, *self.defaults])
        measurement.start()
        return measurement

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """The innermost of all wrappers, so that what others allocate is not the test's."""
        measurement = item.stash.get(measurement_of, None)
        if measurement is None:
            return (yield)
        hold, rows = self.that_hold(item, measurement)
        measurement.begin_body(hold, rows)
        try:
            result = yield
        except BaseException:
            measurement.end_body(complete=False)
            self.add_properties(item, measurement)
            raise
        measurement.end_body(complete=not getattr(item, "_excinfo", None))  # unittest's exceptions are there, and come out later
        self.add_properties(item, measurement)
        excess = measurement.excess()
        if excess is not None:
            pytest.fail(excess, pytrace=False)
        elsewhere = measurement.elsewhere()
        if elsewhere is not None:
            item.warn(pytest.PytestWarning(elsewhere))
        return result

    def that_hold(self, item: pytest.Item, measurement: Measurement) -> tuple[list[limits.Resolved], list[str]]:
        """The limits that hold for the body that is about to begin, and the devices that the baseline has rows of."""
        try:
            hold = limits.that_hold(measurement.limits)
        except (ValueError, TypeError) as wrong:
            raise pytest.fail.Exception(f"{limits.MARKER}: {wrong}", pytrace=False) from None
        rows = {device: nbytes for (test, device), nbytes in self.before.items() if test == item.nodeid and is_there(device)}
        if self.asked.baseline is not None and not self.asked.update:
            file = self.asked.baseline.name
            allow = f"if that is right: pytest {self.asked.update_arguments}"
            for device, nbytes in rows.items():
                tolerance = self.tolerance.nbytes(nbytes)
                source = f"{file} has {nbytes:,} bytes" + (f", with a tolerance of {self.tolerance.text}" if tolerance else "")
                hold.append(limits.Resolved(limits.Limit(nbytes, device, "own", source, allow), device, nbytes + tolerance))
        more_devices = _devices.open_names() if "device_memory" in getattr(item, "fixturenames", ()) else []
        return hold, [*rows, *more_devices]

    def add_properties(self, item: pytest.Item, measurement: Measurement) -> None:
        """For JUnit."""
        for device, figures in measurement.used().items():
            item.user_properties.extend((f"{PROPERTY}[{device}].{name}", nbytes) for name, nbytes in figures.items() if nbytes is not None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        measurement = item.stash.get(measurement_of, None)
        if measurement is not None:
            measurement.close()  # of a test whose set-up failed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        made = yield
        measurement = item.stash.get(measurement_of, None)
        if made.when == "call" and measurement is not None and measurement.body is not None:
            told = {"complete": measurement.complete, "figures": measurement.used(), "open": sorted(measurement.body)}
            setattr(made, TOLD, told)  # goes to the controller with the report
        return made

    def memory_of(self, request: pytest.FixtureRequest) -> DeviceMemory:
        """For the fixture. A test that asks for it while it runs (getfixturevalue) is measured from then on."""
        item = request.node
        measurement = item.stash.get(measurement_of, None)
        if measurement is None:
            measurement = self.measured(item, [])
            request.addfinalizer(measurement.close)
        if not measurement.scopes:  # the body has not begun, or is measured from here on
            measurement.watch_leaks()
        return DeviceMemory(measurement)

    # ---- the end

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = getattr(report, TOLD, None)
        if told is not None:
            self.results[report.nodeid] = results.Result(report.nodeid, report.outcome, told)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """The controller of xdist hears of a worker's end."""
        output = getattr(node, "workeroutput", {})
        if TOLD in output:
            self.gone.update(output[TOLD])
        else:
            self.silent += 1

    def is_worker(self) -> bool:
        return hasattr(self.config, "workerinput")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.is_worker():
            session.config.workeroutput[TOLD] = sorted(self.gone)  # type: ignore[attr-defined]
            return
        if getattr(self.config.option, "collectonly", False):
            return  # nothing ran
        if self.asked.baseline is not None:
            self.comparison = self.compared()
        self.write_files()
        if self.unwritten and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def write_files(self) -> None:
        """What cannot be written is told at the end: the results of the run are worth more than that."""
        try:
            if self.asked.json is not None:
                results.to_file(self.asked.json, list(self.results.values()))
        except OSError as error:
            self.unwritten.append(f"the report was not written: {error}")
        try:
            if self.asked.baseline is not None and self.comparison is not None and self.asked.update:
                self.written = baseline.write(self.asked.baseline, self.comparison.rows)
        except OSError as error:
            self.unwritten.append(f"the baseline was not written: {error}")

    def compared(self) -> baseline.Comparison:
        passed = {test: result for test, result in self.results.items() if result.complete and (result.outcome == "passed" or not self.asked.update)}
        now = {(test, device): figures["own"] or 0 for test, result in passed.items() for device, figures in result.figures.items()}
        ran = {test: result.open for test, result in passed.items()}
        return baseline.compare(self.before, now, ran, self.gone, self.tolerance)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.asked.table:
            terminalreporter.section("device memory: the tests that held most")
            for line in results.table(list(self.results.values()), self.asked.top):
                terminalreporter.write_line(line)
        if self.asked.baseline is not None and self.comparison is not None:
            self.tell_of(self.comparison, self.asked.baseline.name, terminalreporter)
        for why in self.unwritten:
            terminalreporter.write_line(f"device memory: {why}", red=True)

    def tell_of(self, compared: baseline.Comparison, file: str, terminalreporter: pytest.TerminalReporter) -> None:
        """Of the baseline."""
        terminalreporter.section(f"device memory: compared with {file}")
        for line in compared.lines():
            terminalreporter.write_line(line)
        terminalreporter.write_line(compared.summary())
        if self.asked.update:
            terminalreporter.write_line(f"{file} is {'written' if self.written else 'as it was'}")
        elif compared.changes:
            terminalreporter.write_line(f"to accept: pytest {self.asked.update_arguments}")
        if self.silent:
            terminalreporter.write_line(f"{self.silent} of the workers ended without telling which tests are gone")

    def pytest_unconfigure(self) -> None:
        tack_memory.set_origins(self.origins)


def is_there(device: str) -> bool:
    """Whether this machine has the device: a baseline may be for several machines."""
    try:
        _devices.resolve_name(device)
    except ValueError:
        return False
    return True
