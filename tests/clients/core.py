"""NVIDIA's cuda-core over the software driver: devices, streams, events, buffers, its own and foreign memory resources, DLPack."""

import ctypes
import random

import numpy as np
import soft
from cuda.core import Buffer, Device, DeviceMemoryResource, DeviceMemoryResourceOptions, EventOptions, LegacyPinnedMemoryResource, MemoryResource

MIB = 1 << 20


def host_array(buffer: Buffer) -> np.ndarray:
    """A pinned buffer's bytes; cuda-core exports host-accessible memory as a CPU tensor."""
    return np.from_dlpack(buffer).view(np.uint8)


def check_device(device: Device) -> None:
    soft.same(device.name, "Software CUDA device", "name")
    soft.same(tuple(device.compute_capability), (8, 0), "compute capability")
    soft.same(device.properties.warp_size, 32, "warp size")
    soft.same(device.memory_resource.is_device_accessible, True, "memory resource")
    soft.same(len(device.uuid) > 0, True, "uuid")


def check_copies(device: Device) -> None:
    stream, other = device.create_stream(), device.create_stream()
    pinned = LegacyPinnedMemoryResource()
    size = MIB + 40
    pristine = np.frombuffer(random.Random(7).randbytes(size), np.uint8)
    source, target = (pinned.allocate(size, stream=stream) for _ in range(2))
    host_array(source)[:] = pristine
    one, two = (device.allocate(size, stream=stream) for _ in range(2))
    # queued without a wait between them
    two.fill(0x77, stream=stream)
    one.copy_from(source, stream=stream)
    one.copy_to(two, stream=stream)
    event = stream.record(options=EventOptions(timing_enabled=True))
    other.wait(event)
    two.copy_to(target, stream=other)
    other.sync()
    soft.same(bool((host_array(target) == pristine).all()), True, "a copy by way of two streams")
    soft.same(event.is_done, True, "event")
    one.fill(b"\x01\x02\x03\x04", stream=stream)
    one.copy_to(target, stream=stream)
    stream.sync()
    soft.same(host_array(target).tobytes(), b"\x01\x02\x03\x04" * (size // 4), "a fill of four bytes")
    later = stream.record(options=EventOptions(timing_enabled=True))
    later.sync()
    soft.same(later - event >= 0, True, "elapsed time")
    for buffer in (one, two, source, target):
        buffer.close(stream)
    stream.sync()


def check_pools(device: Device) -> None:
    stream = device.create_stream()
    shared = DeviceMemoryResource(device)  # the device's current pool
    own = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=4 * MIB))
    before = shared.attributes.used_mem_current
    block = shared.allocate(MIB, stream=stream)
    soft.same(shared.attributes.used_mem_current - before, MIB, "used in the shared pool")
    soft.same(own.attributes.used_mem_current, 0, "used in a pool of its own")
    mine = own.allocate(3 * MIB, stream=stream)
    soft.same(own.attributes.used_mem_current, 3 * MIB, "used in a pool of its own")
    try:
        own.allocate(2 * MIB, stream=stream)
    except Exception as error:
        soft.same("CUDA_ERROR_OUT_OF_MEMORY" in str(error), True, f"the error of a full pool, {error}")
    else:
        raise AssertionError("a pool gave more than its maximum")
    live = soft.get("live")
    block.close(stream)
    mine.close(stream)
    soft.same(soft.get("live"), live - 2, "blocks that live")
    soft.same(own.attributes.reserved_mem_current, 3 * MIB, "kept by the pool, for its threshold is endless")
    soft.same(shared.attributes.release_threshold, 2**64 - 1, "threshold of the shared pool")
    stream.sync()
    own.close()


def check_dlpack(device: Device) -> None:
    stream = device.create_stream()
    buffer = device.allocate(4096, stream=stream)
    stream.sync()
    soft.same(tuple(int(x) for x in buffer.__dlpack_device__()), (2, 0), "DLPack device: CUDA, 0")
    capsule = buffer.__dlpack__(stream=int(stream.handle))
    soft.same("dltensor" in repr(capsule), True, "DLPack capsule")
    del capsule
    buffer.close(stream)


class Foreign(MemoryResource):
    """Somebody else's allocator behind cuda-core's interface."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.given: list[int] = []

    def allocate(self, size, *, stream):
        inner = DeviceMemoryResource(self.device).allocate(size, stream=stream)
        self.given.append(int(inner.handle))
        self.keep = inner
        return Buffer.from_handle(int(inner.handle), size, mr=self)

    def deallocate(self, ptr, size, *, stream):
        self.given.remove(int(ptr))
        self.keep.close(stream)

    is_device_accessible = property(lambda self: True)
    is_host_accessible = property(lambda self: False)
    is_managed = property(lambda self: False)
    device_id = property(lambda self: self.device.device_id)


def check_foreign_resource(device: Device) -> None:
    stream = device.create_stream()
    foreign = Foreign(device)
    device.memory_resource = foreign
    buffer = device.allocate(1000, stream=stream)
    soft.same([int(buffer.handle)], foreign.given, "what the foreign resource gave")
    buffer.fill(9, stream=stream)
    stream.sync()
    soft.same(ctypes.string_at(int(buffer.handle), 1000), b"\x09" * 1000, "contents")
    buffer.close(stream)
    soft.same(foreign.given, [], "given back")


def main() -> None:
    device = Device(0)
    device.set_current()
    check_device(device)
    check_copies(device)
    check_pools(device)
    check_dlpack(device)
    check_foreign_resource(device)
    soft.same(soft.get("live"), 0, "blocks that live")
    soft.same(soft.get("sticky"), 0, "sticky error")


if __name__ == "__main__":
    main()
