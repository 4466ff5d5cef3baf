"""Logged topics: what the journal has of them, once, and for how long. Source: queues page A.2, A.3.2, C.1."""

from __future__ import annotations

from typing import Any

import pytest
from desk import C, Refused
from durable_desk import PATH, DurableDesk
from peer import publish
from simulated_files import SimulatedFiles

from leveret.engine import Queue, dead_letter_queues
from leveret.journal import JournalReader
from leveret.journal.format.heap import decode_content
from leveret.journal.format.record import PUBLISHED, Record
from leveret.journal.recording.checkpoint import checkpoint

ORDERS = '[[logged-topic]]\nname = "orders"\n'
HOUR_MS = 3_600_000


class LogDesk(DurableDesk):
    """A desk with a journal, in which topics are logged."""

    def __init__(self, settings: str = ORDERS, files: SimulatedFiles | None = None) -> None:
        super().__init__(files or SimulatedFiles(), settings)
        self.unlogged: list[tuple[str, str]] = []
        self.pair.broker.context.on_unlogged = self._note_unlogged

    def _note_unlogged(self, queue: Queue, topic: str) -> None:
        self.unlogged.append((queue.name, topic))

    def leased(self, name: str = "q", topic: str | None = None, **arguments: Any) -> None:
        """A leased queue."""
        if topic is not None:
            arguments["x_underlying_topic"] = topic
        self.declare(name, x_queue_type="amps", x_max_backlog_per_consumer=1000, **arguments)

    def recorded(self) -> list[tuple[Record, list[int], bytes]]:
        """Published records, the ids of the queues that they name, and their contents."""
        self.settle()
        found = []
        for _, record in JournalReader(PATH, self.files).records(trust_open=True):
            if record.kind == PUBLISHED:
                content = decode_content(record.heap)
                found.append((record, sorted(content.queue_ids), content.content))
        return found

    def bodies(self) -> list[str]:
        """The last octet of each recorded message."""
        return [content[-1:].decode() for _, _, content in self.recorded()]


def test_a_body_is_written_once() -> None:
    """Queues page, C.1: one record a message, whatever the number of queues that have it; with the log they name 0."""
    desk = LogDesk('[[logged-topic]]\npattern = "^orders"\n[[logged-topic]]\npattern = "^q"\n')
    desk.exchange("orders", "topic")
    desk.declare("bound")
    desk.bind("bound", "orders", "#")
    for name in ("q1", "q2", "q3"):
        desk.leased(name, "orders")
    body = "a body like no other" * 50
    assert desk.publish(body, exchange="orders", key="new", delivery_mode=2, mandatory=True) in ([""], ["ack"])
    ((_, ids, content),) = desk.recorded()
    assert ids[0] == 0 and len(ids) == 5 and content.endswith(body.encode())
    octets = b"".join(bytes(desk.files.read(desk.files.open(f"{PATH}/{name}"), 1 << 20, 0))
                      for name in desk.files.names(PATH) if name.endswith(".log"))  # fmt: skip
    assert octets.count(body.encode()) == 1


def test_what_no_queue_has_is_logged() -> None:
    """Transient messages of a logged topic, too; nothing of other topics. It counts as routed; a confirm waits for it.

    Source: queues page, issue 20 point 3; C.1.
    """
    desk = LogDesk()
    desk.exchange("orders", "topic")
    desk.exchange("others", "topic")
    assert desk.publish("a", exchange="orders", key="x", mandatory=True) == [""]  # not returned, not confirmed yet
    desk.settle()
    assert desk.confirms() == ["Ack"]
    assert desk.publish("b", exchange="others", key="x", mandatory=True) == ["returned"]
    assert desk.publish("c", key="orders", delivery_mode=2) == [""]
    desk.publish("d", key="other", delivery_mode=2)
    assert [(ids, content[-1:]) for _, ids, content in desk.recorded()] == [([0], b"a"), ([0], b"c")]
    assert not desk.vhost.queues
    again = LogDesk(ORDERS, desk.files.power_cut())
    again.publish("e", key="orders")
    assert again.bodies() == ["a", "c", "e"]
    assert not again.vhost.queues


def test_a_run_of_many_keys_is_logged() -> None:
    """What comes at once for one exchange is published as one run, for the log as for a queue."""
    desk = LogDesk()
    desk.exchange("orders", "topic")
    octets = [publish(2, key, key.encode(), exchange="orders", delivery_mode=mode) for key, mode in
              (("a", 1), ("b", 2), ("b", 2), ("c", 1))]  # fmt: skip
    desk.peer.send(b"".join(octets))
    assert desk.bodies() == list("abbc")
    assert desk.confirms() == ["Ack"]


