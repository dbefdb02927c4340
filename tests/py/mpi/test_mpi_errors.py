"""Collective calls end, on every rank with the same error, where ranks disagree, one fails, or one is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ranks import MPIEXEC, needs_hydra, needs_mpiexec, run, same

pytestmark = needs_mpiexec


def test_disagreements_and_failures_are_told_to_all() -> None:
    told = run("""
        tack_memory.set_memory_budget("1 MiB", DEVICE, strict=True)
        outcome("calls", lambda: ranks.memory_info(device=DEVICE) if rank == 1 else ranks.set_memory_budget("50%", device=DEVICE))
        outcome("sizes", lambda: ranks.set_memory_budget("50%" if rank == 3 else "80%", device=DEVICE))
        outcome("strict", lambda: ranks.set_memory_budget("80%", device=DEVICE, strict=rank == 0))
        outcome("device", lambda: ranks.set_memory_budget("80%", device="cuda:77" if rank == 2 else DEVICE))
        outcome("device of info", lambda: ranks.memory_info(device="nonsense" if rank == 2 else DEVICE))
        outcome("timeout", lambda: ranks.memory_info(device=DEVICE, timeout="soon" if rank == 0 else 20))
        outcome("negative", lambda: ranks.memory_info(device=DEVICE, timeout=-1 if rank == 0 else 20))
        outcome("no bool", lambda: ranks.set_memory_budget("80%", device=DEVICE, strict=1 if rank == 0 else True))
        outcome("zero", lambda: ranks.set_memory_budget(0, device=DEVICE))
        outcome("float", lambda: ranks.set_memory_budget(0.8, device=DEVICE))
        told["budget"] = tack_memory.get_memory_budget(DEVICE), tack_memory.memory_info(DEVICE).strict
        outcome("written otherwise", lambda: ranks.set_memory_budget(2**20 if rank else " 1 MiB", device=DEVICE, strict=True))
        outcome("percentage", lambda: ranks.set_memory_budget("50 %" if rank else "50%", device=DEVICE))
    """)
    calls = {rank: "called memory_info" if rank == 1 else "called set_memory_budget" for rank in range(4)}
    for rank, one in enumerate(told):
        found, unchanged = one["calls"], "" if rank == 1 else "; no rank's budget was changed"
        assert found["problems"] == {str(who): text for who, text in calls.items()} and found["missing"] == []
        assert found["text"].startswith(f"{calls[rank].removeprefix('called ')}: the ranks made different calls{unchanged}: ranks 0, 2-3: called ")
    found = same(told, "sizes")
    assert (
        found["text"]
        == "set_memory_budget: the ranks disagree; no rank's budget was changed: ranks 0-2: size='80%', strict=False; rank 3: size='50%', strict=False"
    )
    assert found["problems"]["3"] == "size='50%', strict=False" and found["missing"] == []
    assert "rank 0: size='80%', strict=True; ranks 1-3: size='80%', strict=False" in same(told, "strict")["text"]
    for name, who, what in (
        ("device", "2", "ValueError: unknown device 'cuda:77'"), ("device of info", "2", "ValueError: unknown device 'nonsense'"),
        ("timeout", "0", "TypeError: timeout must be a number of seconds, not 'soon'"), ("negative", "0", "ValueError: timeout must be above 0"),
        ("no bool", "0", "TypeError: strict must be True or False, not 1"),
    ):  # fmt: skip
        found = same(told, name)
        assert list(found["problems"]) == [who] and found["problems"][who].startswith(what), found
        assert [one[name]["cause"] for one in told] == [what.partition(":")[0] if str(rank) == who else None for rank in range(4)]
        assert found["missing"] == [] and f"rank {who}: {what}" in found["text"]
    assert "ranks 0-3: ValueError: a budget cannot be 0" in same(told, "zero")["text"]
    assert 'the device write "80%"' in same(told, "float")["text"]
    assert [one["budget"] for one in told] == [[2**20, True]] * 4
    assert same(told, "written otherwise")["returned"] == 2**20
    assert same(told, "percentage")["returned"] == 2**20


def test_a_late_rank_fails_as_the_others_do_and_the_next_call_works() -> None:
    told = run("""
        outcome("before", lambda: len(ranks.memory_info(device=DEVICE).rows))
        comm.Barrier()
        if rank == 3:
            time.sleep(3)
        outcome("late", lambda: ranks.set_memory_budget("50%", device=DEVICE, timeout=1))
        told["budget"] = tack_memory.get_memory_budget(DEVICE)
        comm.Barrier()
        outcome("after", lambda: len(ranks.memory_info(device=DEVICE).rows))
    """)
    assert same(told, "before")["returned"] == same(told, "after")["returned"] == 4
    late = same(told, "late")
    assert late["missing"] == [3] and list(late["problems"]) == ["3"] and late["seconds"] < 2.5
    assert late["text"].startswith("set_memory_budget; no rank's budget was changed: rank 3: did not take part in time")
    assert told[3]["late"]["seconds"] < 0.5  # nobody is waited for who has given up
    assert [one["budget"] for one in told] == [None] * 4


def test_a_rank_that_is_late_for_the_first_call() -> None:
    told = run("""
        if rank == 1:
            time.sleep(3)
        outcome("late", lambda: ranks.memory_info(device=DEVICE, timeout=1))
        comm.Barrier()
        outcome("after", lambda: len(ranks.memory_info(device=DEVICE).rows))
    """)
    late = same(told, "late", but=(1,))
    assert late["missing"] == [1] and late["seconds"] < 2.5 and "rank 1: did not take part" in late["text"]
    assert "text" in told[1]["late"] and told[1]["late"]["seconds"] < 2.5  # the others may be in no call of MPI then, so it cannot know why
    assert same(told, "after")["returned"] == 4


@needs_hydra
def test_ranks_that_are_gone() -> None:
    """In the middle, and with the default time limit; a second call does not wait as long again."""
    told = run(
        """
        outcome("before", lambda: len(ranks.memory_info(device=DEVICE).rows))
        tack_memory.set_memory_budget("1 MiB", DEVICE)
        if rank in (0, 2):
            os._exit(0)
        outcome("gone", lambda: ranks.set_memory_budget("50%", device=DEVICE))
        outcome("again", lambda: ranks.memory_info(device=DEVICE))
        told["budget"] = tack_memory.get_memory_budget(DEVICE)
        tell()
        os._exit(0)          # MPI's own end waits for all
        """,
        options=("-disable-auto-cleanup",),
        code=None,
    )
    assert "gone" not in told[0] and "gone" not in told[2]
    gone = same(told, "gone", but=(0, 2))
    assert gone["missing"] == [0, 2] and 19 < gone["seconds"] < 30
    assert (
        gone["text"]
        == "set_memory_budget; no rank's budget was changed: ranks 0, 2: did not take part in time (timeout=20): ended, hangs, or is busy with something else"
    )
    again = same(told, "again", but=(0, 2))
    assert again["missing"] == [0, 2] and again["seconds"] < 4
    assert told[1]["budget"] == told[3]["budget"] == 2**20


@needs_hydra
def test_a_rank_that_was_gone_before_the_first_call() -> None:
    told = run(
        """
        if rank == 0:
            os._exit(0)
        outcome("gone", lambda: ranks.memory_info(device=DEVICE, timeout=2))
        outcome("again", lambda: ranks.memory_info(device=DEVICE, timeout=20))
        tell()
        os._exit(0)
        """,
        options=("-disable-auto-cleanup",),
        code=None,
    )
    gone = same(told, "gone", but=(0,))
    assert gone["missing"] == [0] and gone["seconds"] < 4
    again = same(told, "again", but=(0,))
    assert again["missing"] == [0] and again["seconds"] < 4


def test_a_rank_that_ends_without_the_call() -> None:
    """It waits at MPI's own end; so do the others, after their errors, and all come out."""
    told = run("""
        outcome("before", lambda: len(ranks.memory_info(device=DEVICE).rows))
        if rank != 1:
            outcome("one ended", lambda: ranks.memory_info(device=DEVICE, timeout=1))
    """)
    assert same(told, "one ended", but=(1,))["missing"] == [1]


