"""memory_info over ranks: one row a rank, minimum, maximum and sum, the same on every rank; and nothing of the program's own messages is touched."""

from __future__ import annotations

import os
import subprocess
import sys

from ranks import needs_mpiexec, run, same

KIB = 1024
pytestmark = needs_mpiexec


def test_figures_of_all_ranks() -> None:
    told = run("""
        kept = tack_memory.allocate(1024 * [3, 1, 4, 1][rank], DEVICE)
        if rank == 2:
            tack_memory.set_memory_budget("8 MiB", DEVICE)
            spilled = tack_memory.allocate(4096, DEVICE)
            spilled.spill()
        outcome("info", lambda: ranks.memory_info(device=DEVICE))
        told["pid"] = os.getpid()
        info = ranks.memory_info(comm, DEVICE)
        told["text"], told["html"] = str(info), info._repr_html_()
        told["figure"] = info.in_use.maximum, info.in_use.maximum_rank, repr(info) == str(info)
    """)
    info = same(told, "info")["returned"]
    in_use = {"minimum": KIB, "maximum": 4 * KIB, "minimum_rank": 1, "maximum_rank": 2, "sum": 9 * KIB, "known": 4}
    assert info["in_use"] == in_use
    assert info["budget"] == {"minimum": 8 << 20, "maximum": 8 << 20, "minimum_rank": 2, "maximum_rank": 2, "sum": 8 << 20, "known": 1}
    assert info["spilled"]["sum"] == info["spilled_bytes"]["sum"] == 4 * KIB
    assert info["spilled"]["maximum_rank"] == 2 and info["spilled"]["minimum_rank"] == 0
    assert info["footprint"] == {**in_use, "maximum": 8 * KIB, "sum": 13 * KIB}
    assert info["spill_count"]["sum"] == 1
    assert info["device_total"] == {
        "minimum": 16 << 20,
        "maximum": 16 << 20,
        "minimum_rank": 0,
        "maximum_rank": 0,
        "sum": 4 * (16 << 20),
        "known": 4,
    }  # a simulated device is a rank's own
    assert [row["rank"] for row in info["rows"]] == [0, 1, 2, 3]
    assert [row["pid"] for row in info["rows"]] == [one["pid"] for one in told]
    assert [row["in_use"] for row in info["rows"]] == [3 * KIB, KIB, 4 * KIB, KIB]
    assert {row["device"] for row in info["rows"]} == {"sim:0"} and len({row["physical"] for row in info["rows"]}) == 4
    assert all(row["host"] and row["version"] and row["problem"] is None for row in info["rows"]) and info["problems"] == []
    for one in told:
        assert one["figure"] == [4 * KIB, 2, True]
        assert one["text"] == told[0]["text"] and one["html"] == told[0]["html"]
        lines = one["text"].splitlines()
        assert len({line.find("sim:0") for line in lines if "sim:0" in line}) == 1 and sum("sim:0" in line for line in lines) == 4
        assert next(line for line in lines if line.startswith("minimum")).split()[2:5] == ["1", "KiB", "(1)"]
        assert next(line for line in lines if line.startswith("sum")).split()[1:3] == ["9", "KiB"]
        assert next(line for line in lines if line.startswith("known by, of 4")).split()[4:8] == ["4", "4", "4", "1"]
        assert one["html"].count("<td>3 KiB</td>") == 2 and "<script" not in one["html"]


def test_a_device_that_ranks_share_counts_once() -> None:
    told = run("""
        from tack_memory.mpi import _table
        _table.physical = lambda device: f"node/GPU-{rank // 3}"        # 0, 1 and 2 share one
        kept = tack_memory.allocate(100 * 1024 * (rank + 1), DEVICE)
        outcome("info", lambda: ranks.memory_info(device=DEVICE))
    """)
    info = same(told, "info")["returned"]
    assert info["device_total"]["sum"] == 2 * (16 << 20) and info["device_total"]["known"] == 4
    assert info["device_free"]["sum"] == info["rows"][0]["device_free"] + info["rows"][3]["device_free"]
    assert len({row["device_free"] for row in info["rows"]}) == 4
    assert info["in_use"]["sum"] == 1000 * KIB  # each rank's own


