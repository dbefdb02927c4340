"""Real clusters: a scheduler here, workers in processes of their own, started anew (never forked), each with simulated devices."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SIM = "64 MiB"
HERE = Path(__file__).parent


@contextlib.contextmanager
def cluster_of(workers: int, **environment: str) -> Iterator[Any]:
    """A client of a new cluster. Each worker is a process under a nanny, which starts it again when it dies."""
    import dask
    import distributed

    environment = {"PYTHONPATH": f"{HERE}:{HERE.parent}", "TACK_MEMORY_SIM": SIM, "TACK_MEMORY_AUTOINSTALL": "0", **environment}
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "spawn", "distributed.comm.timeouts.connect": "5s"}),
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", env=environment) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def workers_of(client: Any) -> list[Any]:
    """The row of each worker's own device: other tests may have opened others there."""
    from tack_memory.dask import memory_info

    rows = memory_info(client).rows
    return [row for place, row in enumerate(rows) if not place or row.worker != rows[place - 1].worker]


def wait_for(condition: Callable[[], Any], otherwise: str, limit: float = 60) -> Any:
    """What the condition returns, as soon as it is true."""
    end = time.monotonic() + limit
    while not (found := condition()):
        if time.monotonic() > end:
            pytest.fail(f"{otherwise}, after {limit:g} s")
        time.sleep(0.02)
    return found
