"""Leased queues, in virtual time: acknowledgements of messages that have not come. Source: queues page C.6, G.A."""

from __future__ import annotations

from typing import Any

import pytest
from leased_desk import BARRIER, DLX, SYNC, LeasedDesk, ask, numbered

from leveret.engine.leases import deferred_acks
from leveret.operator.command_error import CommandError


def next_bookmarks(desk: LeasedDesk, count: int = 1) -> str:
    """Of the messages that come next."""
    first = desk.pair.broker.context.next_id
    return ",".join(f"1|{first + at}|" for at in range(count))


def defer(desk: LeasedDesk, bookmarks: str, queue: str = "q") -> int:
    """Acknowledge; nothing was there. Returns how many are remembered."""
    done = desk.command("discard", queue=queue, bookmark=bookmarks)
    assert (done["matches"], done["deleted"]) == (0, 0)
    return int(done["deferred"])


@pytest.mark.parametrize(("after_ms", "is_delivered"), [(1999, False), (2000, True), (3000, True)])
def test_a67(desk: LeasedDesk, after_ms: int, is_delivered: bool) -> None:
    """Queues page, row A67: a message that was acknowledged before it came is never delivered, in time."""
    desk.queue(x_deferred_ack_ttl=2000)
    desk.subscribe()
    answer = ask(desk, queue="q", bookmark=next_bookmarks(desk, 20))
    assert answer == {"status": "success", "matches": 0, "topic_matches": 0, "records_deleted": 0, "deferred": 20}
    assert desk._facts("q")["deferred_acks"] == 20
    desk.advance_ms(after_ms)
    assert desk.publish("m", mandatory=True) == ["ack"]
    assert desk.bodies() == ("m" if is_delivered else "")
    assert desk.counts() == (0, int(is_delivered), 0)
    assert desk.counter("acknowledged") == (not is_delivered)
    assert desk._facts("q")["deferred_acks"] == (0 if is_delivered else 19)


def test_for_a_day(desk: LeasedDesk) -> None:
    """DeferredAckExpiration, where nothing is declared (queues page A.3)."""
    desk.queue()
    day = 86_400_000
    assert defer(desk, next_bookmarks(desk)) == 1
    desk.advance_ms(day - 1)
    desk.publish("a")
    assert defer(desk, next_bookmarks(desk)) == 1
    desk.advance_ms(day)
    desk.publish("b")
    assert desk.all() == "b"


def test_each_queue_for_itself(desk: LeasedDesk) -> None:
    """The other one that captures the message has it; what is remembered is so once (queues page C.6)."""
    desk.queue()
    desk.queue("twin", x_underlying_topic="q")
    bookmark = next_bookmarks(desk)
    assert defer(desk, f"{bookmark},{bookmark}") == 1
    desk.publish("a", "b")
    assert (desk.all("q"), desk.all("twin")) == ("b", "ab")


def test_what_is_gone_is_not_remembered(desk: LeasedDesk) -> None:
    """It does not come again."""
    desk.queue()
    desk.publish("a", "b")
    bookmark = desk.must_get().headers["x-bookmark"]
    desk.ack(1)
    assert defer(desk, bookmark) == 0
    assert desk.all() == "b"


@pytest.mark.parametrize("option", ["cancel", "expire"])
def test_only_acknowledgements_are_remembered(desk: LeasedDesk, option: str) -> None:
    """Cancels and expiries are of what is there."""
    desk.queue(**DLX)
    done = desk.command("discard", queue="q", bookmark=next_bookmarks(desk), option=option)
    assert done["deferred"] == 0
    desk.publish("a")
    assert desk.all() == "a" and desk.dead() == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"x_priority_expr": "/p"},
        BARRIER,
        {"x_message_ttl": 1000},
        {"x_semantics": "at-most-once"},
        {"x_leasing": "strict"},
    ],
    ids=str,
)
def test_kinds_of_queues(desk: LeasedDesk, arguments: dict[str, object]) -> None:
    """Ranks, barriers, lifetimes, semantics: it is gone as it comes, also for a consumer that waits."""
    desk.queue(**arguments)
    desk.other().subscribe(x_filter="/p = 7")
    desk.subscribe(qos=5)
    defer(desk, next_bookmarks(desk))
    desk.publish(SYNC if arguments is BARRIER else '{"p": 7}', '{"p": 1}')
    assert desk.bodies() == '{"p": 1}'