def test_ranks_that_differ_are_named() -> None:
    told = run("""
        if rank == 2:
            _collective.__version__ = "9.8"
        outcome("info", lambda: ranks.memory_info(device="cpu" if rank == 3 else DEVICE))
        text = str(ranks.memory_info(device="cpu" if rank == 3 else DEVICE))
        told["said"] = "9.8 on rank 2" in text and "cpu on rank 3" in text
    """)
    info = same(told, "info")["returned"]
    version = info["rows"][0]["version"]
    assert info["problems"] == [
        f"the ranks run different versions of tack_memory: {version} on ranks 0-1, 3, 9.8 on rank 2",
        "the ranks' devices differ: sim on ranks 0-2, cpu on rank 3",
    ]
    assert info["rows"][2]["problem"] == f"runs tack_memory 9.8, rank 0 runs {version}"
    assert all(one["said"] for one in told)


def test_other_communicators_and_the_programs_own_messages() -> None:
    told = run("""
        ring = bytearray(8)
        waiting = comm.Irecv([ring, MPI.BYTE], MPI.ANY_SOURCE, MPI.ANY_TAG)       # takes whatever comes on the program's communicator
        half = comm.Split(rank % 2, -rank)
        outcome("half", lambda: ranks.memory_info(half, DEVICE))
        outcome("all", lambda: ranks.memory_info(comm, DEVICE))
        outcome("self", lambda: ranks.memory_info(MPI.COMM_SELF, DEVICE))
        for number in range(2500):          # more than MPI can have open at a time, if each left something behind
            one = half.Dup() if number < 20 else MPI.COMM_SELF.Dup()
            ranks.memory_info(one, DEVICE)
            one.Free()
        told["untouched"] = not waiting.Test()
        comm.Barrier()
        comm.Send([b"ABCDEFGH", MPI.BYTE], (rank + 1) % 4, 5)
        waiting.Wait()
        told["got"] = ring.decode()
        answers = []
        thread = threading.Thread(target=lambda: answers.append(ranks.memory_info(comm, DEVICE)))
        thread.start(); thread.join()
        told["thread"] = len(answers[0].rows)
        half.Free()
    """)
    assert [len(one["half"]["returned"]["rows"]) for one in told] == [2] * 4
    assert [one["half"]["returned"]["rows"][0]["pid"] for one in told] == [told[rank]["self"]["returned"]["rows"][0]["pid"] for rank in (2, 3, 2, 3)]
    assert len(same(told, "all")["returned"]["rows"]) == 4
    assert [len(one["self"]["returned"]["rows"]) for one in told] == [1] * 4
    assert all(one["untouched"] and one["got"] == "ABCDEFGH" and one["thread"] == 4 for one in told)


def test_wrong_communicators() -> None:
    told = run("""
        other = comm.Split(rank % 2, rank)
        between = other.Create_intercomm(0, comm, 1 - rank % 2, 3)
        for name, wrong in (("null", MPI.COMM_NULL), ("between", between), ("number", 3)):
            outcome(name, lambda: ranks.memory_info(wrong, DEVICE))
        merged = between.Merge()
        outcome("merged", lambda: ranks.memory_info(merged, DEVICE))
        MPI.Finalize()
        outcome("finalized", lambda: ranks.memory_info(comm, DEVICE))
    """)
    for one in told:
        assert one["null"]["raised"] == "ValueError" and "not in the communicator" in one["null"]["text"]
        assert one["between"]["raised"] == "ValueError" and "comm.Merge()" in one["between"]["text"]
        assert one["number"]["raised"] == "TypeError" and "not int" in one["number"]["text"]
        assert len(one["merged"]["returned"]["rows"]) == 4
        assert one["finalized"] == {**one["finalized"], "raised": "RuntimeError", "text": "MPI is finalized"}


def _python(code: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_without_mpiexec_is_one_rank() -> None:
    code = "import tack_memory.mpi as ranks; print(len(ranks.memory_info(device='sim:0').rows), ranks.set_memory_budget('50%', device='sim:0'))"
    assert _python(code).split() == ["1", "None"]


def test_what_is_imported() -> None:
    _python("import sys, tack_memory; tack_memory.memory_info('cpu'); assert not [name for name in sys.modules if 'mpi' in name], sys.modules")


def test_what_is_missing_is_said() -> None:
    code = "try:\n    import tack_memory.mpi\nexcept ImportError as error:\n    print(error.name, '|', error)"
    said = _python(f"import sys; sys.modules['mpi4py'] = None\n{code}")
    assert said.startswith("mpi4py | ") and "pip install tack-memory[mpi]" in said and "mpich" in said
    said = _python(f"import sys; sys.modules['mpi4py.MPI'] = None\n{code}")
    assert said.startswith("mpi4py.MPI | ") and "needs an MPI library" in said and "pip install mpich" in said
    said = _python(code, MPI4PY_LIBMPI="/nonexistent/libmpi.so")
    assert "needs an MPI library" in said and "/nonexistent/libmpi.so" in said
