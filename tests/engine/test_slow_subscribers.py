"""How many messages wait for a slow subscriber, and which go. Queues page E.1, E.2, E.4 (row 14), E.6; G.E.

Every row is in virtual time; over sockets: tests/server/test_slow_subscribers.py.
"""

from __future__ import annotations

import pytest
from subscribers import Bench, Subscriber, numbers, topics

from leveret.engine import Choice, Envelope, Moving, dead_letter_queues
from leveret.engine.events import EventKind
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.engine.move_targets import to_exchange
from leveret.settings import SystemUsage, entry


def test_a_multiple_of_the_prefetch() -> None:
    """Queues page G.E, row E20. What may be out of all consumers counts; without a limit to it there is none."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit_prefetch_rate": 2.5}))
    ten = Subscriber(bench, "ten", prefetch=10).bind("PRICES.#")
    unlimited = Subscriber(bench, "unlimited").bind("PRICES.#")
    unlimited.reads = False
    without = Subscriber(bench, "without", consumes=False).bind("PRICES.#")
    bench.publish(*numbers(1, 100))
    assert (len(ten.got), ten.waiting) == (10, numbers(76, 100))
    assert without.waiting == numbers(1, 100)
    without.session.set_prefetch(2, total=False)
    without.consume()
    bench.end_turn()
    assert (without.got, without.waiting) == (numbers(1, 2), numbers(96, 100))


def test_a_prefetch_is_no_limit_to_a_consumer_without_acknowledgements() -> None:
    """So a multiple of it is none: all that its socket does not take waits."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit_prefetch_rate": 2.5}))
    stopped = Subscriber(bench, "stopped", consumes=False).bind("PRICES.#")
    stopped.session.set_prefetch(2, total=False)
    stopped.session.set_flowing(False)
    stopped.session.consume(stopped.queue, "t", no_ack=True, exclusive=False, arguments={})
    bench.publish(*numbers(1, 100))
    assert stopped.waiting == numbers(1, 100)


def test_without_a_prefetch_limit_what_the_socket_does_not_take_waits() -> None:
    """Queues page E.6: P = 0."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit": 3}), unsent_max=1000)
    slow = Subscriber(bench, "slow").bind("#")
    bench.publish("first")
    slow.reads = False
    bench.publish("x" * 2000)
    assert slow.client.paused
    bench.publish(*numbers(1, 10))
    assert (slow.got, slow.waiting) == (["first"], numbers(8, 10))
    slow.reads = True
    slow.read()
    bench.end_turn()
    assert slow.got == ["first", "x" * 2000, *numbers(8, 10)]


# -- which ones -------------------------------------------------------------------------------------------------------


UNIQUE = {"pending_message_limit": 2, "message_eviction": "unique-property", "message_eviction_property": "symbol"}


@pytest.mark.parametrize(
    ("published", "kept"),
    [
        ([("a", 1, 0), ("b", 2, 0), ("c", 3, 0)], ["b", "c"]),
        ([("a", 1, 0), ("b", 2, 0), ("c", 1, 0)], ["b", "c"]),
        ([("a", 1, 5), ("b", 2, 0), ("c", 1, 4)], ["a", "b"]),
        ([("a", 1, 5), ("b", 2, 0), ("c", 1, 5)], ["b", "c"]),
        ([("a", 1, 0), ("b", None, 0), ("c", 2, 0)], ["a", "c"]),
        ([("a", None, 0), ("b", None, 0), ("c", None, 0)], ["b", "c"]),
        ([("a", 1, 0), ("b", 1, 0), ("c", 1, 0)], ["c"]),
    ],
    ids=[
        "nothing is redundant: the oldest",
        "an older one of a value",
        "by the publisher's time",
        "at one time the later one stays",
        "without the header",
        "none has it",
        "all that are redundant go together",
    ],
)
def test_what_is_redundant(published: list[tuple[str, int | None, int]], kept: list[str]) -> None:
    """Queues page E.1, "eviction": the newest message of each value stays, by its time stamp, then in log order."""
    bench = Bench(destinations=topics(PRICES_=UNIQUE))
    slow = Subscriber(bench, "slow", prefetch=1).bind("PRICES.#")
    bench.publish("out")
    for body, symbol, timestamp in published:
        bench.publish(body, **({} if symbol is None else {"symbol": symbol}), timestamp=timestamp)
    assert slow.waiting == kept


def test_without_a_property_the_oldest_goes() -> None:
    """There is nothing to compare."""
    rules = {"pending_message_limit": 1, "message_eviction": "unique-property"}
    bench = Bench(destinations=topics(PRICES_=rules))
    slow = Subscriber(bench, "slow", prefetch=1).bind("PRICES.#")
    bench.publish(*numbers(1, 4))
    assert slow.waiting == ["4"]


def test_of_several_that_expire_each_goes_in_its_time() -> None:
    """Before messages that live, also where others expired before it."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit": 3}))
    slow = Subscriber(bench, "slow", prefetch=1).bind("PRICES.#")
    bench.publish("out", "a")
    bench.publish("b", ttl=100)
    bench.publish("c", ttl=300)
    for body, waiting in (("d", ["a", "c", "d"]), ("e", ["a", "d", "e"])):
        bench.clock.advance_ns(200_000_000)
        bench.publish(body)
        assert slow.waiting == waiting
    assert (slow.queue.counters.expired, slow.queue.counters.replaced) == (2, 0)


