"""set_memory_budget over ranks: who shares a device splits it, and either all ranks get their budget or none."""

from __future__ import annotations

from ranks import needs_hydra, needs_mpiexec, run, same

KIB, MIB = 1 << 10, 1 << 20
pytestmark = needs_mpiexec

SHARED = """
    from tack_memory.mpi import _budget
    _budget.physical = lambda device: "node/GPU-a" if rank < 3 else "node/GPU-b"        # 0, 1 and 2 share one
"""


def test_ranks_with_devices_of_their_own() -> None:
    told = run("""
        outcome("first", lambda: ranks.set_memory_budget("80%", device=DEVICE))
        told["budget"] = tack_memory.get_memory_budget(DEVICE)
        outcome("second", lambda: ranks.set_memory_budget("1 MiB", comm=comm, device=DEVICE, strict=True, timeout=5))
        info = tack_memory.memory_info(DEVICE)
        told["strict"] = info.budget, info.strict
        outcome("none", lambda: ranks.set_memory_budget(None, device=DEVICE))
        info = tack_memory.memory_info(DEVICE)
        told["gone"] = info.budget, info.strict
    """)
    assert same(told, "first")["returned"] is None
    assert [one["budget"] for one in told] == [16 * MIB * 80 // 100] * 4
    assert same(told, "second")["returned"] == 16 * MIB * 80 // 100
    assert [one["strict"] for one in told] == [[MIB, True]] * 4
    assert same(told, "none")["returned"] == MIB
    assert [one["gone"] for one in told] == [[None, False]] * 4


def test_ranks_that_share_a_device_split_it() -> None:
    told = run(
        SHARED
        + """
    told["got"] = []
    for size in ("75%", "9 MiB", 10, None):
        ranks.set_memory_budget(size, device=DEVICE)
        told["got"].append(tack_memory.get_memory_budget(DEVICE))
    half = comm.Split(rank // 2, rank)             # 0 and 1, 2 and 3: only those who call it count
    ranks.set_memory_budget("8 MiB", comm=half, device=DEVICE)
    told["got"].append(tack_memory.get_memory_budget(DEVICE))
    outcome("too small", lambda: ranks.set_memory_budget(2, device=DEVICE))
    told["after"] = tack_memory.get_memory_budget(DEVICE)
    info = ranks.memory_info(device=DEVICE)
    told["sum"] = info.budget.sum
    """
    )
    split, alone = [4 * MIB, 3 * MIB, 3, None], [12 * MIB, 9 * MIB, 10, None]
    assert [one["got"] for one in told] == [[*split, 4 * MIB], [*split, 4 * MIB], [*split, 8 * MIB], [*alone, 8 * MIB]]
    assert same(told, "too small")["text"] == "set_memory_budget; no rank's budget was changed: ranks 0-2: 2 B of sim:0 for 3 ranks is less than a byte each"
    assert [one["after"] for one in told] == [4 * MIB, 4 * MIB, 8 * MIB, 8 * MIB] and {one["sum"] for one in told} == {24 * MIB}


def test_each_rank_keeps_to_its_part() -> None:
    told = run(
        SHARED
        + """
    ranks.set_memory_budget("3 MiB", device=DEVICE)
    kept = [tack_memory.allocate(256 * 1024, DEVICE) for _ in range(16)]
    for number, buffer in enumerate(kept):
        buffer.fill(number)
    told["right"] = all(bytes(buffer.copy_to_host()) == bytes([number]) * 256 * 1024 for number, buffer in enumerate(kept))
    info = tack_memory.memory_info(DEVICE)
    told["figures"] = info.in_use, info.peak, info.spilled
    """
    )
    assert all(one["right"] for one in told)
    assert [one["figures"][0] + one["figures"][2] for one in told] == [4 * MIB] * 4
    assert [one["figures"][1] for one in told] == [MIB, MIB, MIB, 3 * MIB]


def test_where_one_rank_cannot_spill_all_go_back() -> None:
    """Rank 1 has no host memory for what the new budget makes it spill."""
    told = run("""
        import os
        tack_memory.set_memory_budget("8 MiB", DEVICE, strict=rank % 2 == 0)
        kept = [tack_memory.allocate(1 << 20, DEVICE) for _ in range(4)]
        for number, buffer in enumerate(kept):
            buffer.fill(number + 1)
        if rank == 1:
            from tack_memory._control import call
            call("SetHostLimit", 1 << 20)
        outcome("too little", lambda: ranks.set_memory_budget("1 MiB", device=DEVICE))
        info = tack_memory.memory_info(DEVICE)
        told["after"] = info.budget, info.strict
        told["right"] = [bytes(buffer.copy_to_host())[-3:] == bytes([number + 1]) * 3 for number, buffer in enumerate(kept)]
    """)
    found = same(told, "too little")
    assert list(found["problems"]) == ["1"] and found["problems"]["1"].startswith("DeviceMemoryError: sim:0") and "host memory" in found["problems"]["1"]
    assert [one["too little"]["cause"] for one in told] == [None, "DeviceMemoryError", None, None]
    assert [one["after"] for one in told] == [[8 * MIB, True], [8 * MIB, False]] * 2
    assert all(one["right"] == [True] * 4 for one in told)


def test_what_cannot_be_undone_is_said() -> None:
    """Another thread allocated meanwhile, and the lower budget from before would have to spill that."""
    told = run("""
        from tack_memory.mpi import _budget
        class Full:
            def __getattr__(self, name):
                return getattr(tack_memory._native._fast, name)
            def set_memory_budget(self, *arguments, **named):
                raise tack_memory.DeviceMemoryError(DEVICE, 5, reason="host")
        def refuse(*arguments, **named):
            raise ValueError("refused here")
        if rank == 1:
            _budget._fast = Full()
        if rank == 2:
            _budget._budget.set_memory_budget = refuse
        try:
            ranks.set_memory_budget("1 MiB", device=DEVICE)
        except ranks.CollectiveError as error:
            told["problems"], told["notes"] = list(error.problems.values()), getattr(error, "__notes__", [])
    """)
    assert [one["problems"] for one in told] == [["ValueError: refused here"]] * 4
    assert [len(one["notes"]) for one in told] == [0, 1, 0, 0]
    assert told[1]["notes"][0].startswith("the budget of sim:0 is as before, but what it has to spill could not be: sim:0: 5 B")


@needs_hydra
def test_a_rank_that_ends_between_agreeing_and_confirming() -> None:
    told = run(
        """
        from tack_memory.mpi import _budget
        tack_memory.set_memory_budget("8 MiB", DEVICE, strict=True)
        if rank == 3:
            _budget._budget.set_memory_budget = lambda *arguments, **named: os._exit(0)
        outcome("died", lambda: ranks.set_memory_budget("1 MiB", device=DEVICE, timeout=4))
        info = tack_memory.memory_info(DEVICE)
        told["after"] = info.budget, info.strict
        tell()
        os._exit(0)
        """,
        options=("-disable-auto-cleanup",),
        code=None,
    )
    assert "died" not in told[3]
    assert same(told, "died", but=(3,))["missing"] == [3]
    assert [one["after"] for one in told[:3]] == [[8 * MIB, True]] * 3


def test_a_device_whose_total_is_unknown_to_one_rank() -> None:
    told = run("""
        from tack_memory.mpi import _budget
        if rank == 2:
            def unknown(size, index):
                return tack_memory._sizes.parse_size(size, lambda: None, of="metal:0")
            _budget.size_on = unknown
        outcome("share", lambda: ranks.set_memory_budget("50%", device=DEVICE))
        told["after"] = tack_memory.get_memory_budget(DEVICE)
        outcome("bytes", lambda: ranks.set_memory_budget("1 MiB", device=DEVICE))
    """)
    found = same(told, "share")
    assert list(found["problems"]) == ["2"] and "total memory of metal:0, which is unknown" in found["text"]
    assert [one["after"] for one in told] == [None] * 4
    assert same(told, "bytes")["returned"] is None