@needs_hydra
def test_a_killed_rank_ends_the_job() -> None:
    """What MPICH does by itself: nothing of ours hangs, either."""
    told = run(
        """
        outcome("before", lambda: len(ranks.memory_info(device=DEVICE).rows))
        comm.Barrier()
        if rank == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        outcome("killed", lambda: ranks.memory_info(device=DEVICE))
        """,
        code=None,
    )
    assert [one["before"]["returned"] for one in told] == [4] * 4
    assert "killed" not in told[3]


def test_a_rank_that_ends_without_any_call() -> None:
    """The communicator that the others wait for is never made, and they end all the same."""
    told = run("""
        if rank != 1:
            outcome("alone", lambda: ranks.memory_info(device=DEVICE, timeout=1))
    """)
    assert same(told, "alone", but=(1,))["missing"] == [1]


def test_a_program_that_catches_nothing_ends(tmp_path: Path) -> None:
    """One rank hangs; mpi4py's own way to start a program ends the job with the first exception."""
    program = tmp_path / "program.py"
    code = "import time, tack_memory.mpi as r\nfrom mpi4py import MPI\nif MPI.COMM_WORLD.rank == 1: time.sleep(60)\nr.memory_info(device='cpu', timeout=1)\n"
    program.write_text(code, encoding="utf-8")
    command = [str(MPIEXEC), "-n", "3", sys.executable, "-m", "mpi4py", str(program)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=30, check=False)
    assert done.returncode != 0 and "CollectiveError: memory_info: rank 1: did not take part in time" in done.stderr


