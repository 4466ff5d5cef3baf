"""`scope = "all"`: everything that happens to every message is a record, with who had it; recovery finds none of it."""

import json
from collections import Counter as Tally
from collections.abc import Callable
from typing import Any

import pytest
from simulated_files import SimulatedFiles

from leveret.engine import ClusterEvent, Envelope, EventKind, Field, Session, User
from leveret.engine.clients.session import NACKED
from leveret.journal import JournalOptions
from leveret.journal.format.block import read_block
from leveret.journal.format.heap import decode_content, decode_runs, decode_text
from leveret.journal.format.record import DURABLE, KEPT, RANGE, REASONS, REDELIVERED
from leveret.journal.recording.full_recorder import FullRecorder
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recovery.check import verify
from leveret.settings import Policies, SettingsRepository, entry, make_policy
from leveret.testing.harness import Harness, messages


class Audited(Harness):
    """A broker that records everything on simulated files, with one client."""

    ends_turns = False

    def __init__(self, files: SimulatedFiles | None = None, recorder: type[Recorder] = FullRecorder) -> None:
        options = JournalOptions(preallocate_size=0, scope="all" if recorder is FullRecorder else "durable")
        super().__init__(journal=files or SimulatedFiles(), journal_options=options, recorder=recorder)

    def connect(self, name: str = "one", *, flush: Callable[[], object] | None = None) -> Session:
        return super().connect(name, flush=flush)

    def publish(self, key: str, count: int = 1, *, persistent: bool = False, **properties: Any) -> None:
        super().publish(*["x"] * count, key=key, delivery_mode=2 if persistent else 1, **properties)
        self.settle()

    def tally(self) -> "Tally[str]":
        """Events by kind, a message each."""
        found: Tally[str] = Tally()
        for record in self.records():
            found[record.name] += record.size if record.flags & RANGE else 1
        return found


def test_every_counter_has_its_records() -> None:
    """Transient and persistent messages into both kinds of queues, through every way out."""
    one = Audited()
    vhost = one.broker.virtual_hosts["/"]
    vhost.queues.declare("t", client=one.client)
    vhost.queues.declare("d", client=one.client, durable=True)
    one.publish("t", 3)
    one.publish("d", 2, persistent=True)
    one.publish("d", 2)
    one.publish("nowhere")
    one.consume("t")
    one.settle()
    one.session.ack(2, multiple=True)
    one.session.reject(3, requeue=True, why=NACKED)
    one.settle()
    one.publish("d", persistent=True)
    one.session.get(vhost.queues.named("d"), no_ack=True)
    one.settle()
    vhost.queues.named("d").purge()
    one.publish("t", 2, expiration=b"0")
    one.settle()
    vhost.queues.delete("t", one.client)
    one.settle()
    counters = one.broker.statistics().counters
    tally = one.tally()
    words = {"acknowledged": "acked", "killed": "dead_lettered"}
    for name, count in counters.items():
        if name != "routed":  # what a `published` says of its queues
            assert tally[words.get(name, name)] == count, (name, counters, tally)
    assert {"declared", "undeclared", "consumer_added", "connection_opened"} <= tally.keys()
    assert not verify("data", one.files).faults


def test_who_had_it_and_how_often() -> None:
    """Deliveries and acks name consumer and connection; attempts count, returns say why."""
    one = Audited()
    vhost = one.broker.virtual_hosts["/"]
    vhost.queues.declare("q", client=one.client)
    one.publish("q")
    other = one.connect("two")
    for session, tag in ((one.session, "a"), (other, "b")):
        one.consume("q", tag, by=session)
        one.settle()
    one.session.cancel("a")
    one.session.reject(1, requeue=True, why=NACKED)
    one.settle()
    names = one.journal.names
    delivered = [record for record in one.records() if record.name == "delivered"]
    assert [(names.text(one.consumer_id), names.text(one.conn_id)) for one in delivered] == [("a", "one"), ("b", "two")]
    assert [(record.attempt, bool(record.flags & REDELIVERED)) for record in delivered] == [(1, False), (2, True)]
    opened = [record for record in one.records() if record.name == "connection_opened"]
    assert [decode_text(record.heap) for record in opened] == ["one", "two"]
    (returned,) = [record for record in one.records() if record.name == "requeued"]
    assert REASONS[returned.reason] == "nacked" and returned.attempt == 1
    other.ack(1)
    one.settle()
    (acked,) = [record for record in one.records() if record.name == "acked"]
    assert names.text(acked.consumer_id) == "b" and not acked.flags & (DURABLE | KEPT)


