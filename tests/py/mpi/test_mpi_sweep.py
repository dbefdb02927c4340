"""The demo over ranks, end to end and small: the results of one process, figures for machines, and an exit code that tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ranks import MPIEXEC, needs_mpiexec

pytestmark = needs_mpiexec
PROGRAM = Path(__file__).resolve().parents[3] / "examples" / "mpi_sweep.py"


def _sweep(folder: Path, *arguments: str, mpiexec: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    started = [str(MPIEXEC), "-n", "3"] if mpiexec else []
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TACK_MEMORY_", "TMSOFT_"))}
    command = [*started, sys.executable, str(PROGRAM), "--cells", "8000", "--steps", "3", "--output", str(folder), *arguments]
    return subprocess.run(command, env={**inherited, **environment}, text=True, capture_output=True, timeout=120, check=False)


def test_the_results_are_those_of_one_process(tmp_path: Path) -> None:
    done = _sweep(tmp_path, TACK_MEMORY_CHECK="1", TMSOFT_QUARANTINE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 4 ranks gave the same results as one process, byte for byte, in each of 3 steps." in done.stdout
    result = json.loads((tmp_path / "mpi_sweep.json").read_text(encoding="utf-8"))
    assert result["faults"] == [] and len(result["ranks"]) == len(result["alone"]) == 4
    for one, other, row in zip(result["ranks"], result["alone"], result["memory_info"]["rows"], strict=True):
        assert one["steps"] == other["steps"] and len(set(one["steps"])) == 3
        assert other["budget"] is None and other["spill_count"] == 0
        assert row["device_total"] == other["footprint"] // 2 and one["budget"] == row["device_total"] * 80 // 100
        assert one["peak"] <= one["budget"] and one["spill_count"] > 0 and one["restore_count"] > 0
        assert one["footprint"] == other["footprint"]
    assert result["memory_peak"]["bytes"]["maximum"] == max(one["peak"] for one in result["ranks"])
    assert (tmp_path / "mpi_sweep.png").read_bytes().startswith(b"\x89PNG")
    assert done.stdout.count("maximum (rank)") == 2


def test_other_results_are_found(tmp_path: Path) -> None:
    """One of three ranks hashes something else."""
    changed = "import hashlib, os\nif os.environ.get('PMI_RANK') == '2':\n    real = hashlib.sha256\n    hashlib.sha256 = lambda data=b'': real(b'x' + data)\n"
    (tmp_path / "sitecustomize.py").write_text(changed, encoding="utf-8")
    done = _sweep(tmp_path, mpiexec=True, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED: rank 2: results differ from those of one process, first in step 0" in done.stdout and "gave the same" not in done.stdout
    assert len(json.loads((tmp_path / "mpi_sweep.json").read_text(encoding="utf-8"))["faults"]) == 1


def test_a_device_that_is_large_enough_shows_nothing(tmp_path: Path) -> None:
    done = _sweep(tmp_path, "--share", "200")
    assert done.returncode == 1 and "rank 3: its device was large enough" in done.stdout and "rank 3: nothing was spilled" in done.stdout


def test_what_cannot_fit_ends_all_ranks(tmp_path: Path) -> None:
    done = _sweep(tmp_path, "--share", "10", "--cells", "30000")
    assert done.returncode == 1 and "FAILED: sim:0: " in done.stdout, done.stdout + done.stderr
    done = _sweep(tmp_path, "--budget", "much")
    assert done.returncode == 1 and "FAILED: set_memory_budget: failed; no rank's budget was changed: ranks 0-3: ValueError: 'much'" in done.stdout
    done = _sweep(tmp_path, "--cells", "1000")
    assert done.returncode == 1 and "take more --cells" in done.stdout
