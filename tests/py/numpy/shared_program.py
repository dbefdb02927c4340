"""A program that hands shared arrays to processes of multiprocessing. Its argument is how they are started."""

import multiprocessing
import os
import sys
import time
from typing import Any

import numpy

import tack_memory.numpy as tn


def double(handle: tn.Handle) -> int:
    with handle:
        array = tn.attach(handle)
    array *= 2
    return os.getpid()


def total(handle: tn.Handle) -> float:
    return float(tn.attach(handle, readonly=True).sum())


def serve(connection: Any, queue: Any) -> None:
    """Makes an array, hands it out, and ends: the array stays as long as somebody sees it."""
    with tn.use("shared"):
        array = numpy.arange(5000.0)
    with tn.share(array) as handle:
        connection.send(handle)
        queue.put(handle)
        connection.recv()  # both are fetched


if __name__ == "__main__":
    context: Any = multiprocessing.get_context(sys.argv[1])
    before = tn.statistics()
    with tn.use("shared"):
        array = numpy.ones((300, 200))
    part = array[::2, ::-1]

    with tn.share(part) as handle:
        process = context.Process(target=double, args=(handle,))
        process.start()
        process.join()
        assert process.exitcode == 0
        assert (array[::2] == 2).all() and (array[1::2] == 1).all()
        with context.Pool(2) as pool:
            assert os.getpid() not in [pool.apply(double, (handle,)) for _ in range(10)]  # one after the other: *= is no atomic operation
            assert (array[::2] == 2 * 2**10).all() and (array[1::2] == 1).all()
            assert pool.map(total, [handle] * 4, chunksize=1) == [part.sum()] * 4
            assert pool.apply(total, (handle,)) == part.sum()

    ours, theirs = context.Pipe()
    queue = context.Queue()
    process = context.Process(target=serve, args=(theirs, queue))
    process.start()
    handles = [ours.recv(), queue.get()]
    ours.send("done")
    process.join()
    assert process.exitcode == 0
    for handle in handles:
        with handle:
            other = handle.attach()
        assert (other == numpy.arange(5000.0)).all()
        other[0] = 0

    del array, part, other
    after = tn.statistics()
    assert (after.in_use, after.live) == (before.in_use, before.live)
    began = time.monotonic()
    while sum(arena.waiting_bytes for arena in tn.arenas()):  # multiprocessing's thread lets go of its own when it has time
        assert time.monotonic() < began + 60
        with tn.use("shared"):
            numpy.empty((300, 200))  # looks at what waits
    print("right")
