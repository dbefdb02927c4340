"""The simulated devices that a host's tests run on: each is a vendor's backend, the host's and ours, over a software driver."""

from __future__ import annotations

from typing import NamedTuple


class Flavour(NamedTuple):
    """One vendor, simulated."""

    kind: str  # of our devices
    vendor: str  # the host's kind of device
    buffer: str  # the host's class
    allocates: str  # the driver's call for an array's memory
    fills: str  # the driver's call that clears it
    invalid: int  # the driver's code for an invalid argument

    def device(self, ordinal: int = 0) -> str:
        """A device in our words."""
        return f"{self.kind}:{ordinal}"

    def own(self, ordinal: int = 0) -> str:
        """The same device in the host's words."""
        return f"{self.vendor}:{ordinal}"


FLAVOURS = (
    Flavour("sim", "cuda", "CUDABuffer", "cuMemAllocAsync", "cuMemsetD8Async", 1),
    Flavour("sim-hip", "hip", "HIPBuffer", "hipMallocAsync", "hipMemsetAsync", 1),
    Flavour("sim-level_zero", "level_zero", "L0Buffer", "zeMemAllocDevice", "zeCommandListAppendMemoryFill", 0x78000004),
)
