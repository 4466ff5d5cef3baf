"""What a leased queue does where nothing is declared, and what is refused, in virtual time. Source: queues page A.3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from desk import Refused
from leased_desk import DLX, LeasedDesk, ask, crowd, numbered, one

from leveret.settings.leases.element_values import HUNDRED_YEARS_MS
from leveret.settings.leases.leased_settings import CONDITIONS, ELEMENTS

#: Nothing but the type.
PLAIN: dict[str, Any] = {"x_queue_type": "amps"}


def topic(desk: LeasedDesk) -> None:
    """UnderlyingTopic: the queue's name. DefaultPublishTarget: the underlying topic."""
    desk.declare("q", **PLAIN)
    desk.declare("r", **PLAIN, x_underlying_topic="T")
    desk.publish("a", key="q")
    desk.publish("b", key="r")
    desk.publish("c", key="T")
    assert [desk.must_get("q").headers["x-topic"], *(desk.must_get("r").headers["x-topic"] for _ in "bc")] == [
        "q", "T", "T"]  # fmt: skip
    assert desk.all("q") == desk.all("r") == ""


def lease_period(desk: LeasedDesk) -> None:
    """LeasePeriod: a lease does not end by time (what does is the timeout of acknowledgements, 30 minutes)."""
    desk.declare("q", **PLAIN)
    desk.publish("a")
    got = desk.must_get()
    desk.advance_ms(29 * 60_000)
    assert desk.counts() == (0, 1, 0) and "x-lease-until" not in got.headers


def semantics(desk: LeasedDesk) -> None:
    """Semantics: at least once."""
    desk.declare("q", **PLAIN)
    desk.publish("a")
    desk.must_get()
    desk.reopen_channel()
    assert desk.must_get().redelivered


def max_backlog(desk: LeasedDesk) -> None:
    """MaxBacklog: no limit, beside that of each consumer."""
    desk.declare("q", **PLAIN)
    desk.publish(*(str(number) for number in range(50)))
    assert [desk.must_get().body for _ in range(50)] == [str(number) for number in range(50)]


def backlog_of_a_consumer(desk: LeasedDesk) -> None:
    """MaxPerSubscriptionBacklog: 1, whatever a consumer asks for."""
    desk.declare("q", **PLAIN)
    desk.publish(*"abcdef")
    consumers = [desk.other().subscribe(qos=qos) for qos in (None, 0, 50)]
    consumers.append(desk.other().subscribe(x_max_backlog=50))
    assert [consumer.bodies() for consumer in consumers] == ["a", "b", "c", "d"]


def expiration(desk: LeasedDesk) -> None:
    """Expiration: never, unless the message has one (ExpirationModel: default)."""
    desk.declare("q", **PLAIN)
    desk.declare("r", **PLAIN, x_message_ttl=500)
    for queue in "qr":
        desk.publish("a", key=queue)
        desk.publish("b", key=queue, expiration="1000")
    desk.advance_ms(999)
    assert (desk.counts("q")[0], desk.counts("r")[0]) == (2, 1)
    desk.advance_ms(HUNDRED_YEARS_MS / 2)
    assert (desk.counts("q")[0], desk.counts("r")[0]) == (1, 0)


def expire_leased(desk: LeasedDesk) -> None:
    """Ours: what is leased expires at once."""
    desk.declare("q", **PLAIN)
    desk.publish("a", expiration="1000")
    desk.must_get()
    desk.advance_ms(1000)
    assert desk.counts() == (0, 0, 0)


def dead_letters(desk: LeasedDesk) -> None:
    """Ours: dead letters for all reasons, with their own bodies."""
    desk.queue(x_max_deliveries=1, x_message_ttl=1000, **DLX)
    desk.publish("a", "b")
    desk.must_get()
    desk.nack(desk.must_get(), requeue=False)
    desk.reopen_channel()
    desk.publish("c")
    desk.advance_ms(1000)
    dead = [(got.body, got.headers["x-amps-reason"]) for got in desk.dead()]
    assert dead == [("b", "forced_expire"), ("a", "max_deliveries"), ("c", "time_limit")]


