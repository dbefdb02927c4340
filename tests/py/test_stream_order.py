"""launch(..., stream=...): a host's work on a stream of its own comes after what made the arrays ready, and before what happens to them after the launch.

Each operation of the software driver takes long here, and much is queued: whatever does not wait for the other stream comes too early and reads old bytes.
Each script runs in a process of its own, since it is the host, too: it calls the vendor's functions in the software driver's library, and for Level Zero
makes the context that the device then works in.
"""

from __future__ import annotations

import pytest
from support import SIMULATED, run_python

HOST = """
    import ctypes, sys
    import tack_memory as tm
    from support import KIB, SoftDriver, contents, filled, pattern
    from tack_memory._native import _fast
    from tack_memory.hosts import sim_library

    device, soft = sys.argv[1], SoftDriver(sys.argv[1])
    library, N, QUEUED = ctypes.CDLL(sim_library(device)), 64 * KIB, 8
    pointer_of = ctypes.c_void_p

    def must(function, *arguments):
        code = getattr(library, function)(*arguments)
        assert code == 0, (function, code)

    class CUDA:
        def __init__(self):
            context, self.stream = pointer_of(), pointer_of()
            must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
            must("cuCtxPushCurrent_v2", context)
            must("cuStreamCreate", ctypes.byref(self.stream), 1)
        def fill(self, pointer, value):
            must("cuMemsetD8Async", pointer_of(pointer), ctypes.c_ubyte(value), ctypes.c_size_t(N), self.stream)
        def copy(self, target, source):
            must("cuMemcpyDtoDAsync_v2", pointer_of(target), pointer_of(source), ctypes.c_size_t(N), self.stream)
        def wait(self):
            must("cuStreamSynchronize", self.stream)

    class HIP:
        def __init__(self):
            self.stream = pointer_of()
            must("hipStreamCreateWithFlags", ctypes.byref(self.stream), 1)
        def fill(self, pointer, value):
            must("hipMemsetAsync", pointer_of(pointer), value, ctypes.c_size_t(N), self.stream)
        def copy(self, target, source):
            must("hipMemcpyAsync", pointer_of(target), pointer_of(source), ctypes.c_size_t(N), 3, self.stream)  # 3: from device to device
        def wait(self):
            must("hipStreamSynchronize", self.stream)

    class Description(ctypes.Structure):
        _fields_ = [("type", ctypes.c_uint32), ("next", pointer_of), ("numbers", ctypes.c_uint32 * 5)]

    class LevelZero:
        def __init__(self):
            one, driver, found, context, self.stream = ctypes.c_uint32(1), pointer_of(), pointer_of(), pointer_of(), pointer_of()
            must("zeInit", 0)
            must("zeDriverGet", ctypes.byref(one), ctypes.byref(driver))
            must("zeDeviceGet", driver, ctypes.byref(one), ctypes.byref(found))
            must("zeContextCreate", driver, ctypes.byref(Description(0xD)), ctypes.byref(context))
            in_order, asynchronous = 2, 2
            queue = Description(0xE, None, (ctypes.c_uint32 * 5)(0, 0, in_order, asynchronous, 0))
            must("zeCommandListCreateImmediate", context, found, ctypes.byref(queue), ctypes.byref(self.stream))
            _fast.set_stream(device, context.value, 0)
        def fill(self, pointer, value):
            byte = ctypes.c_ubyte(value)
            must("zeCommandListAppendMemoryFill", self.stream, pointer_of(pointer), ctypes.byref(byte), ctypes.c_size_t(1), ctypes.c_size_t(N), None, 0, None)
        def copy(self, target, source):
            must("zeCommandListAppendMemoryCopy", self.stream, pointer_of(target), pointer_of(source), ctypes.c_size_t(N), None, 0, None)
        def wait(self):
            must("zeCommandListHostSynchronize", self.stream, ctypes.c_uint64(2**64 - 1))

    host = {"sim:0": CUDA, "sim-hip:0": HIP, "sim-level_zero:0": LevelZero}[device]()
    assert host.stream.value != tm.stream(device), "another stream than the device's own"
"""

pytestmark = pytest.mark.parametrize("device", SIMULATED)


def run(device: str, script: str) -> None:
    done = run_python(HOST + script, device, TMSOFT_QUARANTINE="1")
    assert done.returncode == 0, done.stderr


def test_a_spill_comes_after_the_work_that_the_launch_queued(device: str) -> None:
    run(
        device,
        """
    buffer = filled(N, device)
    soft.set("delay_us", 5000)
    with tm.launch(buffer, stream=host.stream.value) as (pointer,):
        for value in range(1, QUEUED + 1):
            host.fill(pointer, value)
    assert buffer.spill() == N
    found = contents(buffer)
    assert found == bytes([QUEUED]) * N, ("the spill took what was there before", found[:1])
    host.wait()
    """,
    )


def test_work_of_the_device_after_a_launch_comes_after_the_work_that_it_queued(device: str) -> None:
    run(
        device,
        """
    buffer, after = filled(N, device), filled(N, device, 2)
    soft.set("delay_us", 5000)
    with tm.launch(buffer, stream=host.stream.value) as (pointer,):
        for value in range(1, QUEUED + 1):
            host.fill(pointer, value)
    buffer.copy_from(after)
    host.wait()
    tm.synchronize(device)
    assert contents(buffer) == pattern(N, 2), "the launch's work came last"
    """,
    )


def test_the_work_of_a_launch_comes_after_what_was_queued_for_its_arrays(device: str) -> None:
    run(
        device,
        """
    written, sources, result = filled(N, device), [filled(N, device, 2 + place) for place in range(QUEUED)], filled(N, device, 20)
    tm.synchronize(device)
    soft.set("delay_us", 5000)
    for source in sources:
        written.copy_from(source)  # queued on the device's own stream
    with tm.launch(written, result, stream=host.stream.value) as pointers:
        host.copy(pointers[1], pointers[0])
        host.wait()
    tm.synchronize(device)
    assert contents(result) == pattern(N, 1 + QUEUED), "the last that was queued"
    """,
    )


def test_the_work_of_a_launch_reads_what_the_launch_has_restored(device: str) -> None:
    run(
        device,
        """
    spilled, result = [filled(N, device, seed) for seed in range(QUEUED)], filled(N, device, 20)
    tm.spill(*spilled)
    soft.set("delay_us", 5000)
    with tm.launch(result, *spilled, stream=host.stream.value) as pointers:
        host.copy(pointers[0], pointers[-1])
        host.wait()
    tm.synchronize(device)
    assert contents(result) == pattern(N, QUEUED - 1)
    """,
    )


def test_the_work_of_a_launch_comes_after_the_zeroing_of_new_memory(device: str) -> None:
    run(
        device,
        """
    soft.set("delay_us", 5000)
    buffers = [tm.allocate(N, device) for _ in range(QUEUED)]  # zeroed on the device's own stream
    with tm.launch(*buffers, stream=host.stream.value) as pointers:
        for pointer in reversed(pointers):
            host.fill(pointer, 7)
        host.wait()
    tm.synchronize(device)
    assert [contents(buffer) for buffer in buffers] == [bytes([7]) * N] * QUEUED, "the zeros came last"
    """,
    )
