"""What a queue promises holds whatever way messages come in: one table of the ways, and one of the promises.

Each pair is a test, also after a kill. Virtual time. Source: address-settings page 3.4, 4.5, 5.3; behaviour page 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from desk import GETS, C, Refused, got_of
from durable_desk import DurableDesk
from peer import publish
from simulated_files import SimulatedFiles
from toml_text import settings

#: Messages that are published: body and properties.
Published = list[tuple[str, dict[str, Any]]]
#: What happens while the messages are on their way.
Meanwhile = Callable[["_Desk"], object]
LATER = 50


class _Desk(DurableDesk):
    """One that can be killed, and be there again on what was safe."""

    def __init__(self, files: SimulatedFiles, text: str, wall_ms: int | None = None) -> None:
        super().__init__(files, text, wall_ms=wall_ms)
        self.text = text

    def rest(self) -> None:
        """All is safe, and confirms have come."""
        self.settle()
        for received in self.peer.take():
            if isinstance(received.frame, C.Basic.Deliver):
                self._deliveries.append(got_of(received))

    def cut(self) -> _Desk:
        """Kill -9 and a power cut at once."""
        self.rest()
        again = _Desk(self.files.power_cut(), self.text, self.wall_ms)
        again.rest()
        return again

    def wait(self, ms: int) -> None:
        """Time passes."""
        self.advance_ms(ms)
        self.rest()


def _desk(*, delay_ms: int = 0, **q: Any) -> _Desk:
    """With `q` and what the ways need beside it. `delay_ms`: of its redeliveries."""
    text = settings(
        '[[divert]]\nname = "copies"\naddress = "diverted"\nforwarding-address = "q"\nexclusive = true',
        **{
            "q": {"dead-letter-address": "dead", "redelivery-delay": delay_ms},
            "dying": {"dead-letter-address": "q"},
        },
    )
    desk = _Desk(SimulatedFiles(), text)
    desk.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    desk.declare("q", **q)
    desk.bind("q", "later")
    for name in ("dead", "side", "dying", "diverted"):
        desk.declare(name)
    desk.rest()
    return desk


def _publish(desk: _Desk, messages: Published, **where: Any) -> None:
    for body, properties in messages:
        desk.publish(body, delivery_mode=2, **{**properties, **where})
        desk.rest()


def _with_delay(messages: Published, *delays: int) -> Published:
    delays = delays or (100,) * len(messages)
    return [
        (body, {**properties, "headers": {**properties.get("headers", {}), "x-delay": delay}})
        for (body, properties), delay in zip(messages, delays)
    ]


def _take_each(desk: _Desk, messages: Published) -> list[Any]:
    """Each is published and out before the next one."""
    taken = []
    for one in messages:
        _publish(desk, [one])
        taken.append(desk.must_get())
    return taken


# -- ways: each brings messages into `q`, in their order; some only after `meanwhile` -------------------------------


def _arrival(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    _publish(desk, messages)
    meanwhile(desk)
    return desk


def _transaction(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    other = desk.other()
    other.select()
    for body, properties in messages:
        other.peer.send(publish(GETS, "q", body.encode(), delivery_mode=2, **properties))
    with suppress(Refused):  # of a full queue, for a part of it
        other.commit()
    meanwhile(desk)
    return desk


def _due(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    _publish(desk, _with_delay(messages))
    meanwhile(desk)
    desk.wait(100)
    return desk


def _due_one_by_one(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    _publish(desk, _with_delay(messages, *range(100, 1100, 100)))
    meanwhile(desk)
    desk.wait(1000)
    return desk


def _due_of_a_delaying_exchange(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    _publish(desk, _with_delay(messages), exchange="later", key="q")
    meanwhile(desk)
    desk.wait(100)
    return desk


def _due_after_a_restart(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    _publish(desk, _with_delay(messages))
    meanwhile(desk)
    desk = desk.cut()
    desk.wait(100)
    return desk


def _operator_says_now(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    _publish(desk, _with_delay(messages))
    meanwhile(desk)
    for one in desk.command("scheduled", queue="q"):
        desk.command("scheduled", action="fire", queue="q", id=one["id"])
    desk.rest()
    return desk


def _return(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    _take_each(desk, messages)
    meanwhile(desk)
    desk.recover()
    desk.rest()
    return desk


def _delayed_return(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    for got in _take_each(desk, messages):
        desk.nack(got)
    meanwhile(desk)
    desk.wait(LATER)
    return desk


def _restart(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    _take_each(desk, messages)
    meanwhile(desk)
    return desk.cut()


def _dead_letter(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    _publish(desk, messages, key="dying")
    taken = [desk.must_get("dying") for _ in messages]
    meanwhile(desk)
    for got in taken:
        desk.reject(got, requeue=False)
    desk.rest()
    return desk


def _replay(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    for got in _take_each(desk, messages):
        desk.reject(got, requeue=False)
    meanwhile(desk)
    desk.command("replay", queue="dead", to="queue")
    desk.wait(20)
    return desk


def _move(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    _publish(desk, messages, key="side")
    meanwhile(desk)
    desk.command("move", queue="side", **{"to-queue": "q"})
    desk.wait(20)
    return desk


def _divert(desk: _Desk, messages: Published, meanwhile: Meanwhile) -> _Desk:
    _publish(desk, messages, key="diverted")
    meanwhile(desk)
    return desk


WAYS = {
    "arrival": _arrival,
    "transaction": _transaction,
    "due": _due,
    "due one by one": _due_one_by_one,
    "due, of a delaying exchange": _due_of_a_delaying_exchange,
    "due after a restart": _due_after_a_restart,
    "an operator says now": _operator_says_now,
    "return": _return,
    "delayed return": _delayed_return,
    "restart": _restart,
    "dead letter": _dead_letter,
    "replay": _replay,
    "move": _move,
    "divert": _divert,
}
every_way = pytest.mark.parametrize("way", WAYS)
killed_or_not = pytest.mark.parametrize("is_killed", [False, True], ids=["running", "killed"])
#: What comes due stands before what is ready, also what came due earlier; at one time it keeps its order.
TURNED = ("due one by one", "an operator says now")
FIVE: Published = [(body, {}) for body in "ABCDE"]


def _brought(
    way: str, is_killed: bool, messages: Published = FIVE, meanwhile: Meanwhile = lambda desk: None, **q: Any
) -> _Desk:
    """Messages came into `q`, declared like that."""
    desk = WAYS[way](_desk(delay_ms=LATER if way == "delayed return" else 0, **q), messages, meanwhile)
    desk.rest()
    return desk.cut() if is_killed else desk


# -- promises -------------------------------------------------------------------------------------------------------


@killed_or_not
@every_way
def test_nothing_special(way: str, is_killed: bool) -> None:
    """All of them are there, in order; what comes due later stands before what came due earlier, until a restart."""
    assert _brought(way, is_killed).all() == ("EDCBA" if way in TURNED and not is_killed else "ABCDE")


@killed_or_not
@pytest.mark.parametrize(
    "limit",
    [{"x_ring_size": 3}, {"x_max_length": 3}, {"x_max_length_bytes": 3}, {"x_ring_size": 3, "x_max_priority": 2}],
    ids=str,
)
@every_way
def test_no_more_than_there_is_room_for(way: str, limit: dict[str, Any], is_killed: bool) -> None:
    """The last three stay: of what came due, those furthest from the head. What an operator moves waits for room."""
    waits = way in ("replay", "move") and "x_ring_size" not in limit
    expected = "ABC" if waits else "CDE"
    if way in TURNED:
        expected = "ABC" if is_killed else "CBA"
    assert _brought(way, is_killed, **limit).all() == expected


@killed_or_not
@pytest.mark.parametrize("limit", [{"x_max_length": 3}, {"x_max_length_bytes": 3}], ids=str)
@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
@every_way
def test_a_full_queue_takes_nothing_new(way: str, overflow: str, limit: dict[str, Any], is_killed: bool) -> None:
    """What is new, or comes later, finds no room. What was there before comes back all the same, as in RabbitMQ."""
    is_return = way in ("return", "delayed return", "restart")
    left = _brought(way, is_killed, **limit, x_overflow=overflow).all()
    assert left == ("ABCDE" if is_return else "CBA" if way in TURNED and not is_killed else "ABC")


#: Ways in which messages are out of the queue meanwhile. Of one that keeps its messages only copies are.
LENDS = ("return", "delayed return", "restart", "replay")
KINDS: list[dict[str, Any]] = [{}, {"x_max_priority": 5}, {"x_non_destructive": True}]
every_way_and_kind = pytest.mark.parametrize(
    ("way", "kind"),
    [(way, kind) for way in WAYS for kind in KINDS if way not in LENDS or "x_non_destructive" not in kind],
    ids=str,
)


def _keyed(*values: str, **properties: Any) -> Published:
    """Messages of the keys that their first letters are."""
    return [(value, {"headers": {"sym": value[0]}, **properties}) for value in values]


def _shown(desk: _Desk) -> list[str]:
    """What a consumer sees."""
    desk.consume(tag="sees", no_ack=False)
    desk.rest()
    return sorted(got.body for got in desk.taken())


@killed_or_not
@every_way_and_kind
def test_one_value_of_each_key(way: str, kind: dict[str, Any], is_killed: bool) -> None:
    """The newest of those that come."""
    messages = _keyed("a1", "b1", "a2", "b2", "a3")
    desk = _brought(way, is_killed, messages, x_last_value_key="sym", **kind)
    assert _shown(desk) == ["a3", "b2"]


@killed_or_not
@pytest.mark.parametrize("priorities", [(0, 0), (1, 4), (4, 1)], ids=str)
@every_way_and_kind
def test_a_newer_value_stays(way: str, priorities: tuple[int, int], kind: dict[str, Any], is_killed: bool) -> None:
    """What was published before it does not take its place, however late it comes."""
    old, new = (_keyed(body, priority=one) for body, one in zip(("a1", "a2"), priorities))
    desk = _brought(way, is_killed, old, lambda desk: _publish(desk, new), x_last_value_key="sym", **kind)
    assert _shown(desk) == ["a2"]


@killed_or_not
@pytest.mark.parametrize("priorities", [(0, 0), (1, 4), (4, 1)], ids=str)
@every_way_and_kind
def test_an_older_value_goes(way: str, priorities: tuple[int, int], kind: dict[str, Any], is_killed: bool) -> None:
    """What was published after it takes its place."""
    old, new = (_keyed(body, priority=one) for body, one in zip(("a1", "a2"), priorities))
    desk = _desk(delay_ms=LATER if way == "delayed return" else 0, x_last_value_key="sym", **kind)
    if way in LENDS:  # the old one is out while the new one comes and goes
        _publish(desk, old)
        out = desk.must_get()
        desk = WAYS[way](desk, new, lambda desk: desk.nack(out) if way != "restart" else None)
        desk.wait(LATER)
    else:
        _publish(desk, old)
        desk = WAYS[way](desk, new, lambda desk: None)
    if is_killed:
        desk = desk.cut()
    assert _shown(desk) == ["a2"]


@pytest.mark.parametrize("way", ["arrival", "due", "return", "move"])
def test_a_value_of_another_priority(way: str) -> None:
    """It stands where that says, and not at the place of the value before it."""
    desk = _desk(x_last_value_key="sym", x_max_priority=5)
    _publish(desk, [*_keyed("a1", "b1", priority=1), *_keyed("c1", priority=3)])
    if way == "return":
        out = _take_each(desk, _keyed("a2", priority=4))
        desk.nack(out[0])
    else:
        desk = WAYS[way](desk, _keyed("a2", priority=4), lambda desk: None)
    assert (desk.all(), desk.counter("replaced")) == ("a2c1b1", 1)


@pytest.mark.parametrize("killed_at", [None, "retry", "q"])
def test_round_by_dead_letters(killed_at: str | None) -> None:
    """A value that was rejected, waited in another queue and comes back is as old as it was."""
    desk = _desk(x_last_value_key="sym", x_dead_letter_exchange="", x_dead_letter_routing_key="retry")
    desk.declare("retry", x_message_ttl=100, x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    (out,) = _take_each(desk, _keyed("a1"))
    _publish(desk, _keyed("a2"))
    desk.reject(out, requeue=False)
    desk.rest()
    if killed_at == "retry":
        desk = desk.cut()
    desk.wait(100)
    if killed_at == "q":
        desk = desk.cut()
    assert (desk.all(), desk.all("retry")) == ("a2", "")


@killed_or_not
@every_way
def test_the_highest_priority_first(way: str, is_killed: bool) -> None:
    """Whatever came first."""
    messages: Published = [(str(priority), {"priority": priority}) for priority in (1, 3, 0, 5, 3, 9)]
    desk = _brought(way, is_killed, messages, x_max_priority=5)
    assert desk.all() == ("953310" if way in TURNED and not is_killed else "593310")


@killed_or_not
@every_way
def test_a_group_has_one_consumer(way: str, is_killed: bool) -> None:
    """Two consumers; each group is one's, and in order."""
    messages: Published = [(f"{group}{at}", {"headers": {"JMSXGroupID": group}}) for at in (1, 2, 3) for group in "xyz"]
    desk = _brought(way, is_killed, messages)
    desk.consume(tag="one")
    desk.consume(tag="two")
    desk.rest()
    taken = desk.taken()
    assert len(taken) == 9
    for group in "xyz":
        of_it = [got for got in taken if got.body[0] == group]
        is_turned = way in TURNED and not is_killed
        assert [got.body[1] for got in of_it] == (["3", "2", "1"] if is_turned else ["1", "2", "3"])
        assert len({got.consumer for got in of_it}) == 1


