"""Three real nodes for all tests of a file; a file whose nodes are other ones has fixtures of these names itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cluster_nodes import NAMES, ClusterNodes, cluster_nodes
from page_person import chromium


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    """Three nodes for all tests: starting them costs more than most of what the tests do."""
    with cluster_nodes(tmp_path_factory.mktemp("cluster")) as nodes:
        nodes.start_all()
        yield nodes


@pytest.fixture
def nodes(cluster: ClusterNodes) -> ClusterNodes:
    """Three nodes in sync, and no queue `orders`."""
    for name in NAMES:
        if name not in cluster.processes:
            cluster.start(name)
    cluster.await_in_sync()
    with cluster.channel(cluster.leader()) as channel:
        channel.queue_delete("orders")
    return cluster


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Skips where there is none."""
    with chromium() as running:
        yield running
