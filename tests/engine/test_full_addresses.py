"""What a full address does with a message, by its policy and its limits, and when the policy changes while it runs.

Address-settings page 3.3; virtual time. A is an ack, N a nack; what is held has no answer.
"""

from __future__ import annotations

import pytest
from flow_bench import FlowBench, Publisher, make_content, saying

from leveret.engine import reconfigure
from leveret.engine.messages.field_table import Field
from leveret.settings import NO_WHOLE_LIMITS, WholeLimits
from leveret.testing.harness import Harness

#: Octets of each message of this page.
SIZE = 500


def published(bench: FlowBench, count: int) -> tuple[str, int, int]:
    """Of so many messages: what was confirmed, how many are in the queue, how many are held."""
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(SIZE)] * count)
    return publisher.outcomes(), bench.q.ready_count, len(publisher.wants)


@pytest.mark.parametrize(
    ("settings", "answers", "kept", "held"),
    [
        ({"address_full_policy": "BLOCK"}, "AAAAAA", 6, 0),
        ({"address_full_policy": "BLOCK", "max_size_messages": 4}, "AAAA", 4, 2),
        ({"address_full_policy": "BLOCK", "max_size_bytes": 4 * SIZE}, "AAAA", 4, 2),
        ({"address_full_policy": "BLOCK", "max_size_bytes": 4 * SIZE, "max_size_messages": 3}, "AAA", 3, 3),
        ({"address_full_policy": "BLOCK", "max_size_messages": 0}, "A", 1, 5),
        ({"address_full_policy": "FAIL", "max_size_messages": 4}, "AAAANN", 4, 0),
        ({"address_full_policy": "FAIL", "max_size_bytes": 4 * SIZE}, "AAAANN", 4, 0),
        ({"address_full_policy": "FAIL", "max_size_bytes": 0}, "NNNNNN", 0, 0),
        ({"address_full_policy": "DROP", "max_size_messages": 4}, "AAAAAA", 4, 0),
        ({"address_full_policy": "DROP", "max_size_bytes": 4 * SIZE}, "AAAAAA", 4, 0),
        ({"address_full_policy": "PAGE", "max_size_messages": 4}, "AAAAAA", 6, 0),
        ({"max_size_bytes": 0}, "AAAAAA", 6, 0),
    ],
)
def test_each_policy(settings: dict[str, object], answers: str, kept: int, held: int) -> None:
    """The limit is looked at before a message comes in; what reaches it first makes the address full."""
    assert published(FlowBench(**settings), 6) == (answers, kept, held)


@pytest.mark.parametrize(
    ("settings", "answers", "kept", "held"),
    [
        ({"max_size_bytes_reject_threshold": 3 * SIZE}, "AAAANN", 4, 0),
        ({"max_size_bytes_reject_threshold": 3 * SIZE - 1}, "AAANNN", 3, 0),
        ({"max_size_bytes_reject_threshold": 0}, "ANNNNN", 1, 0),
        ({"max_size_bytes_reject_threshold": 3 * SIZE, "max_size_bytes": 5 * SIZE}, "AAAANN", 4, 0),
        ({"max_size_bytes_reject_threshold": 5 * SIZE, "max_size_bytes": 3 * SIZE}, "AAA", 3, 3),
        ({"max_size_bytes_reject_threshold": 3 * SIZE, "address_full_policy": "PAGE"}, "AAAAAA", 6, 0),
        ({"max_size_bytes_reject_threshold": -1}, "AAAAAA", 6, 0),
    ],
)
def test_above_the_reject_threshold(settings: dict[str, object], answers: str, kept: int, held: int) -> None:
    """An address that blocks refuses above its threshold; what it holds below that, it goes on holding."""
    assert published(FlowBench(**{"address_full_policy": "BLOCK", **settings}), 6) == (answers, kept, held)


def test_what_was_not_held_up_brings_an_address_above_its_threshold() -> None:
    """Messages that the broker itself publishes go over the limit; then publishers are refused and not held."""
    limits = {"max_size_bytes": SIZE, "max_size_bytes_reject_threshold": 2 * SIZE}
    bench = FlowBench(address_full_policy="BLOCK", **limits)
    held = Publisher(bench, "held")
    held.publish(*[make_content(SIZE)] * 2)
    assert (held.outcomes(), len(held.wants)) == ("A", 1)
    to_q = {"x_dead_letter_exchange": Field("S", b""), "x_dead_letter_routing_key": Field("S", b"q")}
    bench.queue("dying", x_max_length=Field("l", 0), **to_q)
    source = Publisher(bench, "source")
    source.publish(*[make_content(SIZE)] * 2, to="dying")
    bench.end_turn()
    assert bench.q.ready_count == 3
    refused = Publisher(bench, "refused")
    refused.publish(make_content(SIZE))
    assert refused.outcomes() == "N"
    bench.take(3)
    assert held.outcomes() == "A"


