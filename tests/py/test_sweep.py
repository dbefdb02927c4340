"""The demo, end to end and small: the same results under every budget, figures for machines, and an exit code that tells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import crashed

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
RUN_FIELDS = {
    "name", "sha256", "seconds", "peak", "footprint", "budget", "spill_count", "restore_count", "spilled_bytes", "restored_bytes",
}  # fmt: skip


def sweep(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the demo as a user does: the switches of the tests do not apply."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TACK_MEMORY_", "TMSOFT_"))}
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "sweep.py"), *arguments],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module", params=["sim:0", "sim-hip:0", "sim-level_zero:0"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    """What a small sweep printed, its result.json, and its folder. Books are checked and freed memory is in quarantine."""
    folder = tmp_path_factory.mktemp("sweep")
    done = sweep("--cells", "1000", "--steps", "4", "--device", request.param, "--output", str(folder), TACK_MEMORY_CHECK="1", TMSOFT_QUARANTINE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads((folder / "result.json").read_text()), folder


def test_four_runs_give_the_same_results(small: tuple[str, dict[str, Any], Path], request: pytest.FixtureRequest) -> None:
    _, result, _ = small
    assert result["device"] == request.node.callspec.params["small"]
    runs = result["runs"]
    assert [run["name"] for run in runs] == ["no budget", "budget 60% of peak", "budget 35% of peak", "device too small"]
    assert all(run.keys() >= RUN_FIELDS for run in runs)
    assert len({run["sha256"] for run in runs}) == 1
    assert all(run["steps"] == runs[0]["steps"] and len(set(run["steps"])) == 4 for run in runs)


def test_budgets_are_kept_and_need_spilling(small: tuple[str, dict[str, Any], Path]) -> None:
    _, result, _ = small
    free, *limited = result["runs"]
    assert (free["budget"], free["spill_count"], free["restore_count"]) == (None, 0, 0)
    assert free["footprint"] == free["peak"]
    for run, share in zip(limited, (60, 35, None), strict=True):
        assert run["over_budget_count"] == 0
        assert run["spill_count"] > 0 and run["restore_count"] > 0
        assert run["spilled_bytes"] >= run["restored_bytes"] > 0
        assert run["footprint"] == free["footprint"]
        if share is None:
            assert run["budget"] is None and run["peak"] <= run["room"] < free["peak"]
        else:
            assert run["peak"] <= run["budget"] == free["peak"] * share // 100
    assert limited[1]["spilled_bytes"] > limited[0]["spilled_bytes"]


def test_it_shows_a_table_a_picture_and_the_error(small: tuple[str, dict[str, Any], Path]) -> None:
    text, result, folder = small
    vendor = {"sim": "CUDA", "sim-hip": "HIP", "sim-level_zero": "Level Zero"}[result["device"].partition(":")[0]]
    assert f"sweep on {result['device']} ({vendor} backend over the software {vendor} driver)" in text
    for word in ("ratio", "footprint", "restores", "moving", "DeviceMemoryError", "cannot move now", "try:", "byte for byte"):
        assert word in text
    assert "arrays of one launch x4" in result["error"] and "use fewer or smaller arrays in one launch" in result["error"]
    assert result["faults"] == []
    assert (folder / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_budgets_of_ones_own(tmp_path: Path) -> None:
    done = sweep("--cells", "500", "--steps", "2", "--device", "sim-cuda:1", "--budget", "256 KiB", "--budget", "50%", "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["device"] == "sim:1"  # sim-cuda is another name
    assert [run["budget"] for run in result["runs"]] == [None, 256 * 1024, result["runs"][0]["peak"] // 2, None]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--budget", "120%"), "a percentage of the peak"),
        (("--budget", "24 MBanana"), "24 MBanana"),
        (("--device", "gpu:0"), "gpu:0"),
        (("--device", "cpu"), "not on 'cpu'"),
        (("--cells", "0"), "--cells"),
    ],
)
def test_wrong_options_are_told_at_once(arguments: tuple[str, str], told: str, tmp_path: Path) -> None:
    done = sweep(*arguments, "--output", str(tmp_path))
    assert done.returncode and not crashed(done.returncode, done.stderr)
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_help_needs_nothing() -> None:
    done = sweep("--help")
    assert done.returncode == 0
    assert all(option in done.stdout for option in ("--cells", "--steps", "--device", "--budget", "arrays of one launch"))


def test_a_budget_too_small_for_one_launch_is_told_as_what_it_is(tmp_path: Path) -> None:
    done = sweep("--cells", "500", "--steps", "1", "--device", "sim:0", "--budget", "3%", "--output", str(tmp_path))
    assert done.returncode == 1
    (fault,) = json.loads((tmp_path / "result.json").read_text())["faults"]
    assert fault.startswith("budget 3% of peak: went over the budget ") and fault.endswith("the arrays of one launch pass any budget")


def test_different_results_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from sweep.report import faults
    from sweep.runs import Run

    def made(**changes: Any) -> Run:
        figures = dict.fromkeys(Run.__dataclass_fields__, 0)
        return Run(**{**figures, "name": "run", "sha256": "a", "steps": ["a", "b"], "peak": 100, "budget": None, "room": None, **changes})

    free = made(name="free")
    assert faults([free, made(budget=60, peak=60, spill_count=1)]) == []
    assert faults([free, made(sha256="b", steps=["a", "c"])]) == ["run: results differ from those of 'free', first in step 1"]
    assert "over the budget" in faults([free, made(budget=60, over_budget_count=2, spill_count=1)])[0]
    assert "peak" in faults([free, made(budget=60, peak=61, spill_count=1)])[0]
    assert "nothing was spilled" in faults([free, made(budget=60, peak=60)])[0]
    assert "nothing was spilled" in faults([free, made(room=60)])[0]


@pytest.mark.parametrize("vendor", ["cuda", "hip", "level_zero"])
def test_the_first_real_device_is_taken(tmp_path: Path, vendor: str) -> None:
    """Over a software driver that stands for the system's: minihost then works on copies, as on real devices."""
    from tack_memory.hosts import sim_library

    library = tmp_path / "driver_of_a_test.so"
    shutil.copy(sim_library("sim" if vendor == "cuda" else f"sim-{vendor}"), library)
    none = {f"TACK_MEMORY_{other}_LIBRARY": str(tmp_path / "there_is_none.so") for other in ("CUDA", "HIP", "LEVEL_ZERO")}
    done = sweep("--cells", "500", "--steps", "2", "--output", str(tmp_path), **{**none, f"TACK_MEMORY_{vendor.upper()}_LIBRARY": str(library)})
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["device"] == f"{vendor}:0"
    assert len({run["sha256"] for run in result["runs"]}) == 1
    assert "simulated" not in done.stdout and "software" not in done.stdout


def test_a_device_is_made_small_where_the_driver_does_not_say_what_is_free(tmp_path: Path) -> None:
    """No Sysman, no usable-memory extension, and a driver that gives more than there is."""
    arguments = "--cells", "500", "--steps", "2", "--device", "sim-level_zero:0", "--output", str(tmp_path)
    done = sweep(*arguments, TMSOFT_SYSMAN="0", TMSOFT_USABLEMEM="0", TMSOFT_OVERCOMMIT="1", TACK_MEMORY_CHECK="1")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    free, small = result["runs"][0], result["runs"][-1]
    assert small["spill_count"] > 0 and small["peak"] <= small["room"] < free["peak"]
    assert small["footprint"] == free["footprint"]
    assert "ballast" in result["error"]