def test_ctrl_c_in_one_rank_ends_the_wait_of_all() -> None:
    told = run("""
        ranks.memory_info(device=DEVICE)
        if rank == 2:
            time.sleep(2)        # the others are waiting by now, and rank 1 breaks off
        if rank == 1:
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                ranks.memory_info(device=DEVICE)
            except KeyboardInterrupt:
                told["interrupted"] = True
        else:
            outcome("broken off", lambda: ranks.memory_info(device=DEVICE))
        comm.Barrier()
        outcome("after", lambda: len(ranks.memory_info(device=DEVICE).rows))
    """)
    assert told[1]["interrupted"]
    broken = same(told, "broken off", but=(1,))
    assert broken["problems"] == {"1": "broke off: KeyboardInterrupt"} and broken["missing"] == [] and broken["seconds"] < 2
    assert same(told, "after")["returned"] == 4


def test_versions_that_cannot_understand_each_other() -> None:
    told = run("""
        if rank == 3:
            _collective._PROTOCOL, _collective.__version__ = 2, "9.8"
        outcome("protocol", lambda: ranks.memory_info(device=DEVICE))
    """)
    found = same(told, "protocol")
    assert found["text"].startswith("memory_info: the ranks run other versions: ranks 0-2: has protocol 1 of tack_memory ")
    assert found["problems"]["3"] == "has protocol 2 of tack_memory 9.8"


def test_an_mpi_that_tells_of_dead_ranks() -> None:
    """MPIs that notice a death raise an error where messages of all ranks are asked for together, and it hides those of the living."""
    told = run("""
        ranks.memory_info(device=DEVICE)
        channel = _channel.channel_of(comm)

        class Noticing:
            def __init__(self, comm):
                self._comm = comm
            def Improbe(self, source, tag, status):
                if source in (MPI.ANY_SOURCE, 3):
                    raise MPI.Exception(MPI.ERR_OTHER)
                return self._comm.Improbe(source, tag, status)
            def Isend(self, message, rank, tag):
                if rank == 3:
                    raise MPI.Exception(MPI.ERR_OTHER)
                return self._comm.Isend(message, rank, tag)

        if rank != 3:
            channel._comm = Noticing(channel._comm)
            outcome("dead", lambda: ranks.memory_info(device=DEVICE, timeout=1))
    """)
    assert same(told, "dead", but=(3,))["missing"] == [3]


def test_a_long_random_program_has_the_same_outcome_on_all_ranks() -> None:
    told = run(
        """
        import random
        common, own = random.Random(5), random.Random(100 + rank)
        outcomes, right = [], True
        for _ in range(400):
            call, wrong = common.choice(("info", "budget", "peak")), common.random() < 0.3
            who = common.randrange(4)                                  # the one that does it wrong
            device = "nonsense" if wrong and rank == who else DEVICE
            size = common.choice(("50%", "1 MiB", None))
            time.sleep(own.choice((0, 0, 0.0005)))
            before = tack_memory.get_memory_budget(DEVICE)
            try:
                if call == "info":
                    result = ranks.memory_info(device=device).in_use.sum
                elif call == "budget":
                    result = ranks.set_memory_budget(size, device=device)
                else:
                    with ranks.memory_peak(device=device) as peak:
                        kept = tack_memory.allocate(own.randrange(1, 5000), DEVICE)
                    result = peak.own.sum
                right &= not wrong
            except ranks.CollectiveError as error:
                result = str(error)
                right &= wrong and list(error.problems) == [who] and tack_memory.get_memory_budget(DEVICE) == before
            outcomes.append(result)
        told.update(outcomes=outcomes, right=right)
        """
    )
    assert all(one["outcomes"] == told[0]["outcomes"] and one["right"] for one in told)
    assert sum(isinstance(one, str) for one in told[0]["outcomes"]) > 50
