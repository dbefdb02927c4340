"""The other end of test_travel's pipe, and how both send buffers: the pickle, and the contents beside it."""

from __future__ import annotations

import pickle
from multiprocessing.connection import Connection
from typing import Any


def send(pipe: Connection, what: Any) -> None:
    frames: list[pickle.PickleBuffer] = []
    pipe.send((pickle.dumps(what, 5, buffer_callback=frames.append), len(frames)))
    for frame in frames:
        pipe.send_bytes(frame)


def receive(pipe: Connection) -> Any:
    told = pipe.recv()
    return told and pickle.loads(told[0], buffers=[pipe.recv_bytes() for _ in range(told[1])])


def echo(pipe: Connection) -> None:
    """Use each buffer that comes on a device that is too small for them, and send them back; at the end, tell what was counted."""
    import tack_memory

    tack_memory.set_memory_budget(150_000, "sim:0")
    while buffers := receive(pipe):
        for buffer in buffers:
            assert buffer.device_ptr or not buffer.nbytes
        send(pipe, buffers)
        del buffers, buffer
    tack_memory.synchronize("sim:0")
    info = tack_memory.memory_info("sim:0")
    pipe.send({name: getattr(info, name) for name in ("in_use", "spilled", "received_bytes", "restored_bytes", "spill_count", "over_budget_count")})
