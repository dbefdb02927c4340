"""DeviceMemory: what it does on workers that are there, that come, that die and that share a device."""

from __future__ import annotations

import os
import pickle
import signal
from typing import Any

import msgpack
import pytest
from clusters import cluster_of, wait_for, workers_of
from support import KIB, MIB, run_python

import tack_memory

pytest.importorskip("distributed", reason="the extra tack-memory[dask] is not installed")

from tack_memory.dask import DeviceMemory, memory_info
from tack_memory.dask._metrics import METRICS


class Shared(DeviceMemory):
    """As if all workers used one piece of hardware: a simulated device is a process's own."""

    def physical(self, device: str) -> str:
        return "GPU-1"


def budgets(client: Any) -> list[tuple[int | None, str | None]]:
    return [(row.budget, row.share) for row in workers_of(client)]


def settled(client: Any, wanted: list[tuple[int | None, str | None]]) -> None:
    wait_for(lambda: budgets(client) == wanted, f"the budgets are {budgets(client)}, not {wanted}")


def test_a_budget_is_a_share_of_each_workers_device_and_registering_again_changes_it(registered: Any) -> None:
    client = registered
    assert budgets(client) == [(None, None)] * 2
    client.register_plugin(DeviceMemory(budget="50%"))
    assert budgets(client) == [(32 * MIB, "1/1")] * 2
    client.register_plugin(DeviceMemory(budget="8 MiB", strict=True))
    assert budgets(client) == [(8 * MIB, "1/1")] * 2
    assert set(client.run(lambda: tack_memory.memory_info("sim:0").strict).values()) == {True}
    client.register_plugin(DeviceMemory())
    assert budgets(client) == [(None, "1/1")] * 2, "no budget of ours any more"
    client.register_plugin(DeviceMemory(budget=5 * MIB))
    client.unregister_worker_plugin("tack_memory")
    assert budgets(client) == [(None, None)] * 2
    assert set(client.run(lambda: tack_memory.memory_info("sim:0").strict).values()) == {False}


def test_a_budget_from_before_comes_back(registered: Any) -> None:
    client = registered
    client.run(tack_memory.set_memory_budget, 3 * MIB, "sim:0")
    client.register_plugin(DeviceMemory(budget="50%"))
    client.register_plugin(DeviceMemory(budget="25%"))
    client.unregister_worker_plugin("tack_memory")
    assert [row.budget for row in workers_of(client)] == [3 * MIB] * 2
    client.run(tack_memory.set_memory_budget, None, "sim:0")


def test_workers_that_share_a_device_split_its_budget_as_they_come_and_go() -> None:
    with cluster_of(2) as client:
        client.register_plugin(Shared(budget="60 MiB"))
        settled(client, [(30 * MIB, "1/2")] * 2)
        client.cluster.scale(3)
        settled(client, [(20 * MIB, "1/3")] * 3)
        victim = memory_info(client).rows[0].pid
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: victim not in [row.pid for row in memory_info(client).rows] and len(budgets(client)) == 3, "the nanny did not start it again")
        settled(client, [(20 * MIB, "1/3")] * 3)
        client.cluster.scale(1)
        settled(client, [(60 * MIB, "1/1")])


def test_a_share_that_becomes_smaller_spills_at_once() -> None:
    with cluster_of(1) as client:
        client.register_plugin(Shared(budget="8 MiB"))
        client.run(_keep, 6)
        client.cluster.scale(2)
        wait_for(lambda: len(budgets(client)) == 2 and budgets(client)[0] == (4 * MIB, "1/2"), "no new share")
        [old, new] = memory_info(client).rows
        assert (old.in_use, old.spilled, new.in_use) == (4 * MIB, 2 * MIB, 0)


def _keep(number: int, dask_worker: Any) -> None:
    dask_worker._kept = [tack_memory.allocate(MIB, "sim:0") for _ in range(number)]


def test_workers_that_come_have_it_and_those_that_a_nanny_starts_again() -> None:
    with cluster_of(1) as client:
        client.register_plugin(DeviceMemory(budget="25%"))
        client.cluster.scale(2)
        settled(client, [(16 * MIB, "1/1")] * 2)
        victim = memory_info(client).rows[0].pid
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: len(memory_info(client).rows) == 2 and victim not in [row.pid for row in memory_info(client).rows], "the nanny did not start it again")
        settled(client, [(16 * MIB, "1/1")] * 2)


