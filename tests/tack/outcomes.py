"""A pytest plug-in for Tack's own tests: writes down how each of them ended, and what moved meanwhile. It can plug in to Tack without a budget."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

_outcomes: dict[str, str] = {}
_deselected = 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tack-memory-outcomes", required=True, help="the file to write")
    parser.addoption("--tack-memory-outcomes-plugged", action="store_true", help="import tack_memory, which plugs in to Tack by itself")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if early_config.known_args_namespace.tack_memory_outcomes_plugged:
        os.environ.pop("TACK_MEMORY_AUTOINSTALL", None)
        import tack_memory  # noqa: F401


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = "error" if report.when != "call" and report.failed else report.outcome


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.outcome != "passed":
        _outcomes[report.nodeid] = "error" if report.failed else report.outcome


def pytest_deselected(items: list[pytest.Item]) -> None:
    global _deselected
    _deselected += len(items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    told = {"outcomes": _outcomes, "deselected": _deselected, "memory": _memory()}
    Path(session.config.getoption("--tack-memory-outcomes")).write_text(json.dumps(told))


def _memory() -> dict[str, Any] | None:
    if "tack_memory" not in sys.modules:
        return None
    from tack_memory import memory_info
    from tack_memory.hosts import plugged

    known = plugged("tack")
    if known is None:
        raise RuntimeError("tack_memory was to be plugged in to Tack, and is not")
    info = memory_info(known.adapter.simulated or "cpu")
    return {"spills": info.spill_count, "restores": info.restore_count, "peak": info.peak}