def test_what_expires_sooner_than_all_before_it_goes_first() -> None:
    """It came after a message had to go, when the next one to expire was far away."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit": 3}))
    slow = Subscriber(bench, "slow", prefetch=1).bind("PRICES.#")
    bench.publish("out", "a")
    bench.publish("b", ttl=60_000)
    bench.publish("c", "d")
    assert slow.waiting == ["b", "c", "d"]
    bench.publish("e", ttl=100)
    assert slow.waiting == ["c", "d", "e"]
    bench.clock.advance_ns(200_000_000)
    bench.publish("f")
    assert slow.waiting == ["c", "d", "f"]


def test_what_came_back_and_has_expired_goes_first() -> None:
    """It was out when the others were looked at."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit": 3}))
    slow = Subscriber(bench, "slow", prefetch=2).bind("PRICES.#")
    bench.publish("a")
    bench.publish("b", ttl=100)
    bench.publish("c", "d", "e", "f")
    assert (slow.got, slow.waiting) == (["a", "b"], ["d", "e", "f"])
    for _ in range(2):
        slow.session.get(slow.queue, no_ack=True)
    slow.session.set_flowing(False)
    slow.session.reject(0, multiple=True, requeue=True)
    bench.end_turn()
    bench.advance(150)
    assert slow.waiting == ["a", "b", "f"]
    bench.publish("g")
    assert slow.waiting == ["a", "f", "g"]


def test_they_are_announced_with_their_cause() -> None:
    """As evicted, as those of a ring: counted with them, and no dead letters."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit": 1}))
    slow = Subscriber(bench, "slow", prefetch=1).bind("PRICES.#")
    bench.listen()
    bench.publish(*numbers(1, 4))
    evicted = [event for event in bench.events if event.kind is EventKind.EVICTED]
    assert [event.detail for event in evicted] == [{"reason": "pending-message-limit"}] * 2
    assert slow.queue.counters.replaced == 2
    assert slow.queue.counters.killed == slow.queue.counters.dropped == 0


# -- whom it concerns -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "keeps"),
    [
        ({"exclusive": True}, 2),
        ({"auto_delete": True}, 2),
        ({"auto_delete": True, "durable": True}, 10),
        ({"durable": True}, 10),
        ({}, 10),
    ],
    ids=str,
)
def test_only_transient_subscribers(declared: dict[str, bool], keeps: int) -> None:
    """Queues page E.2: exclusive or auto-delete, and not durable."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit": 2}))
    client = bench.broker.connections.open("/", bench.user, name="c", flush=lambda: None)
    queue = bench.vhost.queues.declare("q", client=client, **declared)  # type: ignore[arg-type]
    bench.vhost.bindings.add("queue", "q", "amq.topic", "#", {})
    bench.publish(*numbers(1, 10))
    assert queue.ready_count == keeps


@pytest.mark.parametrize(
    ("exchange", "kind", "key", "topic", "holds"),
    [
        ("amq.topic", "topic", "PRICES.X", "PRICES_", True),
        ("amq.topic", "topic", "OTHER.X", "PRICES_", False),
        ("NEWS.EU", "topic", "whatever", "NEWS_", True),
        ("NEWS.EU", "fanout", "", "NEWS_EU", True),
        ("NEWS.EU", "direct", "PRICES.X", "PRICES_", False),
        ("NEWS.EU", "headers", "PRICES.X", "NEWS_", True),
        ("", "direct", "q", "q", False),
    ],
)
def test_which_topic_a_message_is_of(exchange: str, kind: str, key: str, topic: str, holds: bool) -> None:
    """Queues page E.2: the routing key of topic exchanges, or the exchange's name. The default exchange has none."""
    bench = Bench(destinations=topics(**{topic: {"pending_message_limit": 2}}))
    if exchange and not exchange.startswith("amq."):
        bench.vhost.exchanges.declare(exchange, kind)
    subscriber = Subscriber(bench, "q", consumes=False)
    if exchange:
        subscriber.bind("#" if kind == "topic" else key, exchange)
    bench.publish(*numbers(1, 5), exchange=exchange, key=key)
    assert subscriber.queue.ready_count == (2 if holds else 5)


def test_address_settings_that_match_the_topic() -> None:
    bench = Bench(entry("PRICES.#", pending_message_limit=2))
    subscriber = Subscriber(bench, "q", consumes=False).bind("#")
    bench.publish(*numbers(1, 5))
    assert subscriber.waiting == numbers(4, 5)