def test_the_metrics_are_in_the_heartbeat_and_few_bytes(registered: Any) -> None:
    client = registered

    def metrics() -> list[dict[str, Any]]:
        return [worker["metrics"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]

    assert not any(name in told for told in metrics() for name in METRICS)
    client.register_plugin(DeviceMemory(budget="4 MiB"))
    client.run(_keep, 7)
    told = wait_for(lambda: [one for one in metrics() if one.get("device_spilled") == 3 * MIB], "no heartbeat told of it")[0]
    assert [told[name] for name in METRICS] == [4 * MIB, 3 * MIB, 3, 0, 3 * MIB, 0]
    ours = {name: 2**62 for name in METRICS}
    assert len(msgpack.packb({**told, **ours})) - len(msgpack.packb({name: told[name] for name in told if name not in METRICS})) <= 160
    client.run(lambda dask_worker: dask_worker.__dict__.pop("_kept", None))
    client.unregister_worker_plugin("tack_memory")
    wait_for(lambda: not any(name in told for told in metrics() for name in METRICS), "the metrics stayed")


def test_out_of_memory_comes_back_with_its_fields(registered: Any) -> None:
    client = registered
    client.register_plugin(DeviceMemory(budget="1 MiB", strict=True))

    def work() -> None:
        with tack_memory.allocate(KIB, "sim:0", label="mesh").hold("texture"):
            tack_memory.allocate("2 MiB", "sim:0")

    with pytest.raises(tack_memory.DeviceMemoryError, match="more than the whole strict budget of 1 MiB") as caught:
        client.submit(work, pure=False).result()
    error = caught.value
    assert (error.device, error.requested, error.budget, error.reason) == ("sim:0", 2 * MIB, MIB, "too_large")
    assert [holder.label for holder in error.holders] == ["mesh"] and error.unspillable == {"hold: texture": KIB}


def test_buffers_arrive_on_the_workers_own_device(registered: Any) -> None:
    client = registered

    def device_of(buffer: tack_memory.Buffer) -> str:
        return buffer.device

    here = tack_memory.allocate(KIB, "sim:0")

    def arrives_on() -> set[str]:
        [sent] = client.scatter([here], hash=False)  # straight to a worker; what is an argument of a task, the scheduler keeps for its record of computations
        return {client.submit(device_of, sent, pure=False).result()}

    assert arrives_on() == {"sim:0"}
    client.register_plugin(DeviceMemory(device="sim-hip:0"))
    assert arrives_on() == {"sim-hip:0"}
    client.register_plugin(DeviceMemory(device="cpu"))
    assert arrives_on() == {"cpu"}
    client.unregister_worker_plugin("tack_memory")
    assert arrives_on() == {"sim:0"}


def test_a_worker_without_a_device_goes_on_and_says_so(registered: Any) -> None:
    client = registered
    client.register_plugin(DeviceMemory(budget="50%", device="cuda:7"))
    memory = memory_info(client)
    assert sum("its device cannot be used: unknown device 'cuda:7'" in problem for problem in memory.problems) == 2
    assert client.submit(lambda: 1 + 1, pure=False).result() == 2
    client.register_plugin(DeviceMemory(budget="50%", device="cpu"))
    memory = memory_info(client)
    assert sum("has no GPU that can be used" in problem for problem in memory.problems) == 2
    assert {(row.device, row.budget) for row in workers_of(client)} == {("cpu", None)}


def test_a_framework_is_plugged_in_by_name(registered: Any) -> None:
    client = registered
    client.register_plugin(DeviceMemory(host="no_such_framework"))
    assert sum("No module named 'no_such_framework'" in problem for problem in memory_info(client).problems) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"budget": "2G"}, ValueError, "2G"),
        ({"budget": 0}, ValueError, "a budget cannot be 0"),
        ({"budget": "0%"}, ValueError, "cannot be 0"),
        ({"budget": -1}, ValueError, "-1"),
        ({"budget": 0.8}, TypeError, "float 0.8"),
        ({"budget": True}, TypeError, "bool"),
        ({"device": "gpu"}, ValueError, "unknown device 'gpu'"),
        ({"device": -1}, ValueError, "numbered from 0"),
        ({"device": True}, TypeError, "bool"),
        ({"device": object()}, TypeError, "named here by a str or an int"),
        ({"host": 5}, TypeError, "a module or a module's name"),
        ({"strict": 1}, TypeError, "True or False"),
    ],
)
def test_wrong_arguments_are_told_at_the_call(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        DeviceMemory(**arguments)


def test_it_travels_and_shows_itself() -> None:
    plugin = DeviceMemory(budget="80%", strict=True)
    assert repr(plugin) == "DeviceMemory(budget='80%', strict=True)" and plugin.name == "tack_memory"
    assert repr(pickle.loads(pickle.dumps(plugin))) == repr(plugin)
    assert repr(pickle.loads(pickle.dumps(Shared(budget=MIB)))) == f"Shared(budget={MIB})"


def test_where_distributed_is_missing_the_error_says_what_to_install() -> None:
    done = run_python("""
        import sys
        sys.modules["distributed"] = None
        try:
            import tack_memory.dask
        except ImportError as error:
            print(error, error.name)
    """)
    assert done.stdout == "tack_memory.dask needs distributed, which is not installed here: pip install tack-memory[dask] distributed\n", done.stderr