def test_transactions_and_dead_letters_are_logged() -> None:
    """Whatever publishes: a commit, not a rollback; a dead letter."""
    desk = LogDesk()
    desk.declare("mortal", x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key="orders")
    desk.publish("a", key="mortal", delivery_mode=1)
    desk.select()
    desk.publish_in_transaction("b", key="orders")
    desk.roll_back()
    desk.publish_in_transaction("c", key="orders")
    desk.peer.send(b"")
    desk._call(1, C.Tx.Commit)
    assert desk.bodies() == ["a", "c"]


def test_only_topics_of_the_virtual_host() -> None:
    """Each has its own, one that comes later, too; a reload changes them at once."""
    desk = LogDesk('[[logged-topic]]\nname = "orders"\nvhost = "v"\n[[logged-topic]]\nname = "a"\nvhost = "later"\n')
    desk.publish("a", key="orders")
    assert desk.bodies() == []
    assert desk.pair.broker.virtual_hosts["v"].router.captures.log is not None
    desk.pair.broker.virtual_hosts.delete("v")
    assert desk.pair.broker.virtual_hosts.create("v").router.captures.log is not None
    desk.reload(ORDERS)
    desk.publish("b", key="orders")
    desk.reload("")
    desk.publish("c", key="orders")
    assert desk.bodies() == ["b"]
    assert desk.vhost.router.captures.log is None and desk.pair.broker.virtual_hosts["v"].router.captures.log is None


@pytest.mark.parametrize(
    ("arguments", "topic"),
    [
        ({}, "'q'"),
        ({"x_underlying_topic": "others"}, "'others'"),
        ({"x_underlying_topic": "^o", "x_default_publish_target": "others"}, "'others'"),
    ],
)
def test_a_queue_of_a_topic_that_is_not_listed_is_refused(arguments: dict[str, str], topic: str) -> None:
    """Queues page, A.3.2, E-TXLOG: the topic, the publish target and the queue's own name."""
    desk = LogDesk(ORDERS if "'q'" in topic else ORDERS + '[[logged-topic]]\nname = "q"\n')
    with pytest.raises(Refused, match=f"E-TXLOG.*{topic}") as refused:
        desk.leased("q", **arguments)
    assert refused.value.code == 406


def test_a_pattern_captures_what_is_listed() -> None:
    """Queues page, A.3.2, E-TXLOG: what a pattern selects and nothing logs is not captured, and reported once."""
    desk = LogDesk('[[logged-topic]]\npattern = "^(or|q$)"\n')
    desk.leased("q", "^o", x_default_publish_target="orders")
    desk.publish("a", key="orders")
    desk.publish("b", "c", key="others")
    desk.publish("d", key="ordering")
    desk.publish("e", key="overt")
    desk.settle()
    assert desk.confirms()
    assert desk.all() == "ad"
    assert desk.unlogged == [("q", "others")]
    assert desk.bodies() == ["a", "d"]


def test_what_is_not_listed_is_reported_again_after_a_reload() -> None:
    """The list may have been meant to have it."""
    listed = '[[logged-topic]]\npattern = "^(or|q$)"\n'
    desk = LogDesk(listed)
    desk.leased("q", "^o", x_default_publish_target="orders")
    for more in ("", '[[logged-topic]]\nname = "a"\n'):
        desk.reload(listed + more)
        desk.publish("a", key="others")
        desk.publish("b", key="others")
    assert desk.unlogged == [("q", "others")] * 2


def test_a_look_at_a_route_reports_nothing() -> None:
    """Only a publish does, and it still does behind the look."""
    desk = LogDesk('[[logged-topic]]\npattern = "^(or|q$)"\n')
    desk.leased("q", "^o", x_default_publish_target="orders")
    desk.declare("mortal", x_dead_letter_exchange="", x_dead_letter_routing_key="others")
    assert not any(dead_letter_queues(desk.vhost))
    assert not desk.unlogged
    desk.publish("a", key="others")
    assert desk.unlogged == [("q", "others")]


@pytest.mark.parametrize(("settings", "hours"), [(ORDERS + 'retain = "2h"\n', 2), (ORDERS, 24), ("", 0)])
def test_segments_are_kept_as_long_as_their_topics_ask(settings: str, hours: int) -> None:
    """`retain`: segments that no queue needs stay so long, a day where nothing is said; without a list they go."""
    desk = LogDesk("")
    desk.reload(settings)
    desk.publish("a", key="orders")
    desk.settle()
    here = desk.journal.usage.segments[-1].base_lsn
    desk.journal.begin_segment()
    if hours:
        desk.advance_ms(hours * HOUR_MS - 1000)
        _make_room(desk)
        assert here in [row.base_lsn for row in desk.journal.usage.segments]
        desk.advance_ms(2000)
    _make_room(desk)
    assert here not in [row.base_lsn for row in desk.journal.usage.segments]


def _make_room(desk: LogDesk) -> None:
    """A checkpoint, and what that makes needless goes."""
    for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
        desk.settle()
    desk.settle()
    desk.journal.begin_segment()
    desk.settle()
    desk.journal.old_segments.reclaim()
    desk.settle()
