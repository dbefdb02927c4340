"""memory_peak over ranks: entered by each rank alone, and left by all together, whatever their blocks end with."""

from __future__ import annotations

from ranks import needs_mpiexec, run, same

KIB = 1 << 10
pytestmark = needs_mpiexec


def test_figures_of_all_ranks() -> None:
    told = run("""
        kept = tack_memory.allocate(1000, DEVICE)
        with ranks.memory_peak(comm, DEVICE, "step") as peak:
            one = tack_memory.allocate(1024 * (rank + 1), DEVICE)
            told["local"] = peak.local.own
            one.spill()
            two = tack_memory.allocate(10, DEVICE)
            del one
        outcome("peak", lambda: peak)
        told["text"], told["html"], told["sum"] = str(peak), peak._repr_html_(), peak.own.sum
    """)
    peak = same(told, "peak")["returned"]
    assert [one["local"] for one in told] == [KIB, 2 * KIB, 3 * KIB, 4 * KIB]
    assert peak["label"] == "step" and peak["problems"] == []
    assert peak["bytes"] == {"minimum": 1000 + KIB, "maximum": 1000 + 4 * KIB, "minimum_rank": 0, "maximum_rank": 3, "sum": 4000 + 10 * KIB, "known": 4}
    assert peak["own"]["maximum"] == 4 * KIB + 10 and peak["own"]["sum"] == 10 * KIB + 40 == told[0]["sum"]
    assert peak["start"]["sum"] == 4000 and peak["end"]["sum"] == 4040 and peak["own_end"]["sum"] == 40
    assert peak["delta"]["maximum"] == 4 * KIB and peak["footprint"]["maximum"] == 1010 + 4 * KIB
    assert peak["spilled_bytes"]["sum"] == 10 * KIB and peak["spilled_bytes"]["minimum_rank"] == 0 and peak["restored_bytes"]["sum"] == 0
    assert 0 < peak["seconds"]["minimum"] <= peak["seconds"]["maximum"] < 20 and peak["seconds"]["sum"] >= 4 * peak["seconds"]["minimum"]
    assert [row["rank"] for row in peak["rows"]] == [0, 1, 2, 3] and all(row["device"] == "sim:0" and row["host"] for row in peak["rows"])
    assert [row["bytes"] for row in peak["rows"]] == [1000 + KIB * (rank + 1) for rank in range(4)]
    lines = told[0]["text"].splitlines()
    assert all(one["text"] == told[0]["text"] and one["html"] == told[0]["html"] for one in told)
    assert lines[0].split() == ["rank", "host", "device", "peak", "start", "own", "footprint", "spilled", "restored"]
    assert next(line for line in lines if line.startswith("maximum")).split()[2:5] == ["4.98", "KiB", "(3)"]
    assert told[0]["html"].count("4.98 KiB") == 2


def test_a_block_that_raises_on_one_rank() -> None:
    """The other ranks get an error that says so, and the figures; the rank's own exception is what it gets."""
    told = run("""
        def block():
            with ranks.memory_peak(comm, DEVICE) as peak:
                told["before"] = str(peak)
                kept = tack_memory.allocate(1024, DEVICE)
                found.append(peak)
                if rank == 2:
                    raise KeyError("no such cell")
        found = []
        outcome("block", block)
        told["sum"], told["problems"] = found[0].bytes.sum, [row.problem for row in found[0].rows]
        told["text"] = str(found[0])
        outcome("after", lambda: len(ranks.memory_info(device=DEVICE).rows))
    """)
    found = same(told, "block", but=(2,))
    assert found["problems"] == {"2": "the block ended with KeyError: 'no such cell'"} and found["missing"] == []
    assert found["text"] == "memory_peak: rank 2: the block ended with KeyError: 'no such cell'"
    own = told[2]["block"]
    assert own["raised"] == "KeyError" and own["notes"] == ["memory_peak over all ranks: memory_peak: rank 2: the block ended with KeyError: 'no such cell'"]
    for one in told:
        assert one["before"] == "<RanksPeak: open>"
        assert one["sum"] == 4 * KIB and one["problems"] == [None, None, "KeyError: 'no such cell'", None]
        assert one["text"].endswith("rank 2: the block ended with KeyError: 'no such cell'")
        assert one["after"]["returned"] == 4


