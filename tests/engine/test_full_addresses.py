"""What a full address does with a message, by its policy and its limits, and when the policy changes while it runs.

Address-settings page 3.3; virtual time. A is an ack, N a nack; what is held has no answer.
"""

from __future__ import annotations

import pytest
from flow_bench import FlowBench, Publisher, make_content, saying

from leveret.engine import Message, reconfigure
from leveret.engine.messages.content import PLAIN
from leveret.engine.messages.field_table import Field
from leveret.settings import WholeLimits

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


@pytest.mark.parametrize("policy", ["BLOCK", "FAIL", "DROP"])
def test_a_limit_on_all_comes_and_goes(policy: str) -> None:
    """It is live: what is there is counted when it comes, and what is held goes on when it is gone."""
    bench = FlowBench(address_full_policy=policy)
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


class Four:
    """Four publishers that take turns, and what becomes of their messages `0:0`, `0:1` ... `3:9`."""

    def __init__(self, bench: FlowBench) -> None:
        self.bench = bench
        self.all = [Publisher(bench, f"p{number}") for number in range(4)]
        self._next = 0

    def publish(self, each: int) -> list[str]:
        """So many messages of each. Returns how each publisher was answered."""
        for number in range(self._next, self._next + each):
            for index, publisher in enumerate(self.all):
                publisher.publish(saying(f"{index}:{number}"))
        self._next += each
        return self.answers()

    def answers(self) -> list[str]:
        """Since this was last asked."""
        self.bench.end_turn()
        return [publisher.outcomes() for publisher in self.all]

    @property
    def held(self) -> int:
        """Messages of all of them."""
        return sum(len(publisher.wants) for publisher in self.all)


def ready(bench: FlowBench) -> list[str]:
    """The bodies in the queue, in order. Nothing can leave memory."""
    behind = [part for part in bench.q.store.paged_parts() if isinstance(part, Message)]
    return [PLAIN.split(message.content)[1].decode() for message in (*bench.q.store, *behind)]


def numbers(first: int, last: int) -> list[str]:
    """The bodies that four publishers in turn make of these numbers."""
    return [f"{index}:{number}" for number in range(first, last) for index in range(4)]


def test_a_policy_that_changes_live() -> None:
    """Each promises what it does when it is the first: four publishers, a limit of 40 messages, a ring of 1,000."""
    bench = FlowBench(address_full_policy="FAIL", max_size_messages=40)
    four = Four(bench)
    assert four.publish(20) == ["A" * 10 + "N" * 10] * 4
    bench.configure(address_full_policy="DROP", max_size_messages=40)
    assert four.publish(20) == ["A" * 20] * 4
    assert ready(bench) == numbers(0, 10)
    bench.configure(address_full_policy="PAGE", max_size_messages=40)
    assert four.publish(20) == ["A" * 20] * 4
    assert ready(bench) == numbers(0, 10) + numbers(40, 60)
    bench.configure(address_full_policy="BLOCK", max_size_messages=40)
    assert four.publish(20) == [""] * 4
    assert (len(bench.q.store), four.held) == (120, 80)
    bench.take(120)  # in between held ones come in, whenever 38 or fewer are left
    assert four.held == 0 or len(bench.q.store) == 40
    while four.held:
        bench.take(4)
    assert four.answers() == ["A" * 20] * 4
    in_order = [[body for body in ready(bench) if body.startswith(f"{index}:")] for index in range(4)]
    assert in_order == [sorted(bodies, key=lambda body: int(body[2:])) for bodies in in_order]
    reconfigure.set_ring_size(bench.q, 1000)
    bench.configure()
    assert four.publish(500) == ["A" * 500] * 4
    assert ready(bench) == numbers(80, 580)[-1000:]


@pytest.mark.parametrize(
    ("policy", "answers", "kept"),
    [("FAIL", "N" * 10, 40), ("DROP", "A" * 10, 40), ("PAGE", "A" * 10, 80), ("BLOCK", "", 40)],
)
def test_what_is_held_meets_the_next_policy(policy: str, answers: str, kept: int) -> None:
    """Held publishes are let go: taken, refused or dropped as the policy says that holds then."""
    bench = FlowBench(address_full_policy="BLOCK", max_size_messages=40)
    four = Four(bench)
    four.publish(10)
    assert four.publish(10) == [""] * 4
    bench.configure(address_full_policy=policy, max_size_messages=40)
    assert four.answers() == [answers] * 4
    assert len(bench.q.store) == kept
    assert four.held == (40 if policy == "BLOCK" else 0)


def test_what_is_held_meets_a_ring() -> None:
    """All is taken, and the newest stay."""
    bench = FlowBench(address_full_policy="BLOCK", max_size_messages=40)
    four = Four(bench)
    four.publish(20)
    reconfigure.set_ring_size(bench.q, 8)
    bench.configure()
    assert four.answers() == ["A" * 10] * 4
    assert len(bench.q.store) == 40  # a resized ring shrinks with what is consumed
    bench.take(38)
    four.publish(4)
    assert ready(bench) == numbers(20, 24)[-8:]
