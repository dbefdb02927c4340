"""What the options and the configuration file ask for, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from _tack_memory_pytest import BASELINE, UPDATE


@dataclass(frozen=True)
class Asked:
    """The options that measure tests."""

    table: bool  # a table at the end
    top: int  # of so many tests; 0: all
    json: Path | None
    baseline: Path | None
    update: bool
    update_arguments: str  # of pytest, to update the baseline
    tolerance: str
    limits: list[str]  # of every test, as written


def asked(config: pytest.Config) -> Asked:
    """Raises pytest.UsageError for what cannot be."""
    option = config.option
    given = BASELINE.value(config, option)
    file = None
    if given is not None:
        if not given.strip():
            raise pytest.UsageError(f"{BASELINE.flag}: give the name of a file")
        from_file = getattr(option, BASELINE.key, None) is None
        file = (config.rootpath if from_file else config.invocation_params.dir) / Path(given).expanduser()
        if file.is_dir():
            raise pytest.UsageError(f"{BASELINE.flag}: {given} is a folder")
    if option.device_memory_update and file is None:
        raise pytest.UsageError(f"{UPDATE} is for a baseline: give {BASELINE.flag} FILE, too")
    if file is not None and not file.exists() and not option.device_memory_update:
        raise pytest.UsageError(f"{BASELINE.flag}: there is no {given}; to write it: add {UPDATE}")
    top = option.device_memory_report_top
    if top is not None and top < 0:
        raise pytest.UsageError("--device-memory-report-top: a number of tests, or 0 for all")
    json = option.device_memory_report_json
    return Asked(
        table=option.device_memory_report or top is not None,
        top=10 if top is None else top,
        json=None if json is None else config.invocation_params.dir / Path(json).expanduser(),
        baseline=file,
        update=option.device_memory_update,
        update_arguments=UPDATE if given is None or from_file else f"{BASELINE.flag} {given} {UPDATE}",
        tolerance=str(config.getini("device_memory_baseline_tolerance")),
        limits=list(config.getini("device_memory_limit")),
    )
