"""memory_peak(client): a scope on each worker, right also when workers come, die, or are stuck."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from clusters import cluster_of, wait_for, workers_of
from support import MIB

import tack_memory

pytest.importorskip("distributed", reason="the extra tack-memory[dask] is not installed")

from tack_memory._native import _fast
from tack_memory.dask import DeviceMemory, memory_info, memory_peak


def use(number: int) -> int:
    """That many MiB at a time, for a moment."""
    kept = [tack_memory.allocate(MIB, "sim:0") for _ in range(number)]
    return len(kept)


def open_scopes() -> int:
    return _fast.still_open()["peak scopes"]


def test_peaks_of_all_workers(client: Any) -> None:
    [one, two] = [row.worker for row in workers_of(client)]
    client.submit(use, 9, workers=[one], pure=False).result()
    with memory_peak(client) as peak:
        client.submit(use, 3, workers=[one], pure=False).result()
        assert (peak.bytes, peak.total) == (3 * MIB, 3 * MIB), "it can be read meanwhile"
        client.submit(use, 5, workers=[two], pure=False).result()
        assert str(peak) == "<ClusterPeak: open>"
    client.submit(use, 9, workers=[one], pure=False).result()
    assert [(row.worker, row.device, row.bytes, row.own, row.end, row.whole) for row in peak.rows] == [
        (one, "sim:0", 3 * MIB, 3 * MIB, 0, True),
        (two, "sim:0", 5 * MIB, 5 * MIB, 0, True),
    ]
    assert (peak.bytes, peak.total, peak.missing) == (5 * MIB, 8 * MIB, {})
    assert json.loads(json.dumps(peak.to_dict()))["total"] == 8 * MIB
    text = str(peak).splitlines()
    assert "5 MiB" in text[-2] and text[-2].startswith("largest") and "8 MiB" in text[-1] and text[-1].startswith("sum of 2")
    assert "8 MiB" in peak._repr_html_()
    assert set(client.run(open_scopes).values()) == {0}


def test_two_of_them_nested(client: Any) -> None:
    [one, _] = [row.worker for row in workers_of(client)]
    with memory_peak(client) as outer:
        client.submit(use, 4, workers=[one], pure=False).result()
        with memory_peak(client) as inner:
            client.submit(use, 2, workers=[one], pure=False).result()
    assert (outer.bytes, inner.bytes) == (4 * MIB, 2 * MIB)


def test_an_error_in_the_block_is_the_programs(client: Any) -> None:
    with pytest.raises(ZeroDivisionError), memory_peak(client) as peak:
        client.submit(use, 2, pure=False).result()
        1 / 0  # noqa: B018
    assert peak.bytes == 2 * MIB and set(client.run(open_scopes).values()) == {0}


def test_wrong_use(client: Any) -> None:
    peak = memory_peak(client)
    with pytest.raises(RuntimeError, match="was not entered"):
        _ = peak.bytes
    with pytest.raises(RuntimeError, match="is not open"):
        peak.__exit__(None, None, None)
    with peak, pytest.raises(RuntimeError, match="entered already"):
        peak.__enter__()
    with pytest.raises(RuntimeError, match="is not open"):
        peak.__exit__(None, None, None)
    with pytest.raises(TypeError, match="timeout"):
        memory_peak(client, timeout="1")  # type: ignore[arg-type]


def test_a_worker_that_dies_is_missing_and_one_that_comes_has_a_scope() -> None:
    with cluster_of(2) as client:
        client.register_plugin(DeviceMemory(budget="50%"))
        [one, two] = memory_info(client).rows
        with memory_peak(client) as peak:
            client.submit(use, 3, workers=[one.worker], pure=False).result()
            client.submit(use, 5, workers=[two.worker], pure=False).result()
            os.kill(two.pid, signal.SIGKILL)
            wait_for(lambda: two.pid not in [row.pid for row in peak.rows] and len(peak.rows) == 2, "the nanny did not start it again")
            [new] = [row for row in peak.rows if row.worker != one.worker]
            client.submit(use, 1, workers=[new.worker], pure=False).result()
        assert [(row.worker, row.bytes, row.whole) for row in peak.rows] == [(one.worker, 3 * MIB, True), (new.worker, MIB, False)]
        assert peak.missing == {two.worker: "left in the middle, and took its figures with it"}
        assert str(peak).splitlines()[-1] == f"missing: worker 1 ({two.worker}) left in the middle, and took its figures with it"


def test_when_the_scheduler_is_gone_leaving_does_not_raise() -> None:
    with cluster_of(1) as client:
        peak = memory_peak(client)
        peak.__enter__()
        client.cluster.close()
        peak.__exit__(None, None, None)
        assert peak.rows == [] and all("could not be asked" in why for why in peak.missing.values()) and len(peak.missing) == 1


def test_when_the_client_is_gone_its_scopes_are_closed(client: Any) -> None:
    import distributed

    other = distributed.Client(client.scheduler.address, set_as_default=False)
    memory_peak(other).__enter__()
    assert set(client.run(open_scopes).values()) == {1}
    other.close()
    wait_for(lambda: set(client.run(open_scopes).values()) == {0}, "they are still open")


def test_an_asynchronous_client() -> None:
    import asyncio

    import distributed

    async def work() -> tuple[int, int]:
        async with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0", asynchronous=True) as cluster:
            async with distributed.Client(cluster, asynchronous=True) as client:
                with pytest.raises(RuntimeError, match="async with"):
                    memory_peak(client).__enter__()
                async with memory_peak(client) as peak:
                    await client.submit(use, 2, pure=False)
                return peak.bytes, len(peak.missing)

    with tack_memory.memory_peak("sim:0"):
        assert asyncio.run(work())[1] == 0
