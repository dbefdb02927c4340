"""held: what MPI has the address of is not moved, and reports say that it is MPI's."""

from __future__ import annotations

from pathlib import Path

from ranks import needs_mpiexec, run

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

pytestmark = needs_mpiexec

SIZE = 200 * 1024  # more than MPI copies away at once: it reads the memory itself, later

_MEMORY = """
    SIZE = 200 * 1024
    tack_memory.set_memory_budget(SIZE * 5 // 2, DEVICE)

    def press():
        "Use so much other memory that whatever can be spilled is."
        more = [tack_memory.allocate(SIZE, DEVICE) for _ in range(4)]
        for one in more:
            one.fill(255)

    def memory(pointer):
        return [MPI.buffer.fromaddress(pointer, SIZE), MPI.BYTE]

    def released(buffer, within=2.0):
        end = time.monotonic() + within
        while buffer.holds and time.monotonic() < end:
            time.sleep(0.001)
        return not buffer.holds

    source, into = tack_memory.allocate(SIZE, DEVICE), tack_memory.allocate(SIZE, DEVICE)
    source.fill(rank + 1)
    right, left = (rank + 1) % 4, (rank - 1) % 4
"""


def test_nonblocking_messages_under_a_small_budget() -> None:
    told = run(
        _MEMORY
        + """
    press()
    told["could be spilled"] = source.is_spilled, into.is_spilled
    with ranks.held(source, into) as both, ranks.held(into) as held:
        told["pointers"] = both.pointers == [source.device_ptr, into.device_ptr]
        requests = [comm.Irecv(memory(held.pointers[0]), left)]
        held.until(*requests)
    press()
    told["during"] = source.is_spilled, into.is_spilled, dict(into.holds)
    told["report"] = tack_memory.memory_report(DEVICE).to_dict()["holds"]
    tack_memory.set_memory_budget(SIZE * 5 // 2, DEVICE, strict=True)
    try:
        tack_memory.allocate(SIZE * 2, DEVICE)
    except tack_memory.DeviceMemoryError as error:
        told["error"], told["text"] = error.unspillable, str(error)
    tack_memory.set_memory_budget(SIZE * 5 // 2, DEVICE)
    comm.Barrier()
    with ranks.held(source) as held:
        requests.append(comm.Isend(memory(held.pointers[0]), right))
        held.until(requests[1])
    press()
    told["both"] = source.is_spilled, into.is_spilled
    MPI.Request.Waitall(requests)
    told["released"] = released(source) and released(into)
    press()
    told["after"] = source.is_spilled, into.is_spilled
    told["came"] = bytes(into.copy_to_host()) == bytes([left + 1]) * SIZE
    told["threads"] = [thread.name for thread in threading.enumerate()]
    """
    )
    for one in told:
        assert one["could be spilled"] == [True, True] and one["pointers"]
        assert one["during"] == [True, False, {"hold: mpi": 1}]  # what is not given to `until` is free when the block ends
        assert one["report"] == {"hold: mpi": SIZE} == one["error"] and "cannot move now: 200 KiB (hold: mpi)" in one["text"]
        assert one["both"] == [False, False]
        assert one["released"] and one["after"] == [True, True] and one["came"]
        assert one["threads"] == ["MainThread"]


def test_blocking_messages() -> None:
    told = run(
        _MEMORY
        + """
    with ranks.held(source.view(0, SIZE), into) as held:
        press()
        told["during"] = source.is_spilled, into.is_spilled, dict(source.holds)
        comm.Sendrecv(memory(held.pointers[0]), right, 0, memory(held.pointers[1]), left, 0)
    told["released"] = not source.holds and not into.holds
    told["came"] = bytes(into.copy_to_host()) == bytes([left + 1]) * SIZE
    """
    )
    for one in told:
        assert one["during"] == [False, False, {"hold: mpi": 1}] and one["released"] and one["came"]


def test_what_is_queued_on_the_device_is_over_when_mpi_reads() -> None:
    told = run(
        """
        SIZE = 1 << 20
        told["came"] = []
        for number in range(1, 30):
            source, into = tack_memory.allocate(SIZE, DEVICE), tack_memory.allocate(SIZE, DEVICE)       # zeroed on the device's stream
            source.fill(number)
            if number % 2:
                source.spill()          # and restored on it
            with ranks.held(source, into) as held:
                one, other = (MPI.buffer.fromaddress(pointer, SIZE) for pointer in held.pointers)
                MPI.COMM_SELF.Sendrecv([one, MPI.BYTE], 0, 0, [other, MPI.BYTE], 0, 0)
            told["came"].append(bytes(into.copy_to_host()) == bytes([number]) * SIZE)
        """,
        number=1,
        TACK_MEMORY_SIM="512 MiB",
    )
    assert told[0]["came"] == [True] * 29


