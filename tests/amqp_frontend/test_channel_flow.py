"""channel.flow to clients that the configuration names, and publishes of links between brokers.

Queues page E.3, E.5.2; virtual time.
"""

from __future__ import annotations

from typing import Any

import pytest
from pair import Pair
from pamqp import commands as C
from peer import Peer, method, publish

from leveret.engine import BrokerOptions, User
from leveret.engine.messages.field_table import Field
from leveret.settings import Flow, SettingsRepository, entry

BODY = b"b" * 1500
JAVA = "RabbitMQ"
TO_JAVA = Flow(channel_flow_products=(JAVA,))


class Bench:
    """A queue with a limit of two messages, and a publisher whose client calls itself `product`."""

    def __init__(self, product: object = JAVA, *, flow: Flow = TO_JAVA, **settings: Any):
        self.settings = SettingsRepository([entry("q", memory_limit=2_000, cursor="vm", **settings)])
        self.pair = Pair(broker={"settings": self.settings, "options": BrokerOptions(flow=flow)})
        self.taker = self.pair.open(1)
        self.taker.call(1, C.Queue.Declare, queue="q")
        self.peer: Peer = self.pair.open(2)
        said = product if not isinstance(product, str) else Field("S", product.encode())
        self.peer.session.login.client_properties["product"] = said  # type: ignore[assignment]

    def publish(self, count: int, channel: int = 1) -> None:
        for _ in range(count):
            self.peer.send(publish(channel, "q", BODY))

    def take(self, count: int) -> None:
        for _ in range(count):
            self.taker.send(method(1, C.Basic.Get, queue="q", no_ack=True))
            self.taker.take()
            self.pair.settle()

    def told(self) -> list[tuple[int, bool]]:
        """Each channel.flow since this was last asked: the channel, and whether it may go on."""
        return [(one.channel, one.frame.active) for one in self.peer.take() if isinstance(one.frame, C.Channel.Flow)]


def test_a_channel_is_told_while_its_publishes_are_held() -> None:
    """Once, and to go on when nothing was held for 200 ms; the other channel hears nothing."""
    bench = Bench()
    bench.publish(2)
    assert bench.told() == []
    bench.publish(3)
    assert bench.told() == [(1, False)]
    bench.peer.send(method(1, C.Channel.FlowOk, active=False))
    bench.take(5)
    bench.pair.advance(199)
    assert bench.told() == []
    bench.pair.advance(1)
    assert bench.told() == [(1, True)]
    bench.peer.send(method(1, C.Channel.FlowOk, active=True))
    assert not bench.peer.is_closed


def test_what_is_held_again_meanwhile_keeps_it_stopped() -> None:
    bench = Bench()
    bench.publish(3)
    bench.take(3)
    bench.pair.advance(100)
    bench.publish(3)
    bench.pair.advance(1000)
    assert bench.told() == [(1, False)]


def test_a_channel_that_goes_on_is_told_to_stop_again() -> None:
    """As often as its publishes are held."""
    bench = Bench()
    for _ in range(3):
        bench.publish(3)
        assert bench.told() == [(1, False)]
        bench.take(3)
        bench.pair.advance(200)
        assert bench.told() == [(1, True)]


def test_each_channel_is_told_of_its_own() -> None:
    bench = Bench()
    bench.publish(3)
    bench.publish(1, channel=2)
    assert bench.told() == [(1, False), (2, False)]


@pytest.mark.parametrize("product", ["amqplib", "", Field("I", 7), None])
def test_other_clients_are_not_told(product: object) -> None:
    """Also those that say nothing, or nonsense."""
    bench = Bench(product)
    bench.publish(4)
    bench.take(4)
    bench.pair.advance(1000)
    assert bench.told() == []


def test_by_default_nobody_is_told() -> None:
    bench = Bench(flow=Flow())
    bench.publish(4)
    assert bench.told() == []


@pytest.mark.parametrize("parked", [True, False])
def test_a_channel_that_is_over_is_not_told_to_go_on(parked: bool) -> None:
    """Nor is the one that has its number now."""
    bench = Bench()
    bench.publish(3)
    if not parked:
        bench.take(3)
    bench.peer.send(method(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
    bench.peer.send(method(1, C.Channel.Open))
    bench.pair.advance(1000)
    assert bench.told() == [(1, False)]


def test_a_connection_that_is_over_leaves_no_deadline_behind() -> None:
    bench = Bench()
    bench.publish(3)
    bench.take(3)
    bench.peer.hang_up()
    bench.pair.advance(1000)


def test_a_link_is_held_where_others_are_refused() -> None:
    """The tag x-internal-link: no nack, no 406, whatever send-fail-if-no-space says."""
    for settings in ({"send_fail_if_no_space": True}, {"send_fail_if_no_space_after_ms": 100}):
        for tags, nacks in ((), 2), (("x-internal-link",), 0):
            bench = Bench(flow=Flow(), **settings)
            client = bench.peer.session.login.client
            assert client is not None
            client.user = User("link", tags=tags)
            bench.peer.send(method(1, C.Confirm.Select))
            bench.publish(4)
            bench.pair.advance(5000)
            kinds = [one.frame.name for one in bench.peer.take()]
            assert kinds.count("Basic.Nack") in ({1, 2} if nacks else {0})
            bench.take(4)
            assert bench.pair.broker.context.counters.dropped == nacks
            assert not bench.peer.is_closed


def test_a_commit_of_a_link_is_held() -> None:
    bench = Bench(flow=Flow(), send_fail_if_no_space=True)
    client = bench.peer.session.login.client
    assert client is not None
    client.user = User("link", tags=("x-internal-link",))
    bench.publish(2)
    bench.peer.send(method(2, C.Tx.Select))
    bench.publish(1, channel=2)
    bench.peer.send(method(2, C.Tx.Commit))
    assert "Tx.CommitOk" not in [one.frame.name for one in bench.peer.take()]
    bench.take(2)
    assert [one.frame.name for one in bench.peer.take()] == ["Tx.CommitOk"]