def test_a_rank_without_the_device() -> None:
    told = run("""
        def block():
            with ranks.memory_peak(device="cuda:99" if rank == 1 else DEVICE) as peak:
                told["ran"] = True
                found.append(peak)
        found = []
        outcome("block", block)
        told["local"] = found[0].local is None
        told["device"] = [row.device for row in found[0].rows]
        told["known"] = found[0].bytes.known
        told["line"] = next(line for line in str(found[0]).splitlines() if line.startswith("1"))
    """)
    found = same(told, "block")
    assert list(found["problems"]) == ["1"] and "unknown device 'cuda:99'" in found["text"]
    assert [one["block"]["cause"] for one in told] == [None, "ValueError", None, None]
    for rank, one in enumerate(told):
        assert one["ran"] and one["local"] == (rank == 1) and one["device"] == ["sim:0", None, "sim:0", "sim:0"] and one["known"] == 3
        assert one["line"].split()[2:] == ["-"] * 7


def test_a_rank_that_exits_in_its_block() -> None:
    told = run(
        """
        def block():
            with ranks.memory_peak(device=DEVICE):
                if rank == 0:
                    sys.exit(0)
                time.sleep(0.2 * rank)
        with ranks.memory_peak(device=DEVICE):
            pass
        try:
            outcome("block", block)
        except SystemExit as error:
            told["notes"] = getattr(error, "__notes__", [])
        """
    )
    assert told[0]["notes"] == []
    found = same(told, "block", but=(0,))
    assert found["problems"] == {"0": "the block ended with SystemExit"} and found["missing"] == [] and found["seconds"] < 5


def test_a_rank_that_does_not_come_to_the_end() -> None:
    told = run("""
        def block():
            with ranks.memory_peak(device=DEVICE, timeout=1) as peak:
                found.append(peak)
                if rank == 3:
                    time.sleep(3)
                if rank == 1:
                    raise KeyError("my own")
        found = []
        with ranks.memory_peak(device=DEVICE):
            pass
        outcome("block", block)
        told["text"] = str(found[0])
        outcome("figures", lambda: found[0].bytes)
        comm.Barrier()
        outcome("after", lambda: len(ranks.memory_info(device=DEVICE).rows))
    """)
    found = same(told, "block", but=(1,))
    assert found["missing"] == [3] and "rank 3: did not take part" in found["text"]
    assert told[1]["block"]["raised"] == "KeyError" and "rank 3: did not take part" in told[1]["block"]["notes"][0]
    for one in told:
        assert one["text"] == "<RanksPeak: without figures>" and "not all ranks took part" in one["figures"]["text"]
        assert one["after"]["returned"] == 4


def test_labels_must_agree() -> None:
    told = run("""
        def block():
            with ranks.memory_peak(device=DEVICE, label="mesh" if rank else "fields"):
                pass
        outcome("block", block)
    """)
    assert same(told, "block")["text"] == "memory_peak: the ranks disagree: rank 0: label='fields'; ranks 1-3: label='mesh'"


def test_misuse() -> None:
    told = run(
        """
        peak = ranks.memory_peak(device=DEVICE)
        told["new"] = str(peak)
        outcome("read", lambda: peak.rows)
        outcome("leave", lambda: peak.__exit__(None, None, None))
        with peak:
            outcome("read open", lambda: peak.own)
            outcome("enter", peak.__enter__)
            with ranks.memory_peak(device=DEVICE) as inner:
                kept = tack_memory.allocate(100, DEVICE)
        outcome("again", peak.__enter__)
        outcome("no such", lambda: peak.nonsense)
        told["both"] = peak.own.sum, inner.own.sum
        outcome("null", lambda: ranks.memory_peak(MPI.COMM_NULL, DEVICE).__enter__().__exit__(None, None, None))
        """,
        number=2,
    )
    for one in told:
        assert one["new"] == "<RanksPeak: not entered>" and "was not entered" in one["read"]["text"] and one["read"]["raised"] == "RuntimeError"
        assert "is not open" in one["leave"]["text"] and "`local` has this rank's own" in one["read open"]["text"]
        assert "entered already" in one["enter"]["text"] and "entered already" in one["again"]["text"]
        assert one["no such"]["raised"] == "AttributeError" and one["both"] == [200, 200]
        assert one["null"]["raised"] == "ValueError"
