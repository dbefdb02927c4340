"""tack_memory and cuda-core in one process, over one driver: what the client allocates is seen as taken and never counted as ours, and memory
of ours that the client was given stays where it is for as long as it has it."""

import random

import numpy as np
import soft
from cuda.bindings import driver
from cuda.core import Device
from cuda.core.utils import StridedMemoryView

import tack_memory

MIB = 1 << 20
DEVICE = "cuda:0"


def figures() -> tuple[int, int]:
    info = tack_memory.memory_info(DEVICE)
    return info.in_use, info.device_free + (info.cached or 0)


def check_accounting(device: Device) -> None:
    ours = tack_memory.allocate(4 * MIB, DEVICE)
    in_use, free = figures()
    soft.same(in_use, 4 * MIB, "in use")
    before = tack_memory.memory_info(DEVICE).device_free
    code, address = driver.cuMemAlloc(32 * MIB)  # from no pool, so that what is free falls by exactly this
    soft.same(int(code), 0, "the client's allocation")
    info = tack_memory.memory_info(DEVICE)
    soft.same((info.in_use, info.device_free), (in_use, before - 32 * MIB), "in use and device_free with 32 MiB of the client, from no pool")
    soft.same(int(driver.cuMemFree(address)[0]), 0, "the client's free")
    soft.same(tack_memory.memory_info(DEVICE).device_free, before, "device_free after the client freed it")
    stream = device.create_stream()
    theirs = device.allocate(32 * MIB, stream=stream)
    stream.sync()
    soft.same(figures(), (in_use, free - 32 * MIB), "in use and free with 32 MiB of the client")
    # Its pool had nothing yet: the device's own figure falls, too, and what ours keeps is no part of that.
    soft.same(tack_memory.memory_info(DEVICE).device_free, before - 32 * MIB, "device_free with 32 MiB of the client")
    theirs.close(stream)
    stream.sync()
    soft.same(figures(), (in_use, free), "in use and free after the client freed it")
    ours.free()
    soft.same(tack_memory.memory_info(DEVICE).in_use, 0, "in use at the end")


def check_full_device(device: Device) -> None:
    """The client fills the device: ours make room for ours, and nothing of the client's is touched."""
    pristine = np.frombuffer(random.Random(3).randbytes(32 * MIB), np.uint8)
    first = tack_memory.allocate(32 * MIB, DEVICE)
    first.copy_from_host(pristine)
    stream = device.create_stream()
    free = figures()[1]
    theirs = device.allocate(free - 8 * MIB, stream=stream)
    theirs.fill(0x5A, stream=stream)
    stream.sync()
    second = tack_memory.allocate(32 * MIB, DEVICE)
    soft.same((first.is_spilled, second.is_spilled), (True, False), "spilled")
    soft.same(bytes(first.copy_to_host()) == pristine.tobytes(), True, "the spilled contents")
    host = np.zeros(MIB, np.uint8)
    (code,) = driver.cuMemcpyDtoH(host.ctypes.data, int(theirs.handle), host.nbytes)
    soft.same(int(code), 0, "reading the client's memory")
    soft.same(bool((host == 0x5A).all()), True, "the client's contents")
    theirs.close(stream)
    stream.sync()


def check_export(device: Device) -> None:
    """What the client was given stays on the device through any pressure, until it lets go."""
    pristine = random.Random(5).randbytes(8 * MIB)
    buffer = tack_memory.allocate(8 * MIB, DEVICE)
    buffer.copy_from_host(pristine)
    exported = buffer.export("dlpack")
    stream = device.create_stream()
    view = StridedMemoryView.from_dlpack(exported, stream_ptr=int(stream.handle))
    del exported
    soft.same((view.ptr, view.device_id, view.is_device_accessible), (buffer.device_ptr, 0, True), "what the client was told")
    with tack_memory.memory_budget(24 * MIB, DEVICE):
        others = [tack_memory.allocate(8 * MIB, DEVICE) for _ in range(8)]
        soft.same(buffer.is_spilled, False, "an exported buffer")
        soft.same(sum(other.is_spilled for other in others) >= 6, True, "the others made room")
        host = np.zeros(8 * MIB, np.uint8)
        (code,) = driver.cuMemcpyDtoHAsync(host.ctypes.data, view.ptr, host.nbytes, int(stream.handle))
        soft.same(int(code), 0, "the client's copy")
        stream.sync()
        soft.same(host.tobytes() == pristine, True, "what the client read")
        soft.same(buffer.spill(), 0, "spilling what the client has")
        del view
        soft.same(buffer.spill(), 8 * MIB, "spilling it afterwards")
        del others
    soft.same(bytes(buffer.copy_to_host()) == pristine, True, "the contents at the end")


def main() -> None:
    device = Device()
    device.set_current()
    check_accounting(device)
    check_full_device(device)
    check_export(device)


main()