def test_through_an_exchange_behind_another() -> None:
    """The topic is that of the publish."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit": 2}))
    bench.vhost.exchanges.declare("behind", "fanout")
    bench.vhost.bindings.add("exchange", "behind", "amq.topic", "PRICES.*", {})
    subscriber = Subscriber(bench, "q", consumes=False).bind("", "behind")
    bench.publish(*numbers(1, 5))
    assert subscriber.waiting == numbers(4, 5)


def test_of_several_topics_the_smallest_limit_holds() -> None:
    """Whichever is published to first."""
    for order in (("A.x", "B.x"), ("B.x", "A.x")):
        policies = topics(A_={"pending_message_limit": 5, "message_eviction": "lowest-priority"}, B_={
            "pending_message_limit": 3
        })  # fmt: skip
        bench = Bench(destinations=policies)
        subscriber = Subscriber(bench, "q", consumes=False).bind("#")
        for key in order:
            bench.publish(*numbers(1, 6), key=key)
        assert subscriber.queue.ready_count == 3
        assert subscriber.queue.pending is not None
        assert subscriber.queue.pending.rules.eviction == "lowest-priority"


@pytest.mark.parametrize("way", ["a dry move", "a list of dead letters"])
def test_what_only_looks_where_messages_would_go_drops_none(way: str) -> None:
    """The topic of the move had its limit applied, and messages of other topics went. The move itself applies it."""
    bench = Bench(destinations=topics(B_={"pending_message_limit": 2}))
    subscriber = Subscriber(bench, "q", consumes=False).bind("#")
    bench.publish(*numbers(1, 5), key="A.x")
    origin = bench.queue("from", x_dead_letter_exchange="amq.topic", x_dead_letter_routing_key="B.x")
    bench.publish("moved", key="from", exchange="")
    target = to_exchange(bench.client, "amq.topic", "B.x")
    moving = Moving(origin, bench.client, Choice(lambda _: True), target, "moved")
    if way == "a dry move":
        assert [one.reason for one in moving.dry_work()] == [""]
    else:
        assert [queue.name for some in dead_letter_queues(bench.vhost.context) for queue in some] == ["q"]
    assert subscriber.waiting == numbers(1, 5)
    if way == "a dry move":
        Moving(origin, bench.client, Choice(lambda _: True), target, "moved").work()
        assert subscriber.waiting == ["5", "moved"]


def test_a_reload() -> None:
    """Another limit holds at once; none lets all stay."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit": 5}))
    subscriber = Subscriber(bench, "q", consumes=False).bind("#")
    bench.publish(*numbers(1, 10))
    bench.replace(destinations=topics(PRICES_={"pending_message_limit": 2}))
    assert subscriber.waiting == numbers(9, 10)
    bench.replace()
    bench.publish(*numbers(11, 20))
    assert subscriber.waiting == numbers(9, 20)
    bench.replace(destinations=topics(PRICES_X={"pending_message_limit": 1}))
    bench.publish("last")
    assert subscriber.waiting == ["last"]


def test_its_publishers_are_never_held() -> None:
    """Queues page E.4, row 14: neither by a limit of the topic nor by one of the broker."""
    system = SystemUsage(memory=3_000, store=0, temp=0)
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit": 2, "memory_limit": 1_000}), system=system)
    subscriber = Subscriber(bench, "q", consumes=False).bind("#")
    bench.publish(*["x" * 2_000] * 10)
    assert subscriber.queue.ready_count == 2
    memory = [node.used for node in bench.broker.flow.nodes() if node.limit_name == "memory"]
    assert max(memory) < 5_000  # what was evicted is no longer charged


def test_limits_of_a_topic_hold_for_its_subscribers() -> None:
    """Queues page E.2: memory-limit of a topic, without a limit of what waits."""
    bench = Bench(destinations=topics(PRICES_={"memory_limit": 5_000, "cursor": "vm"}))
    subscriber = Subscriber(bench, "q", consumes=False).bind("#")
    route = bench.vhost.router.route("amq.topic", "PRICES.X", bench.user)
    assert route.is_metered
    content = NATIVE.join(encode_header(2_000), bytes(2_000))
    offer = bench.session.publish_with_room(route, Envelope("amq.topic", "PRICES.X"), [content] * 10, mandatory=False)
    assert offer.taken == subscriber.queue.ready_count == 3


def test_nothing_of_it_without_such_settings() -> None:
    """A topic costs nothing where no topic has settings: nobody asks, queues have no state of it."""
    bench = Bench(entry("#", redelivery_delay_ms=5))
    assert not bench.broker.context.settings.concerns_topics
    subscriber = Subscriber(bench, "q", consumes=False).bind("#")
    bench.publish("1")
    assert (subscriber.queue.pending, dict(subscriber.queue.declaration.topics)) == (None, {})
    assert subscriber.queue.takes_plainly