def queue_filter(desk: LeasedDesk) -> None:
    """Filter: all messages. MessageType: json, of which a body that is none is captured, too."""
    desk.declare("q", **PLAIN)
    assert desk.publish('{"a": 1}', "no json", "", mandatory=True) == ["ack"] * 3
    assert desk.counts()[0] == 3


def fairness(desk: LeasedDesk) -> None:
    """FairnessModel: proportional; at most once, round-robin."""
    for name, semantics, expected in (("q", "at-least-once", ["1", "234"]), ("r", "at-most-once", ["13", "24"])):
        desk.queue(name, x_semantics=semantics)
        consumers = [desk.other().subscribe(name, qos=limit) for limit in (2, 100)]
        desk.publish(*"1234", key=name)
        assert [consumer.bodies() for consumer in consumers] == expected


def leasing(desk: LeasedDesk) -> None:
    """Leasing: sublet, so that anybody may acknowledge what somebody holds."""
    desk.declare("q", **PLAIN)
    desk.publish("a")
    got = desk.must_get()
    assert ask(desk, queue="q", bookmark=got.headers["x-bookmark"])["records_deleted"] == 1


def limits(desk: LeasedDesk) -> None:
    """MaxDeliveries, MaxCancels: no maximum."""
    desk.declare("q", **PLAIN)
    desk.publish("a")
    for count in range(100):
        got = desk.must_get()
        assert (got.headers["x-delivery-count"], got.headers["x-cancel-count"]) == (count + 1, count)
        desk.nack(got)


def order(desk: LeasedDesk) -> None:
    """Priority, BarrierExpression: none; the order is that of arrival, and everything is delivered."""
    desk.queue()
    bodies = ['{"priority": 1}', '{"isSyncPoint": true}', '{"priority": 9}']
    for at, body in enumerate(bodies):
        desk.publish(body, priority=at)
    assert [desk.must_get().body for _ in bodies] == bodies


def depth(desk: LeasedDesk) -> None:
    """TargetQueueDepth: all messages are active."""
    desk.queue()
    for number in range(1100):
        desk.publish(numbered(number))
    assert desk.declare(passive=True) == 1100
    assert one(desk.other().subscribe(x_filter="/n = 1099")).body == numbered(1099)


def test_the_two_that_ask_for_nothing(desk: LeasedDesk) -> None:
    """x-max-backlog = 0 asks for barriers alone, not for the default (queues page A.4)."""
    desk.queue()
    crowd_of_one = crowd(desk, 5)
    silent = desk.other().subscribe(qos=5, x_max_backlog=0)
    desk.publish(*"abcdefgh")
    assert (crowd_of_one[0].bodies(), silent.bodies()) == ("abcde", "")
    assert desk.counts() == (3, 5, 0)


#: Argument -> the row of its default.
ROWS: dict[str, Callable[[LeasedDesk], None]] = {
    "x-underlying-topic": topic,
    "x-default-publish-target": topic,
    "x-lease-period": lease_period,
    "x-semantics": semantics,
    "x-max-backlog-total": max_backlog,
    "x-max-backlog-per-consumer": backlog_of_a_consumer,
    "x-message-ttl": expiration,
    "x-expiration-model": expiration,
    "x-expire-leased": expire_leased,
    "x-dead-letter-reasons": dead_letters,
    "x-dead-letter-data": dead_letters,
    "x-message-type": queue_filter,
    "x-queue-filter": queue_filter,
    "x-fairness": fairness,
    "x-leasing": leasing,
    "x-max-deliveries": limits,
    "x-cancel-limit": limits,
    "x-priority-expr": order,
    "x-barrier-expr": order,
    "x-target-depth": depth,
}
#: Shown elsewhere: what rules the log and what is deferred, by tests of the journal; what is for a cluster, by those
#: of the loader.
ELSEWHERE = {
    "x-recovery-point", "x-file-backed", "x-deferred-ack-ttl", "x-replication", "x-initial-owner", "x-queue-domain",
}  # fmt: skip