@killed_or_not
@pytest.mark.parametrize("kind", [{}, {"x_ring_size": 3}, {"x_max_length": 3}, {"x_max_length_bytes": 3}], ids=str)
@pytest.mark.parametrize("way", [way for way in WAYS if way not in LENDS])
def test_every_consumer_sees_what_a_queue_keeps(way: str, kind: dict[str, Any], is_killed: bool) -> None:
    """Once, also one who was there before they came and who may have seen more."""
    desk = _desk(x_non_destructive=True, **kind)
    desk.consume(tag="early", no_ack=True)
    desk = WAYS[way](desk, FIVE, lambda desk: None)
    stay = "ABCDE"
    if kind:
        stay = "ABC" if way == "move" and "x_ring_size" not in kind else "CDE"
    early = [got.body for got in desk.taken()]
    if way != "due after a restart":
        assert sorted(early) == sorted({*early, *stay})
    if is_killed:
        desk = desk.cut()
    desk.consume(tag="late", no_ack=True)
    desk.rest()
    assert [got.body for got in desk.taken() if got.consumer == "late"] == [*stay]


@pytest.mark.parametrize("way", [way for way in WAYS if way not in LENDS])
def test_offsets_of_a_stream(way: str) -> None:
    """Each has an offset of its own, which it keeps."""
    desk = _desk(x_queue_type="stream")
    desk = WAYS[way](desk, FIVE, lambda desk: _publish(desk, [("F", {})]))
    seen = []
    for _ in range(2):
        desk.rest()
        desk.consume(tag="s", prefetch=100, x_stream_offset="first")
        desk.rest()
        seen.append({got.headers["x-stream-offset"]: got.body for got in desk.taken()})
        desk = desk.cut()
    assert sorted(seen[0].values()) == [*"ABCDEF"]
    assert (sorted(seen[0]), seen[1]) == ([0, 1, 2, 3, 4, 5], seen[0])
