"""Leased queues, in virtual time: policies for them, at once and for those that exist. Source: behaviour page 3.12."""

from __future__ import annotations

from typing import Any

import pytest
from leased_desk import DLX, LeasedDesk, crowd

from leveret.engine.queues.reconfigure import redeclare
from leveret.operator.command_error import CommandError
from leveret.settings.rows.address_settings import NOTHING_SET


def policy(desk: LeasedDesk, definition: dict[str, Any], *, kind: str = "policies", to: str = "queues") -> None:
    """The policy `p` for all queues; none where the definition is empty."""
    if definition:
        more = {"pattern": "^q$", "definition": definition, "apply-to": to}
        desk.command(kind, action="set", name="p", **more)
    else:
        desk.command(kind, action="clear", name="p")


@pytest.mark.parametrize("is_first", [False, True])
def test_message_ttl(desk: LeasedDesk, is_first: bool) -> None:
    """It feeds Expiration, for messages that arrive later (queues page A.3); the smaller one counts."""
    if is_first:
        policy(desk, {"message-ttl": 1000})
    desk.queue(x_message_ttl=5000, **DLX)
    if not is_first:
        policy(desk, {"message-ttl": 1000})
    desk.publish("a")
    desk.publish("b", expiration="3000")
    policy(desk, {})
    desk.publish("c")
    for after_ms, expected in ((1000, ["a"]), (2000, ["b"]), (2000, ["c"])):
        desk.advance_ms(after_ms)
        assert [got.body for got in desk.dead()] == expected


def test_an_operator_caps_it(desk: LeasedDesk) -> None:
    """An operator policy, below what the queue declares."""
    desk.queue(x_message_ttl=5000)
    policy(desk, {"message-ttl": 1000}, kind="operator-policies")
    desk.publish("a")
    desk.advance_ms(1000)
    assert desk.counts() == (0, 0, 0)


def test_lease_periods(desk: LeasedDesk) -> None:
    """For leases that run, too, as by a reload; the declaration wins over a policy, and holds again without it."""
    desk.queue()
    desk.publish("a")
    desk.must_get()
    policy(desk, {"lease-period": "2s"}, to="leased_queues")
    desk.advance_ms(1999)
    assert desk.counts() == (0, 1, 0)
    desk.advance_ms(1)
    assert desk.counts() == (1, 0, 0)
    policy(desk, {})
    desk.must_get()
    desk.advance_ms(10_000)
    assert desk.counts() == (0, 1, 0)
    desk.queue("own", x_lease_period=500)
    desk.command("policies", action="set", name="o", pattern="^own$", definition={"lease-period": 9000})
    desk.publish("b", key="own")
    desk.must_get("own")
    desk.advance_ms(500)
    assert desk.counts("own") == (1, 0, 0)


def test_a_period_of_what_is_delivered_at_most_once(desk: LeasedDesk) -> None:
    """Until then its place in the backlog is taken, also if it was before the policy."""
    desk.queue(x_semantics="at-most-once")
    desk.subscribe(qos=1)
    desk.publish("a", "b")
    assert desk.bodies() == "a"
    policy(desk, {"lease-period": "2s"}, to="leased_queues")
    desk.advance_ms(1999)
    assert desk.bodies() == ""
    desk.advance_ms(1)
    assert desk.bodies() == "b"


def test_backlogs_and_fairness(desk: LeasedDesk) -> None:
    """Of the queue and the model at once, of a consumer for those that come."""
    desk.declare("q", x_queue_type="amps")
    policy(desk, {"max-backlog-per-consumer": 10, "max-backlog-total": 3, "fairness": "fast"})
    first, second = crowd(desk, 5, 5)
    desk.publish(*"abcdef")
    assert (first.bodies(), second.bodies()) == ("abc", "")
    policy(desk, {"fairness": "round-robin"})
    assert (first.bodies(), second.bodies()) == ("df", "e")