def test_persistent_requests_and_windows_until_they_are_freed() -> None:
    told = run(
        _MEMORY
        + """
    with ranks.held(source, into) as held:
        sends = comm.Send_init(memory(held.pointers[0]), right)
        window = MPI.Win.Create(memory(held.pointers[1])[0], comm=comm)
        held.until(sends, window)
    other = bytearray(SIZE)
    for _ in range(2):
        receive = comm.Irecv([other, MPI.BYTE], left)
        sends.Start()
        sends.Wait()
        receive.Wait()
    press()
    told["between"] = source.is_spilled, into.is_spilled
    window.Fence()
    put = bytes([rank + 11]) * SIZE     # MPI reads it until the fence
    window.Put([put, MPI.BYTE], right)
    window.Fence()
    window.Free()
    time.sleep(0.05)
    press()
    told["window"] = dict(into.holds) != {} and source.is_spilled is False
    sends.Free()
    told["released"] = released(source) and released(into)
    told["came"] = bytes(other) == bytes([left + 1]) * SIZE and bytes(into.copy_to_host()) == bytes([left + 11]) * SIZE
    """
    )
    for one in told:
        assert one["between"] == [False, False] and one["window"] and one["released"] and one["came"]


def test_arrays_of_a_framework() -> None:
    told = run(
        f"""
        sys.path.insert(0, {str(EXAMPLES)!r})
        import minihost, numpy
        from tack_memory.hosts import sim_library
        minihost.init("cuda:0", library=sim_library(DEVICE), host_readable=True)
        tack_memory.install(minihost)
        tack_memory.set_memory_budget("1 MiB", DEVICE)
        source, into = minihost.asarray(numpy.arange(50_000.0) + rank), minihost.empty(50_000, numpy.float64)
        with ranks.held(source, into) as held:
            more = [minihost.asarray(numpy.zeros(50_000)) for _ in range(4)]
            told["in use"] = tack_memory.memory_info(DEVICE).in_use
            told["holds"] = tack_memory.memory_report(DEVICE).to_dict()["holds"]
            one, other = (MPI.buffer.fromaddress(pointer, 400_000) for pointer in held.pointers)
            comm.Sendrecv([one, MPI.BYTE], (rank + 1) % 2, 0, [other, MPI.BYTE], (rank + 1) % 2, 0)
        told["came"] = bool((into.numpy() == numpy.arange(50_000.0) + (rank + 1) % 2).all())
        """,
        number=2,
    )
    for one in told:
        assert one["came"] and one["holds"] == {"hold: mpi": 800_000} and one["in use"] >= 800_000


def test_an_exception_in_the_block_and_misuse() -> None:
    told = run(
        _MEMORY
        + """
    held = ranks.held(source)
    outcome("until", lambda: held.until(MPI.REQUEST_NULL))
    outcome("leave", lambda: held.__exit__(None, None, None))
    outcome("number", lambda: ranks.held(3))
    try:
        with held:
            outcome("twice", held.__enter__)
            outcome("not a request", lambda: held.until(comm))
            request = comm.Irecv(memory(held.pointers[0]), left)
            held.until(request)
            raise KeyError
    except KeyError:
        told["held"] = dict(source.holds)
    sent = comm.Isend(bytes(SIZE), right)  # the request keeps what MPI reads
    request.Wait()
    sent.Wait()
    told["released"] = released(source)
    tack_memory.set_memory_budget(SIZE, DEVICE, strict=True)
    more = [tack_memory.allocate(SIZE, DEVICE) for _ in range(2)]
    outcome("too much", ranks.held(*more).__enter__)
    told["none"] = [dict(one.holds) for one in more]
    with held:                          # again
        pass
    source.free()
    outcome("freed", lambda: ranks.held(source))
    """
    )
    for one in told:
        assert "inside the block" in one["until"]["text"] and "were not held" in one["leave"]["text"] and "held already" in one["twice"]["text"]
        assert one["number"]["raised"] == "TypeError" and one["not a request"]["text"] == "not a request and not a window of mpi4py: Intracomm"
        assert one["held"] == {"hold: mpi": 1} and one["released"]
        assert one["too much"]["raised"] == "DeviceMemoryError" and one["none"] == [{}, {}]
        assert one["freed"]["raised"] == "ValueError"


def test_a_forked_child_has_its_own() -> None:
    told = run(
        """
        buffer = tack_memory.allocate(1000, "cpu")
        with ranks.held(buffer) as held:
            request = comm.Irecv([bytearray(1), MPI.BYTE], 0)
            held.until(request)
        child = os.fork()
        if child == 0:
            from tack_memory.mpi import _held
            os._exit(0 if not _held._kept and _held._watcher is None else 1)
        told["child"] = os.waitpid(child, 0)[1]
        comm.Send([b"x", MPI.BYTE], 0)
        request.Wait()
        """,
        number=1,
    )
    assert told[0]["child"] == 0