def test_only_what_a_restart_restores_needs_its_segment() -> None:
    """What is written for audits alone neither holds a segment nor frees one that others need."""
    one = Audited()
    for name, more in (("transient", {"durable": False}), ("durable", {}), ("stream", {"x_queue_type": "stream"})):
        one.queue(name, **more)

    def live() -> int:
        found: int = one.journal.statistics().live
        assert all(row.live >= 0 for row in one.journal.usage.segments)
        return found

    one.publish("durable", 2, persistent=True)
    one.publish("stream", 2, persistent=True)
    assert live() == 4
    for name in ("transient", "durable"):
        one.publish(name, 5)
    one.publish("transient", 3, persistent=True)
    assert live() == 4
    one.take(2, "transient")
    one.session.reject(one.session.get(one.named("transient"), no_ack=False)[0], requeue=False)
    one.settle()
    assert live() == 4
    one.named("transient").purge()
    one.publish("transient", 3)
    one.vhost.queues.delete("transient", one.client)
    one.settle()
    assert live() == 4
    one.session.set_prefetch(9, total=False)
    one.consume("stream", x_stream_offset="first")
    one.settle()
    one.session.ack(one.deliveries[-1].tag, multiple=True)
    one.settle()
    assert len(one.deliveries) == 2 and live() == 4
    one.named("durable").purge()
    one.settle()
    assert live() == 2


def test_requests_to_the_broker_are_not_unroutable() -> None:
    """No queue takes them, and they are served; what no queue takes elsewhere is recorded so."""
    one = Audited()
    one.vhost.exchanges.add_predeclared({"amps.control": lambda *_: None})
    Harness.publish(one, "", exchange="amps.control", key="sow_delete")
    one.settle()
    assert one.tally()["published"] == 1 and "unroutable" not in one.tally()
    one.publish("nowhere")
    one.settle()
    assert one.tally()["unroutable"] == 1
    Harness.publish(one, "", exchange="amq.direct", key="nowhere")
    one.settle()
    places = [one.journal.names.text(record.address_id) for record in one.records() if record.name == "unroutable"]
    assert places == ["", "amq.direct"]


def test_a_return_that_counts_nothing_is_for_audits_alone() -> None:
    """A start restores no count of it, as with `scope = "durable"`; nor a message that was transient."""
    one = Audited()
    one.vhost.queues.declare("d", client=one.client, durable=True)
    one.publish("d", persistent=True)
    one.publish("d")
    one.consume("d")
    one.settle()
    one.session.recover()
    one.settle()
    flags = [(one.name, bool(one.flags & DURABLE)) for one in one.records() if one.name in ("published", "requeued")]
    assert flags == [("published", True), ("published", False), ("requeued", False), ("requeued", False)]


def test_names_of_what_is_gone_are_forgotten() -> None:
    """Connections, consumers, transient queues come and go by the million; segments do not list them for ever."""
    one = Audited()
    vhost = one.broker.virtual_hosts["/"]
    before = len(one.journal.names)
    for number in range(20):
        session = one.connect("again")
        vhost.queues.declare(f"q{number}", client=session.client, exclusive=True)
        one.consume(f"q{number}", by=session)
        session.consume_replies("r", f"amq.rabbitmq.reply-to.{number}", no_ack=True)
        session.client.close()
        one.settle()
    assert len(one.journal.names) <= before + 1
    vhost.queues.declare("left", client=one.client)
    one.settle()
    again = Audited(one.files.power_cut())
    assert "left" not in {define.name for _, define in again.journal.names._by_id.items()}


def test_runs_of_a_deleted_queue_say_which() -> None:
    """Transient and persistent messages, mixed: one record each, and it names exactly its own."""
    one = Audited()
    vhost = one.broker.virtual_hosts["/"]
    vhost.queues.declare("q", client=one.client, durable=True)
    for number in range(6):
        one.publish("q", persistent=number % 2 == 0)
    vhost.queues.delete("q", one.client)
    one.settle()
    gone = [record for record in one.records() if record.name == "deleted"]
    assert {(bool(one.flags & DURABLE), tuple(decode_runs(one.heap))) for one in gone} == {
        (True, ((1, 1), (3, 1), (5, 1))),
        (False, ((2, 1), (4, 1), (6, 1))),
    }


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_a_queue_keeps_is_not_recorded_as_gone(count: int) -> None:
    """Acks of transient messages of a non-destructive queue: each record says that they stay."""
    one = Audited()
    one.vhost.queues.declare("q", client=one.client, arguments={"x-non-destructive": Field("t", True)})
    one.publish("q", count)
    one.consume("q")
    one.settle()
    one.session.ack(count, multiple=True)
    one.settle()
    acked = [record for record in one.records() if record.name == "acked"]
    assert len(acked) == count and all(record.flags & KEPT and not record.flags & RANGE for record in acked)


