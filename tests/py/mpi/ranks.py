"""Programs of several ranks: each test writes one, starts it through mpiexec, and reads what each rank told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mpi4py", reason="tack_memory.mpi needs mpi4py")

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}")

needs_mpiexec = pytest.mark.skipif(MPIEXEC is None, reason="no mpiexec: pip install mpich")


def _is_hydra() -> bool:
    return MPIEXEC is not None and "HYDRA" in subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True, check=False).stdout


needs_hydra = pytest.mark.skipif(not _is_hydra(), reason="only MPICH's mpiexec can let a job go on without a rank that ended")

_BEFORE = '''
import json, os, pickle, signal, sys, threading, time, traceback
from mpi4py import MPI
import tack_memory
import tack_memory.mpi as ranks
from tack_memory.mpi import _channel, _collective

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
told = {}

def tell():
    path = os.path.join(sys.argv[1], f"{rank}.json")
    with open(path + ".new", "w") as file:
        json.dump(told, file)
    os.replace(path + ".new", path)

def outcome(name, call):
    """What a call did: a dict of its error's fields, or what it returned; and the seconds that it took."""
    start = time.monotonic()
    try:
        result = call()
        told[name] = {"returned": result.to_dict() if hasattr(result, "to_dict") else result}
    except ranks.CollectiveError as error:
        again = pickle.loads(pickle.dumps(error))
        assert (again.call, again.problems, again.missing, str(again)) == (error.call, error.problems, error.missing, str(error))
        cause = None if error.__cause__ is None else type(error.__cause__).__name__
        told[name] = {"problems": {str(who): what for who, what in error.problems.items()}, "missing": error.missing, "text": str(error), "cause": cause}
    except Exception as error:
        told[name] = {"raised": type(error).__name__, "text": str(error), "notes": getattr(error, "__notes__", [])}
    told[name]["seconds"] = time.monotonic() - start
    tell()

DEVICE = "sim:0"
'''


def run(program: str, number: int = 4, *, options: tuple[str, ...] = (), limit: float = 40, code: int | None = 0, **environment: str) -> list[dict[str, Any]]:
    """Run a program in so many ranks, and return what each told (`told`), by rank. A rank that told nothing has an empty dict."""
    assert MPIEXEC is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(_BEFORE + textwrap.dedent(program) + "\ntell()\n", encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TACK_MEMORY_")}
        settings = {"TACK_MEMORY_SIM": "16 MiB", "TACK_MEMORY_AUTOINSTALL": "0", "TACK_MEMORY_CHECK": "1", "TMSOFT_QUARANTINE": "1", **environment}
        command = [MPIEXEC, *options, "-n", str(number), sys.executable, "-u", str(path), folder]
        start = time.monotonic()
        done = subprocess.run(command, env={**kept, **settings}, text=True, capture_output=True, timeout=limit, check=False)
        said = f"exit code {done.returncode} after {time.monotonic() - start:.1f} s\n{done.stdout}{done.stderr}"
        assert code is None or done.returncode == code, said
        files = [Path(folder, f"{rank}.json") for rank in range(number)]
        found = [json.loads(file.read_text(encoding="utf-8")) if file.exists() else {} for file in files]
    assert "Traceback" not in said, said
    return found


def same(told: list[dict[str, Any]], name: str, *, but: tuple[int, ...] = ()) -> dict[str, Any]:
    """What all ranks told under a name, which must be the same but for the time and the cause; the longest time."""
    mine = [dict(one[name]) for rank, one in enumerate(told) if rank not in but]
    seconds = max(one.pop("seconds") for one in mine)
    for one in mine:
        one.pop("cause", None)
    assert all(one == mine[0] for one in mine), mine
    return {**mine[0], "seconds": seconds}