def test_each_argument_has_its_row() -> None:
    """Of the table of elements, which queues page A.3 has."""
    assert set(ROWS) | ELSEWHERE == {element.argument for element in ELEMENTS}


@pytest.mark.parametrize("row", dict.fromkeys(ROWS.values()), ids=lambda row: row.__name__)
def test_defaults(desk: LeasedDesk, row: Callable[[LeasedDesk], None]) -> None:
    """As a client sees it (queues page A.3)."""
    row(desk)


#: What a client can do wrong -> the code in the text of the 406.
FAULTS: list[tuple[str, str, dict[str, Any]]] = [
    ("E-MTYPE", "q", {"x_message_type": "yaml"}),
    ("E-DPT-REQUIRED", "q", {"x_underlying_topic": "^A.*"}),  # queues page, row A06
    ("E-DPT-OUTSIDE", "q", {"x_underlying_topic": "^A", "x_default_publish_target": "B"}),  # queues page, row A07
    ("E-REGEX", "q", {"x_underlying_topic": "(A", "x_default_publish_target": "B"}),
    ("E-ENUM", "q", {"x_leasing": "Strict"}),
    ("E-INT", "q", {"x_max_backlog_total": "many"}),
    ("E-MIN", "q", {"x_target_depth": 999}),  # queues page, row A62
    ("E-MIN", "q", {"x_max_backlog_total": 0}),
    ("E-DUR", "q", {"x_lease_period": 0}),
    ("E-DUR", "q", {"x_deferred_ack_ttl": -1}),
    ("E-EXPR", "q", {"x_queue_filter": "/t > UNIX_TIMESTAMP()"}),  # queues page, row A09
    ("E-EXPR", "q", {"x_priority_expr": "NO_SUCH(/p)"}),
    ("E-EXPR", "q", {"x_barrier_expr": "/b ="}),
    ("E-EXCL", "q", {"x_priority_expr": "/p", "x_barrier_expr": "/b"}),  # queues page, row A54
    ("E-EXCL", "q", {"x_priority_expr": "/p", "x_target_depth": 1000}),  # queues page, row A54
    ("E-FBM", "q", {"x_file_backed": "yes"}),  # queues page, row A77
    ("E-OWNER-REQUIRED", "q", {"x_replication": "group"}),  # queues page, row A75
    ("E-OWNER-TAG", "q", {"x_initial_owner": "n"}),
    ("E-OWNER-TAG", "q", {"x_queue_domain": "D", "x_replication": "distributed"}),
    ("E-RP", "q", {"x_recovery_point": "yesterday"}),
    ("E-RP-UNKNOWN", "q", {"x_recovery_point": "1|77|"}),
    ("E-RP-UNKNOWN", "q", {"x_recovery_point": "7|1|"}),
    ("E-NAME", "q", {"x_underlying_topic": ""}),
    ("E-SCOPE", "q", {"x_queue_scope": "n1"}),
]
#: Those that only files can have: tests/settings/test_amps_xml.py; of several nodes: tests/engine/test_scopes.py.
OF_FILES = {"E-MISMATCH", "E-MTYPE-MISMATCH", "E-TXLOG", "E-REPL-LOCAL", "E-DUP-ELEM", "E-UNKNOWN"}


@pytest.mark.parametrize(("code", "name", "arguments"), FAULTS)
def test_refused_declarations(desk: LeasedDesk, code: str, name: str, arguments: dict[str, Any]) -> None:
    """406 with the code in the text; the queue is not there (queues page A.3.2)."""
    with pytest.raises(Refused) as caught:
        desk.declare(name, **PLAIN, **arguments)
    assert caught.value.code == 406 and f"{code}: {CONDITIONS[code]}" in caught.value.text
    assert not desk.exists("q")
    desk.declare(name, **PLAIN)


def test_each_fault_is_shown() -> None:
    """None of queues page A.3.2 is without a row."""
    assert {code for code, _, _ in FAULTS} | OF_FILES == set(CONDITIONS)