def test_a_message_that_may_not_wait(desk: LeasedDesk) -> None:
    """Nobody gets it, though it is handed out as it comes."""
    desk.queue(**DLX)
    desk.subscribe()
    defer(desk, next_bookmarks(desk))
    desk.publish("a", expiration="0")
    assert desk.bodies() == "" and desk.dead() == []


def test_messages_that_wait_for_their_time(desk: LeasedDesk) -> None:
    """They are here; their acknowledgement has no end (queues page C.6)."""
    desk.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    desk.queue(x_deferred_ack_ttl=1)
    desk.bind("q", "later")
    bookmarks = next_bookmarks(desk)
    for body in "ab":
        desk.publish(body, exchange="later", headers={"x-delay": 5000})
    assert desk.counts() == (0, 0, 2)
    assert defer(desk, bookmarks) == 1
    desk.advance_ms(5000)
    assert desk.all() == "b"


def test_messages_that_are_not_active(desk: LeasedDesk) -> None:
    """Beyond TargetQueueDepth: gone when they are active, however late; the next ones are active then (C.6)."""
    desk.queue(x_target_depth=1000, x_deferred_ack_ttl=1)
    first = desk.pair.broker.context.next_id
    for number in range(1005):
        desk.publish(numbered(number))
    later = desk.pair.broker.context.next_id
    assert defer(desk, f"1|{first + 1001}|,1|{first + 1000}|,1|{later}|") == 3
    desk.advance_ms(60_000)
    assert desk._facts("q")["deferred_acks"] == 2
    for _ in range(3):
        got = desk.must_get()
        desk.ack(got)
    seen = [int(got.body[6:-1]) for got in (desk.must_get() for _ in range(1000))]
    assert seen == [*range(3, 1000), 1002, 1003, 1004]
    assert desk.get() is None and desk._facts("q")["deferred_acks"] == 0


@pytest.mark.parametrize("arguments", [{}, {"x_filter": "/n >= 0"}])
def test_messages_that_become_active_within_one_dispatch(desk: LeasedDesk, arguments: dict[str, Any]) -> None:
    """A consumer that takes all at once gets none that was acknowledged beyond TargetQueueDepth (C.6)."""
    desk.queue(x_target_depth=1000)
    first = desk.pair.broker.context.next_id
    desk.publish(*map(numbered, range(1005)))
    assert defer(desk, f"1|{first + 1001}|,1|{first + 1003}|") == 2
    desk.subscribe(no_ack=True, **arguments)
    bodies = [got.body for got in desk.taken()]
    assert bodies == [numbered(number) for number in range(1005) if number not in (1001, 1003)]
    assert desk._facts("q")["deferred_acks"] == 0


def test_messages_sent_at_most_once_beyond_a_target_depth(desk: LeasedDesk) -> None:
    """A consumer with room gets all: sent messages are gone, and do not count towards TargetQueueDepth."""
    desk.queue(x_target_depth=1000, x_semantics="at-most-once", x_max_backlog_per_consumer=5000)
    first = desk.pair.broker.context.next_id
    desk.publish(*map(numbered, range(2500)))
    assert defer(desk, f"1|{first + 2400}|") == 1
    desk.subscribe(qos=5000)
    bodies = [got.body for got in desk.taken()]
    assert bodies == [numbered(number) for number in range(2500) if number != 2400]


@pytest.mark.parametrize("x_message_ttl", [600, None])
def test_inactive_messages_that_expire(desk: LeasedDesk, x_message_ttl: int | None) -> None:
    """A message that was acknowledged beyond TargetQueueDepth never becomes a dead letter (C.6): not when the queue
    expires as a whole, nor when the lifetime of the message ends before it is active.
    """
    desk.queue(x_target_depth=1000, **DLX, **({} if x_message_ttl is None else {"x_message_ttl": x_message_ttl}))
    first = desk.pair.broker.context.next_id
    desk.publish(*map(numbered, range(1000)))
    desk.publish(*map(numbered, range(1000, 1005)), **({"expiration": "600"} if x_message_ttl is None else {}))
    assert defer(desk, f"1|{first + 1001}|,1|{first + 1003}|") == 2
    desk.advance_ms(600)
    expired = {*range(1005)} if x_message_ttl else {*range(1000, 1005)}
    assert {int(got.body[6:-1]) for got in desk.dead()} == expired - {1001, 1003}
    assert desk.counter("acknowledged") == 2
    assert desk._facts("q")["deferred_acks"] == 0