def test_a_dead_letter_says_whose_copy_it_is() -> None:
    """So that a message's story can be told over its copies."""
    one = Audited()
    vhost = one.broker.virtual_hosts["/"]
    one.queue(client=one.client, durable=False, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    one.queue("dead", client=one.client, durable=False)
    one.publish("q")
    one.session.get(vhost.queues.named("q"), no_ack=False)
    one.session.reject(1, requeue=False)
    one.settle()
    first, copy = [record for record in one.records() if record.name == "published"]
    assert decode_content(copy.heap).cause_id == first.msg_id
    assert [r.name for r in one.records() if r.msg_id == first.msg_id and r.queue_id] == [
        "enqueued",
        "delivered",
        "dead_lettered",
    ]


def test_blocks_and_starts_tell_the_scope() -> None:
    """Any block of it, and a record where a broker starts; a broker of scope durable goes on with it."""
    one = Audited()
    one.settle()
    (path,) = [name for name in one.files.names_now if name.endswith(".log")]
    block = read_block(memoryview(one.files.content(path)), 0, 0)
    assert block is not None and block.header.scope == "all" and block.header.mode == "commit"
    starts = [record for record in one.records() if record.name == "settings_changed"]
    assert [decode_text(record.heap) for record in starts] == ['{"journal": {"scope": "all"}}']
    again = Audited(one.files.power_cut(), Recorder)
    assert again.tally()["settings_changed"] == 1


@pytest.mark.parametrize("recorder", [Recorder, FullRecorder])
def test_who_leads_and_why_is_recorded_with_any_scope(recorder: type[Recorder]) -> None:
    """One history with several leaders: the kinds of events of a cluster, each with term, node and reason."""
    one = Audited(recorder=recorder)
    kinds = [EventKind.LED, EventKind.FOLLOWED, EventKind.IN_SYNC_CHANGED, EventKind.HELD, EventKind.SUSPENDED]
    for term, kind in enumerate(kinds, 1):
        one.broker.context.emit(ClusterEvent(kind, "", "a", term, "b did not answer"))
    one.settle()
    found = [record for record in one.records() if record.name in {kind.value for kind in kinds}]
    assert [(record.name, record.arg) for record in found] == [(kind.value, term) for term, kind in enumerate(kinds, 1)]
    assert {decode_text(record.heap) for record in found} == {'{"node": "a", "why": "b did not answer"}'}
    assert not verify("data", one.files).faults
    again = Audited(one.files.power_cut(), recorder)  # a restart reads over them
    assert again.tally()["led"] == 1


def test_users_and_policies_are_no_queues() -> None:
    """They come and go as with any scope, also under the name of a queue and an exchange, which stay what they are."""
    one = Audited()
    vhost = one.broker.virtual_hosts["/"]
    vhost.queues.declare("q", client=one.client)
    vhost.exchanges.declare("q", "fanout", durable=False)
    one.broker.connections.replace_user(User("q"))
    one.broker.reloading.replace_policies(Policies([make_policy("q", "/", "", {"max-length": 5})]))
    one.settle()
    one.broker.connections.delete_user("q")
    one.broker.reloading.replace_policies(Policies())
    one.settle()
    tally = one.tally()
    assert (tally["declared"], tally["undeclared"]) == (4, 2)
    vhost.exchanges.delete("q")
    one.settle()
    assert one.tally()["undeclared"] == 3
    assert not verify("data", one.files).faults


def test_who_waited_for_room_and_for_how_long() -> None:
    """Blocked and unblocked publishers are records with what they waited for."""
    one = Audited()
    repository = SettingsRepository([entry("q", memory_limit=1_000, cursor="vm")])
    one.broker.reloading.replace_settings(repository)
    vhost = one.broker.virtual_hosts["/"]
    queue = vhost.queues.declare("q", client=one.client)
    one.publish("q")
    publisher = one.connect("two")

    class Held:
        def resume(self, octets: int, messages: int) -> tuple[int, int]:
            return 0, 0

    offer = publisher.publish_with_room(one.route("q"), Envelope("", "q"), messages(["x"], {})[1], mandatory=False)
    assert offer.full is not None
    one.broker.flow.wait(offer.full, publisher.client, Held())  # type: ignore[arg-type]
    one.clock.advance_ns(1_500_000_000)
    got = one.session.get(queue, no_ack=True)
    assert got is not None
    one.settle()
    texts = [(record.name, json.loads(decode_text(record.heap))) for record in one.records() if "block" in record.name]
    waited = {"connection": "two", "destination": "queue 'q' in vhost '/'", "limit": "memory"}
    assert texts == [("blocked", {**waited, "waited_ms": 0}), ("unblocked", {**waited, "waited_ms": 1_500})]


@pytest.mark.parametrize("recorder", [Recorder, FullRecorder])
def test_messages_of_a_full_disk_count_in_no_segment(recorder: type[Recorder]) -> None:
    """Dead letters that came while the disk was full have no record; they are acknowledged before a checkpoint."""
    one = Audited(recorder=recorder)
    text = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    arguments = {"x-message-ttl": Field("I", 50), **{key: Field("S", value.encode()) for key, value in text.items()}}
    one.broker.virtual_hosts["/"].queues.declare("q", client=one.client, durable=True, arguments=arguments)
    dead = one.broker.virtual_hosts["/"].queues.declare("dead", client=one.client, durable=True)
    one.publish("q", 2, persistent=True)
    one.recorder.fail(for_good=False)
    one.advance(100)
    one.settle()
    assert dead.ready_count == 2
    one.recorder.recover()
    one.consume("dead")
    one.settle()
    one.session.ack(0, multiple=True)
    one.settle()
    assert [row.live for row in one.journal.usage.segments] == [0]
