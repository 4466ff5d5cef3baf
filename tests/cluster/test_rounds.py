"""A few rounds of `make cluster-rounds`: one of each way to lose a leader, under all kinds of queues and clients."""

import pytest
from cluster_rounds import cut_leader_off, kill_all, kill_leader, run, stop_leader
from etcd_servers import ETCD, WHY_NOT


@pytest.mark.cluster
@pytest.mark.skipif(ETCD is None, reason=WHY_NOT)
def test_books_agree_with_queues_and_journals() -> None:
    """CL07, CL13, CL14, CL16: confirmed is there, once; offsets mean one message; journals are equal up to agreed."""
    blows = iter((kill_leader, stop_leader, cut_leader_off, kill_all))
    assert run(4, 1, lambda _: next(blows), is_quiet=True, is_audited=False) == []