@pytest.mark.parametrize(
    ("whole", "settings", "answers", "kept", "held"),
    [
        (WholeLimits(messages_max=4), {"address_full_policy": "BLOCK"}, "A", 1, 2),
        (WholeLimits(octets_max=4 * SIZE), {"address_full_policy": "BLOCK"}, "A", 1, 2),
        (WholeLimits(messages_max=4), {"address_full_policy": "FAIL"}, "ANN", 1, 0),
        (WholeLimits(octets_max=4 * SIZE), {"address_full_policy": "FAIL"}, "ANN", 1, 0),
        (WholeLimits(messages_max=4), {"address_full_policy": "DROP"}, "AAA", 1, 0),
        (WholeLimits(octets_max=4 * SIZE), {"address_full_policy": "DROP"}, "AAA", 1, 0),
        (WholeLimits(messages_max=4), {}, "AAA", 3, 0),
        (WholeLimits(messages_max=4), {"address_full_policy": "FAIL", "max_size_messages": 9}, "ANN", 1, 0),
        (WholeLimits(messages_max=9), {"address_full_policy": "FAIL", "max_size_messages": 1}, "ANN", 1, 0),
        (WholeLimits(messages_max=4), {"address_full_policy": "DROP", "default_ring_size": 9}, "AAA", 1, 0),
    ],
)
def test_all_addresses_together(
    whole: WholeLimits, settings: dict[str, object], answers: str, kept: int, held: int
) -> None:
    """With three messages in another queue, of four that the broker may hold; room comes when that queue has some."""
    bench = FlowBench(whole=whole, **settings)
    other = bench.queue("other")
    Publisher(bench, "first").publish(*[make_content(SIZE)] * 3, to="other")
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(SIZE)] * 3)
    assert (publisher.outcomes(), bench.q.ready_count, len(publisher.wants)) == (answers, kept, held)
    bench.take(3, other)
    assert publisher.outcomes() == "A" * held
    publisher.publish(make_content(SIZE))
    assert publisher.outcomes() == ("N" if "max_size_messages" in settings and whole.messages_max == 9 else "A")


@pytest.mark.parametrize("whole", [WholeLimits(messages_max=0), WholeLimits(octets_max=0)])
def test_a_limit_of_zero_on_all_is_reached_by_the_first_message(whole: WholeLimits) -> None:
    """It is the lowest limit, and not none."""
    assert published(FlowBench(whole=whole, address_full_policy="FAIL"), 3) == ("ANN", 1, 0)


@pytest.mark.parametrize("before", [NO_WHOLE_LIMITS, WholeLimits(octets_max=1 << 30)], ids=["alone", "in its place"])
@pytest.mark.parametrize("policy", ["BLOCK", "FAIL", "DROP"])
def test_a_limit_on_all_comes_and_goes(policy: str, before: WholeLimits) -> None:
    """It is live: what is there is counted when it comes, and what is held goes on when it is gone."""
    bench = FlowBench(whole=before, address_full_policy=policy)
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(SIZE)] * 3)
    bench.configure(whole=WholeLimits(messages_max=3), address_full_policy=policy)
    publisher.publish(*[make_content(SIZE)] * 2)
    assert bench.q.ready_count == 3
    assert publisher.outcomes() == {"BLOCK": "AAA", "FAIL": "AAANN", "DROP": "AAAAA"}[policy]
    bench.configure(address_full_policy=policy)
    assert bench.q.ready_count == (5 if policy == "BLOCK" else 3)
    assert not bench.broker.flow.nodes()
    publisher.publish(make_content(SIZE))
    assert publisher.outcomes()[-1] == "A"


@pytest.mark.parametrize(
    ("settings", "answers", "kept"),
    [
        ({"page_limit_messages": 2, "page_full_policy": "DROP"}, "AAAAAA", 4),
        ({"page_limit_messages": 2, "page_full_policy": "FAIL"}, "AAAANN", 4),
        ({"page_limit_bytes": 2 * SIZE, "page_full_policy": "DROP"}, "AAAAAA", 4),
        ({"page_limit_bytes": 2 * SIZE, "page_full_policy": "FAIL"}, "AAAANN", 4),
        ({"page_limit_bytes": 2 * SIZE, "page_limit_messages": 1, "page_full_policy": "FAIL"}, "AAANNN", 3),
        ({"page_limit_messages": 2}, "AAAAAA", 6),
        ({"page_full_policy": "FAIL"}, "AAAAAA", 6),
        ({"page_limit_messages": 2, "page_full_policy": "FAIL", "max_size_messages": -1}, "AAAAAA", 6),
        ({"page_limit_messages": 2, "page_full_policy": "FAIL", "address_full_policy": "BLOCK"}, "AA", 2),
    ],
)
def test_limits_on_what_is_paged(settings: dict[str, object], answers: str, kept: int) -> None:
    """They count what an address holds beyond its size, which is two messages here, wherever that is."""
    sizes = {"max_size_messages": 2, "max_size_bytes": 2 * SIZE}
    bench = FlowBench(**{**sizes, **settings})
    assert published(bench, 6)[:2] == (answers, kept)
    bench.take(1)
    if answers != "AA":
        assert published(bench, 1)[0] == "A"


