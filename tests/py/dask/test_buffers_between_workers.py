"""Buffers in Dask's hands: from worker to worker and to the client, by its own serialisation, under forced spilling."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="the extra tack-memory[dask] is not installed")

from distributed import Client, LocalCluster
from distributed.protocol import deserialize, serialize
from support import MIB, filled, pattern

import tack_memory

DEVICE = "sim:0"
SIZES = [0, 1, 100, 5_000, 20_000, 70_000]
BATCH, BATCHES = 50, 200


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers, processes of their own that know this folder's modules, each on a simulated device under a budget."""
    environment = {"PYTHONPATH": str(Path(__file__).parent.parent), "TACK_MEMORY_SIM": "64 MiB"}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", env=environment) as cluster,
        Client(cluster) as client,
    ):
        client.run(tack_memory.set_memory_budget, 400_000, DEVICE)
        yield client


def made(first: int) -> list[tack_memory.Buffer]:
    """Some of them spilled: they do not fit together."""
    return [filled(SIZES[n % len(SIZES)], DEVICE, n) for n in range(first, first + BATCH)]


def digest(buffers: list[tack_memory.Buffer]) -> str:
    """Of what the device has, once it has used each."""
    together = hashlib.sha256()
    for buffer in buffers:
        with buffer.hold():
            together.update(buffer.copy_to_host())
    return together.hexdigest()


def states(buffers: list[tack_memory.Buffer]) -> set[str]:
    return {buffer.state for buffer in buffers if buffer.nbytes}


def figures() -> dict[str, int]:
    import gc

    gc.collect()
    tack_memory.synchronize(DEVICE)
    info = tack_memory.memory_info(DEVICE)
    copies = driver().calls("cuMemcpyDtoHAsync_v2")
    return {
        "out": copies,
        **{name: getattr(info, name) for name in ("spill_count", "restore_count", "received_bytes", "in_use", "spilled", "over_budget_count")},
    }


def driver() -> Any:
    from support import SoftDriver

    return SoftDriver(DEVICE)


def test_a_frame_holds_the_contents_beside_the_header() -> None:
    buffer = filled(MIB, DEVICE, 3, label="velocity")
    buffer.spill()
    header, frames = serialize(buffer)
    assert buffer.is_spilled and sorted(memoryview(frame).nbytes for frame in frames)[-1] == MIB
    assert sum(memoryview(frame).nbytes for frame in frames) < MIB + 300
    other = deserialize(header, [bytearray(frame) for frame in frames])
    assert (other.state, other.label, bytes(other.copy_to_host())) == ("spilled", "velocity", pattern(MIB, 3))


def test_ten_thousand_buffers_between_workers_under_forced_spilling(client: Client) -> None:
    one, two = client.scheduler_info(n_workers=-1)["workers"]
    before = client.run(figures)
    wanted, there, back, arrivals = [], [], [], []
    for first in range(0, BATCH * BATCHES, BATCH):
        contents = hashlib.sha256(b"".join(pattern(SIZES[n % len(SIZES)], n) for n in range(first, first + BATCH)))
        wanted.append(contents.hexdigest())
    for start in range(0, BATCHES, 20):  # a few at a time: the workers keep what is asked for
        firsts = range(start * BATCH, (start + 20) * BATCH, BATCH)
        batches = client.map(made, firsts, workers=one, pure=False)
        arrivals += client.gather(client.map(states, batches, workers=two, pure=False))
        passed_on = client.map(list, batches, workers=two, pure=False)
        there += client.gather(client.map(digest, batches, workers=two, pure=False))
        back += client.gather(client.map(digest, passed_on, workers=one, pure=False))
    assert there == wanted and back == wanted
    assert set().union(*arrivals[:1]) == {"spilled"}, "they arrive so, and nobody has used them"
    del batches, passed_on
    after = client.run(figures)
    for worker in (one, two):
        change = {name: after[worker][name] - before[worker][name] for name in before[worker]}
        assert change["received_bytes"] >= sum(SIZES[n % len(SIZES)] for n in range(BATCH * BATCHES)), change
        assert change["spill_count"] > 0 and change["over_budget_count"] == 0, change


def test_sending_moves_nothing(client: Client) -> None:
    one, two = client.scheduler_info(n_workers=-1)["workers"]
    batch = client.submit(made, 0, workers=one, pure=False)
    resident = client.submit(lambda buffers: sum(b.state == "resident" and b.nbytes > 0 for b in buffers), batch, workers=one, pure=False).result()
    before = client.run(figures, workers=[one])[one]
    assert client.submit(states, batch, workers=two, pure=False).result() == {"spilled"}
    after = client.run(figures, workers=[one])[one]
    assert after["out"] - before["out"] == resident, "what was resident was copied out once each; of what was spilled the host copy was"
    assert {**after, "out": 0} == {**before, "out": 0}


def test_the_client_gets_them_too(client: Client) -> None:
    one, _ = client.scheduler_info(n_workers=-1)["workers"]
    before = tack_memory.memory_info(DEVICE)
    buffers = client.submit(made, 7, workers=one, pure=False).result()
    assert states(buffers) == {"spilled"}
    for n, buffer in enumerate(buffers, 7):
        assert bytes(buffer.copy_to_host()) == pattern(SIZES[n % len(SIZES)], n)
    assert tack_memory.memory_info(DEVICE).spilled - before.spilled == sum(buffer.nbytes for buffer in buffers)
    [scattered] = client.scatter([buffers[3]], workers=one)
    assert client.submit(digest, [scattered], workers=one).result() == hashlib.sha256(buffers[3].copy_to_host()).hexdigest()


def test_dask_is_not_imported_by_the_package() -> None:
    from support import run_python

    done = run_python(
        "import sys, tack_memory, tack_memory._travel; print([name for name in sys.modules if name.partition('.')[0] in ('dask', 'distributed')])"
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr
    assert "distributed" in sys.modules