def test_limits_and_dead_letters(desk: LeasedDesk) -> None:
    """How often, and where to."""
    desk.declare("dead")
    desk.queue()
    policy(
        desk,
        {
            "max-deliveries": 2,
            "cancel-limit": 1,
            "leasing": "strict",
            "dead-letter-exchange": "",
            "dead-letter-routing-key": "dead",
            "dead-letter-reasons": "max_deliveries",
            "dead-letter-data": "{{AMPS_REASON}}",
        },
    )
    desk.publish("a", "b")
    desk.nack(desk.must_get())
    assert desk.dead() == []
    for _ in range(2):
        desk.must_get()
        desk.reopen_channel()
    assert [got.body for got in desk.dead()] == ["max_deliveries"]


def test_what_contradicts_the_declaration_is_passed_over(desk: LeasedDesk) -> None:
    """Fairness goes with semantics; no lifetime is 0. The rest of the policy holds."""
    desk.queue(x_semantics="at-most-once")
    policy(desk, {"fairness": "fast", "message-ttl": 0, "max-backlog-total": 1})
    consumers = crowd(desk, 5, 5)
    desk.publish("a", "b")
    assert [consumer.bodies() for consumer in consumers] == ["a", ""]


def test_those_for_other_queues(desk: LeasedDesk) -> None:
    """A policy with a key that leased queues do not have does not apply to them, and theirs to no other queue."""
    desk.queue()
    desk.declare("plain")
    policy(desk, {"max-length": 1, "max-backlog-total": 1})
    desk.command("policies", action="set", name="s", pattern="plain", definition={"lease-period": 1000})
    assert desk._facts("q")["policy"] is None and desk._facts("plain")["policy"] is None


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"lease-period": "1h30m"}, "is not a valid lease-period"),
        ({"lease-period": 0}, "is not a valid lease-period"),
        ({"max-backlog-total": "many"}, "is not a valid max-backlog-total"),
        ({"fairness": "fair"}, "is not a valid fairness"),
        ({"queue-filter": "/a = 1"}, "are not recognised policy settings"),
        ({"semantics": "at-most-once"}, "are not recognised policy settings"),
    ],
)
def test_wrong_ones(desk: LeasedDesk, definition: dict[str, Any], text: str) -> None:
    """Refused, as others are; what a queue tracks is its own."""
    with pytest.raises(CommandError, match=text):
        policy(desk, definition)


def test_they_are_explained(desk: LeasedDesk) -> None:
    """With the policy that gave them."""
    desk.queue(x_message_ttl=5000)
    policy(desk, {"lease-period": "30s", "message-ttl": 1000})
    (answer,) = desk.command("explain", name="q")
    rows = {row["name"]: (row["value"], row["rule"]) for row in answer["rows"]}
    assert rows["lease-period"] == (30_000, "policy 'p'") and rows["message-ttl"] == (1000, "policy 'p'")
    assert rows["max-backlog-per-consumer"] == (1000, "queue argument (x-max-backlog-per-consumer)")


def test_a_policy_in_the_configuration() -> None:
    """For a queue that it declares, too."""
    desk = LeasedDesk(
        '[[queue]]\nname = "q"\ntype = "amps"\n'
        '[[policy]]\nname = "p"\npattern = "q"\napply-to = "leased_queues"\ndefinition = { lease-period = "1s" }\n'
    )
    desk.publish("a")
    desk.must_get()
    desk.advance_ms(1000)
    assert desk.counts() == (1, 0, 0)


def test_a_queue_without_a_target_depth_has_no_inactive_messages(desk: LeasedDesk) -> None:
    """Its configuration names none now: a consumer that waits gets all (queues page C.6)."""
    desk.queue(x_target_depth=1000, x_max_backlog_per_consumer=2000)
    desk.publish(*("{}" for _ in range(1005)))
    desk.subscribe(qos=2000)
    assert len(desk.taken()) == 1000
    queue = desk.pair.broker.virtual_hosts["/"].queues.named("q")
    arguments = {key: value for key, value in queue.declaration.arguments.items() if key != "x-target-depth"}
    redeclare(queue, arguments, NOTHING_SET)
    desk.pair.end_turn()
    desk.listen()
    assert len(desk.taken()) == 5
