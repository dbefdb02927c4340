"""The demo on a cluster, end to end and small: the results of one process, figures for machines, and an exit code that tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="the extra tack-memory[dask] is not installed")

PROGRAM = Path(__file__).resolve().parents[3] / "examples" / "dask_sweep.py"


def sweep(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TACK_MEMORY_", "TMSOFT_"))}
    command = [sys.executable, str(PROGRAM), "--cells", "8000", "--steps", "3", "--output", str(folder), *arguments]
    return subprocess.run(command, env={**inherited, **environment}, text=True, capture_output=True, timeout=120, check=False)


def test_the_results_are_those_of_one_process(tmp_path: Path) -> None:
    done = sweep(tmp_path, TACK_MEMORY_CHECK="1", TMSOFT_QUARANTINE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 4 workers gave the same results as one process, byte for byte, in each of 3 steps." in done.stdout
    result = json.loads((tmp_path / "dask_sweep.json").read_text(encoding="utf-8"))
    assert result["faults"] == [] and len(result["pieces"]) == len(result["alone"]) == 4
    capacity = min(other["footprint"] // 2 for other in result["alone"])
    for one, other in zip(result["pieces"], result["alone"], strict=True):
        assert one["steps"] == other["steps"] and len(set(one["steps"])) == 3
        assert other["budget"] is None and other["spill_count"] == 0
        assert one["budget"] == capacity * 80 // 100
        assert one["peak"] <= one["budget"] and one["spill_count"] > 0 and one["restore_count"] > 0
        assert one["footprint"] == other["footprint"]
    assert {row["device_total"] for row in result["memory_info"]["rows"]} == {capacity} and len(result["memory_info"]["rows"]) == 4
    assert result["memory_peak"]["bytes"] == max(one["peak"] for one in result["pieces"])
    assert sorted(row["bytes"] for row in result["memory_peak"]["rows"]) == sorted(one["peak"] for one in result["pieces"])
    assert (tmp_path / "dask_sweep.png").read_bytes().startswith(b"\x89PNG")


def test_other_results_are_found(tmp_path: Path) -> None:
    """The workers hash something else."""
    changed = "import hashlib, sys\nif '--multiprocessing-fork' in sys.orig_argv:\n"
    changed += "    real = hashlib.sha256\n    hashlib.sha256 = lambda data=b'': real(b'x' + data)\n"
    (tmp_path / "sitecustomize.py").write_text(changed, encoding="utf-8")
    done = sweep(tmp_path, "--workers", "2", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED: piece 0: results differ from those of one process, first in step 0" in done.stdout and "gave the same" not in done.stdout
    assert len(json.loads((tmp_path / "dask_sweep.json").read_text(encoding="utf-8"))["faults"]) == 2


def test_what_cannot_fit_says_failed(tmp_path: Path) -> None:
    done = sweep(tmp_path, "--share", "10", "--cells", "30000", "--workers", "2")
    assert done.returncode == 1 and "FAILED: sim:0: " in done.stdout, done.stdout + done.stderr
    done = sweep(tmp_path, "--share", "200", "--workers", "2")
    assert done.returncode == 1 and "piece 1: its device was large enough" in done.stdout and "piece 1: nothing was spilled" in done.stdout
    done = sweep(tmp_path, "--budget", "much", "--workers", "2")
    assert done.returncode != 0 and "'much'" in done.stdout + done.stderr
