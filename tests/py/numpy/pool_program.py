"""A program with a pool of processes, each of which counts its arrays. Its argument is how they are started."""

import multiprocessing
import sys
from typing import Any

import numpy

import tack_memory.numpy as tn


def begin() -> None:
    if multiprocessing.get_start_method() == "spawn":
        tn.install()


def work(n: int) -> Any:
    before = tn.statistics().in_use
    array = numpy.arange(n, dtype="f8")
    assert tn.statistics().in_use == before + 8 * n
    return array * 2


if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    tn.install()
    before = tn.statistics().in_use
    with multiprocessing.Pool(2, begin) as pool:
        results = pool.map(work, range(1, 200))
    assert all((result == 2 * numpy.arange(len(result))).all() for result in results)
    del results
    assert tn.statistics().in_use == before
    print("right")
