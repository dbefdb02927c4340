"""memory_info(client): right for who answers, and clear about who does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from clusters import HERE, SIM, cluster_of, wait_for, workers_of
from support import MIB

import tack_memory

pytest.importorskip("distributed", reason="the extra tack-memory[dask] is not installed")

from tack_memory.dask import DeviceMemory, memory_info


def keep(number: int, dask_worker: Any) -> None:
    """That many MiB, half of them spilled."""
    dask_worker._kept = kept = [tack_memory.allocate(MIB, "sim:0") for _ in range(number)]
    tack_memory.spill(*kept[: number // 2])


def let_go(dask_worker: Any) -> None:
    dask_worker._kept = None


def test_a_row_a_worker_and_device_and_totals(client: Any) -> None:
    before = memory_info(client)
    assert [row.name for row in before.rows] == ["0", "1"] and not before.missing and not before.problems
    addresses = [row.worker for row in before.rows]
    client.run(keep, 4, workers=addresses[:1])
    client.run(keep, 6, workers=addresses[1:])
    memory = memory_info(client)
    assert [(row.device, row.in_use, row.spilled, row.device_total, row.version) for row in memory.rows] == [
        ("sim:0", 2 * MIB, 2 * MIB, 64 * MIB, tack_memory.__version__),
        ("sim:0", 3 * MIB, 3 * MIB, 64 * MIB, tack_memory.__version__),
    ]
    totals = {name: memory.totals[name] - before.totals[name] for name in ("in_use", "spilled", "spill_count", "spilled_bytes")}
    assert totals == {"in_use": 5 * MIB, "spilled": 5 * MIB, "spill_count": 5, "spilled_bytes": 5 * MIB}
    text = str(memory).splitlines()
    assert text[0].split()[:4] == ["worker", "device", "in", "use"] and text[-1].startswith("total of 2") and "5 MiB" in text[-1]
    assert len({len(line) for line in text[1:2] + text[-2:-1]}) == 1
    html = memory._repr_html_()
    assert html.count("<tr>") == 4 and "sim:0" in html
    assert json.loads(json.dumps(memory.to_dict()))["rows"][1]["in_use"] == 3 * MIB
    client.run(let_go)


def test_other_devices_that_a_worker_uses_have_rows(client: Any) -> None:
    [first, _] = workers_of(client)
    client.run(lambda dask_worker: setattr(dask_worker, "_kept", tack_memory.allocate(MIB, "sim-hip:0")), workers=[first.worker])
    memory = memory_info(client)
    assert [(row.name, row.device) for row in memory.rows] == [("0", "sim:0"), ("0", "sim-hip:0"), ("1", "sim:0")]
    assert "the workers' devices differ: 2 x sim, 1 x sim-hip" in str(memory) and str(memory).splitlines()[-2].startswith("total of 2")
    client.run(let_go)


def test_a_worker_that_is_stuck_is_missing_and_the_others_are_right(client: Any) -> None:
    [stuck, other] = workers_of(client)
    os.kill(stuck.pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        memory = memory_info(client, timeout=1)
        assert time.monotonic() - start < 10
    finally:
        os.kill(stuck.pid, signal.SIGCONT)
    assert {row.worker for row in memory.rows} == {other.worker} and memory.rows[0].in_use is not None
    assert memory.missing == {stuck.worker: "did not answer within 1 s"}
    assert str(memory).splitlines()[-1] == f"missing: worker 0 ({stuck.worker}) did not answer within 1 s"
    assert "did not answer" in memory._repr_html_()
    wait_for(lambda: not memory_info(client).missing, "it did not come back")


def test_a_worker_that_is_killed_is_missing() -> None:
    """One without a nanny. It is told of where DeviceMemory is registered, which remembers it."""
    with cluster_of(1) as client:
        client.register_plugin(DeviceMemory(budget="50%"))
        environment = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent}", "TACK_MEMORY_SIM": SIM}
        command = [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            client.scheduler.address,
            "--no-nanny",
            "--no-dashboard",
            "--name",
            "alone",
            "--nthreads",
            "1",
        ]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
            client.wait_for_workers(2, timeout=60)
            wait_for(lambda: [row.budget for row in memory_info(client).rows] == [32 * MIB] * 2, "it has no budget")
            [there, alone] = memory_info(client).rows
            assert (alone.name, alone.pid) == ("alone", worker.pid)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        memory = wait_for(lambda: (found := memory_info(client)).missing and found, "nobody misses it")
        assert [row.worker for row in memory.rows] == [there.worker] and memory.rows[0].budget == 32 * MIB
        assert list(memory.missing) == [alone.worker]
        assert f"missing: worker alone ({alone.worker}) died" in str(memory) and "was not started again" in str(memory)


def test_another_version_and_none_at_all_are_said() -> None:
    with cluster_of(3) as client:
        [old, without, _] = memory_info(client).rows

        def change_version() -> None:
            tack_memory.__version__ = "0.0.1"

        def take_away() -> None:
            import sys

            for name in [name for name in sys.modules if name.partition(".")[0] == "tack_memory"]:
                sys.modules[name] = None  # type: ignore[assignment]

        client.run(change_version, workers=[old.worker])
        client.run(take_away, workers=[without.worker])
        memory = memory_info(client)
        assert [row.version for row in memory.rows] == ["0.0.1", None, tack_memory.__version__]
        assert [row.device for row in memory.rows] == ["sim:0", None, "sim:0"]
        assert f"1 worker runs tack_memory 0.0.1, the client {tack_memory.__version__}" in str(memory)
        assert f"worker 1 ({without.worker}): tack_memory cannot be imported there" in str(memory)
        client.register_plugin(DeviceMemory(budget="50%"))
        rows = memory_info(client).rows
        assert [row.budget for row in rows] == [32 * MIB, None, 32 * MIB] and "tack_memory cannot be imported there" in (rows[1].problem or "")
        assert client.submit(lambda: 2, workers=[without.worker]).result() == 2, "the worker goes on"


def test_a_worker_without_any_gpu() -> None:
    with cluster_of(1, TACK_MEMORY_SIM="") as client:
        client.register_plugin(DeviceMemory(budget="50%"))
        memory = memory_info(client)
        assert [(row.device, row.budget) for row in memory.rows] == [("cpu", None)]
        assert "has no GPU that can be used: its default device is the CPU, where nothing is spilled; no budget was set" in str(memory)


@pytest.mark.parametrize(("timeout", "error"), [(0, ValueError), (-1, ValueError), ("1", TypeError), (True, TypeError), (None, TypeError)])
def test_a_wrong_timeout(client: Any, timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="timeout must be"):
        memory_info(client, timeout=timeout)


def test_with_an_asynchronous_client() -> None:
    import asyncio

    import distributed

    async def ask() -> Any:
        async with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0", asynchronous=True) as cluster:
            async with distributed.Client(cluster, asynchronous=True) as client:
                return await memory_info(client)  # type: ignore[misc]

    memory = asyncio.run(ask())
    assert len(memory.rows) >= 1 and not memory.missing