def test_inactive_messages_that_are_purged(desk: LeasedDesk) -> None:
    """Their acknowledgements are forgotten with them."""
    desk.queue(x_target_depth=1000)
    first = desk.pair.broker.context.next_id
    desk.publish(*map(numbered, range(1005)))
    assert defer(desk, f"1|{first + 1001}|") == 1
    assert desk.purge() == 1005
    assert desk._facts("q")["deferred_acks"] == 0


def test_inactive_messages_that_are_gone(desk: LeasedDesk) -> None:
    """A purge took them: their acknowledgements are not remembered, least of all for ever."""
    desk.queue(x_target_depth=1000)
    first = desk.pair.broker.context.next_id
    desk.publish(*map(numbered, range(1005)))
    assert desk.purge() == 1005
    assert defer(desk, f"1|{first + 1002}|,1|{first + 3}|") == 0
    assert desk._facts("q")["deferred_acks"] == 0


def test_too_many(desk: LeasedDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is refused beyond so many; those before stay."""
    monkeypatch.setattr(deferred_acks, "DEFERRED_MAX", 3)
    desk.queue()
    assert defer(desk, next_bookmarks(desk, 3)) == 3
    assert defer(desk, next_bookmarks(desk, 1)) == 1
    with pytest.raises(CommandError, match="acknowledgements wait for messages"):
        defer(desk, next_bookmarks(desk, 4))
    desk.publish("a", "b", "c", "d")
    assert desk.all() == "d"


def test_a_refused_request_leaves_nothing(desk: LeasedDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused as a whole: a part of it would be in memory, and not in the journal."""
    monkeypatch.setattr(deferred_acks, "DEFERRED_MAX", 3)
    desk.queue()
    assert defer(desk, next_bookmarks(desk, 2)) == 2
    with pytest.raises(CommandError, match="acknowledgements wait for messages"):
        defer(desk, next_bookmarks(desk, 4))
    assert desk._facts("q")["deferred_acks"] == 2
    desk.publish("a", "b", "c")
    assert desk.all() == "c"


def test_a_refused_request_discards_nothing(desk: LeasedDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a ready message nor a leased one: the answer is that none was discarded."""
    monkeypatch.setattr(deferred_acks, "DEFERRED_MAX", 3)
    desk.queue()
    first = desk.pair.broker.context.next_id
    desk.publish("a", "b")
    got = desk.must_get()
    bookmarks = f"1|{first}|,1|{first + 1}|,{next_bookmarks(desk, 4)}"
    with pytest.raises(CommandError, match="acknowledgements wait for messages"):
        desk.command("discard", queue="q", bookmark=bookmarks)
    assert desk.counts() == (1, 1, 0)
    desk.ack(got)
    assert desk.all() == "b"


def test_messages_that_are_there_need_no_room(desk: LeasedDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only acknowledgements that are deferred count."""
    monkeypatch.setattr(deferred_acks, "DEFERRED_MAX", 3)
    desk.queue()
    first = desk.pair.broker.context.next_id
    desk.publish("a", "b", "c")
    bookmarks = ",".join(f"1|{first + number}|" for number in range(3)) + "," + next_bookmarks(desk, 3)
    done = desk.command("discard", queue="q", bookmark=bookmarks)
    assert (done["deleted"], done["deferred"]) == (3, 3)


def test_a_reload_changes_the_time(desk: LeasedDesk) -> None:
    """For acknowledgements that come from then on."""
    queue = '[[queue]]\nname = "q"\ntype = "amps"\n'
    desk = LeasedDesk(queue)
    desk.reload(queue + "deferred-ack-ttl = 1000")
    defer(desk, next_bookmarks(desk))
    desk.advance_ms(1000)
    desk.publish("a")
    assert desk.all() == "a"
