"""The cluster that a module's tests share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from clusters import cluster_of


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Of a cluster of two workers that a module's tests share, and leave as it was."""
    pytest.importorskip("distributed", reason="the extra tack-memory[dask] is not installed")
    with cluster_of(2) as client:
        yield client


@pytest.fixture
def registered(client: Any) -> Iterator[Any]:
    """The cluster, without any plugin of ours afterwards."""
    yield client
    with contextlib.suppress(ValueError):  # the test has done so
        client.unregister_worker_plugin("tack_memory")
