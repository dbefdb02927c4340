"""A device that is lost while it is used: every caller is told soon and in the same words, nothing hangs, and what the host has can be read."""

from __future__ import annotations

from support import run_python

SCRIPT = """
    import gc, sys, threading
    import tack_memory as tm
    from support import SoftDriver

    soft = SoftDriver("sim:0")

    resident, spilled, held, launched, exported = (tm.allocate(1 << 20, "sim:0") for _ in range(5))
    spilled.fill(b"spilled")
    spilled.spill()
    export = exported.export("dlpack")
    hold = held.hold("mine")
    launch = tm.launch(launched)
    hold.__enter__(), launch.__enter__()
    told = []

    def allocate():
        try:
            for _ in range(1_000_000):
                tm.allocate(1 << 16, "sim:0").fill(1)
        except Exception as error:
            told.append(error)

    threads = [threading.Thread(target=allocate) for _ in range(3)]
    for thread in threads:
        thread.start()
    soft.fail(sys.argv[1], 1, int(sys.argv[2]))  # from then on every call fails
    try:
        resident.copy_to_host()
    except tm.DeviceLostError as error:
        told.append(error)
    for thread in threads:
        thread.join()
    for call in (
        lambda: tm.allocate(1, "sim:0"), lambda: spilled.device_ptr, spilled.restore, resident.copy_to_host, resident.spill,
        lambda: tm.synchronize("sim:0"), lambda: tm.empty_cache("sim:0"), lambda: tm.launch(spilled).__enter__(), lambda: tm.memory_info("sim:0"),
    ):
        try:
            call()
        except Exception as error:
            told.append(error)
        else:
            print("not told")
    for error in told:
        if not isinstance(error, tm.DeviceLostError) or "sim:0 is lost, and with it what it held; start a new process" not in str(error):
            print(type(error).__name__, error)
    print(len(told), bytes(spilled.copy_to_host(nbytes=7)), tm._native._fast.counters("sim:0")[:1])
    launch.__exit__(None, None, None), hold.__exit__(None, None, None)
    del export, exported, held, launched, resident, spilled
    gc.collect()
    print("ended")
    """

COPIES = {"sim": ("cuMemcpyDtoHAsync_v2", 700), "sim-hip": ("hipMemcpyAsync", 700), "sim-level_zero": ("zeCommandListAppendMemoryCopy", 0x70000001)}
"""A call of each vendor and a code that means the device is lost."""


def test_everybody_is_told(simulated: str) -> None:
    function, code = COPIES[simulated]
    done = run_python(SCRIPT, function, str(code), simulated=simulated)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"13 b'spilled' ({4 << 20},)", "ended"], done.stdout
