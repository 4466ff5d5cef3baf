"""basic.recover: what comes again comes behind recover-ok, so that a client can tell it from what was under way."""

from __future__ import annotations

import pytest
from pair import Pair
from pamqp import commands
from peer import method, publish

C = commands


@pytest.mark.parametrize("arguments", [{}, {"x-ring-size": 5}, {"x-queue-type": "quorum"}])
def test_recover_ok_comes_first(arguments: dict[str, int | str]) -> None:
    """Also from queues that hand out what comes back at once."""
    peer = Pair().open()
    peer.call(1, C.Queue.Declare, queue="q", durable=True, arguments=arguments)
    peer.call(1, C.Basic.Consume, queue="q", consumer_tag="t")
    peer.send(publish(1, "q", b"A"))
    peer.take()
    peer.send(method(1, C.Basic.Recover, requeue=True))
    assert [type(one.frame) for one in peer.take()] == [C.Basic.RecoverOk, C.Basic.Deliver]