def test_nothing_configured_meters_nothing() -> None:
    """Also not the policies alone, nor limits on messages that are dropped."""
    drops = {"address_full_policy": "DROP"}
    for settings in ({}, drops, {"address_full_policy": "PAGE"}, drops | {"max_size_messages": 5}):
        bench = FlowBench(**settings)
        assert bench.q.meter is None
        assert bench.q.takes_plainly is ("max_size_messages" not in settings)
        assert bench.q.pageable.share.cap is None
        assert not bench.broker.flow.nodes()


def test_what_is_held_meets_a_ring() -> None:
    """All is taken, and the newest stay."""
    bench = FlowBench(address_full_policy="BLOCK", max_size_messages=40)
    publisher = Publisher(bench, "p")
    publisher.publish(*(saying(str(number)) for number in range(80)))
    reconfigure.set_ring_size(bench.q, 8)
    bench.configure()
    assert publisher.outcomes() == "A" * 80
    assert len(bench.q.store) == 40  # a resized ring shrinks with what is consumed
    bench.take(38)
    publisher.publish(*(saying(str(number)) for number in range(80, 96)))
    assert bench.bodies() == [b"%d" % number for number in range(88, 96)]


FULL = '[[address-setting]]\nmatch = "full"\nmax-size-messages = 2\naddress-full-policy = "BLOCK"\n'
DYING = '[[address-setting]]\nmatch = "dying"\nexpiry-address = "full"\n'
UNROUTABLE = '[[address-setting]]\nmatch = "no.queue"\ndead-letter-address = "full"\nsend-to-dla-on-no-route = true\n'
DIVERT = '[[divert]]\nname = "d"\naddress = "from"\nforwarding-address = "full"\n'


@pytest.mark.parametrize(
    ("settings", "key", "properties"),
    [
        (DYING, "dying", {"expiration": "0"}),
        (UNROUTABLE, "no.queue", {}),
        (DIVERT, "from", {}),
        (DIVERT, "from", {"headers": {"x-delay": 0}}),
        ("enable-ingress-timestamp = true\n" + DIVERT, "from", {}),
    ],
    ids=["dead letter", "unroutable", "diverted", "diverted with a header", "diverted to rules"],
)
def test_what_the_broker_itself_publishes_over_a_limit_is_counted(
    settings: str, key: str, properties: dict[str, object]
) -> None:
    """Dead letters, unroutable messages, diverted ones: they wait for no room, so a full address takes them."""
    harness = Harness(FULL + settings)
    harness.queue("full")
    if key != "no.queue":
        harness.queue(key)
    for over in (0, 0, 1, 2, 3):
        harness.publish("x", key=key, **properties)
        assert harness.broker.flow.over_limit == over
    assert harness.named("full").ready_count == 5
    harness.take(4, "full")
    harness.publish("x", key=key, **properties)
    assert harness.broker.flow.over_limit == 3


def test_retained_messages_over_a_limit_are_counted() -> None:
    """A new queue gets all messages that its address retains, and none of the queues of other addresses counts."""
    harness = Harness(FULL.replace('"full"', '"news"') + "retroactive-message-count = 5\n")
    harness.vhost.exchanges.declare("news", "fanout", client=None)
    harness.publish(*"ABCDE", exchange="news", key="")
    harness.queue("elsewhere")
    harness.bind("elsewhere", "news")
    assert harness.broker.flow.over_limit == 0
    harness.queue("news")
    harness.bind("news", "news")
    assert (harness.all("news"), harness.broker.flow.over_limit) == ("ABCDE", 3)


def test_what_waits_for_room_is_not_counted_as_over_a_limit() -> None:
    bench = FlowBench(address_full_policy="BLOCK", max_size_messages=2)
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(SIZE)] * 5)
    bench.take(2)
    bench.take(1)
    assert (publisher.outcomes(), len(publisher.wants), bench.broker.flow.over_limit) == ("AAAAA", 0, 0)
