"""Which piece of hardware a device's name means, so that processes can tell whether they share one."""

from __future__ import annotations

import functools
import os
import socket

from . import _devices

SIMULATED = "sim"


@functools.cache
def machine() -> str:
    """The machine that this process runs on: the same in all its containers, and another after each start of it where the system tells."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


def physical(device: _devices.Device = None) -> str:
    """What a device is, as a text that is the same in two processes exactly where both use the same hardware.

    The machine, and the device's UUID as its driver tells it: names ("cuda:0") count what a process can see, and each may see others. A simulated
    device is a process's own, since its memory is. Where a driver tells no UUID the name has to do: two devices may then be taken for one.
    """
    name = _devices.resolve_name(device)
    if name.startswith(SIMULATED):
        return f"{machine()}/{name} of process {os.getpid()}"
    uuid = next((found["uuid"] for found in _devices.describe() if found["name"] == name), None)
    return f"{machine()}/{uuid or name}"
