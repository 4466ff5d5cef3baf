"""What a restart keeps beside messages: kinds of exchanges, accounts of segments, offsets, where contents are."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import pytest
from journal_workload import make_content
from simulated_files import SimulatedFiles

from leveret.engine import MS, BrokerOptions, Envelope, Field
from leveret.engine.errors import EngineError, InvalidArgument
from leveret.journal import JournalReader
from leveret.journal.appending.old_segments import moved_record
from leveret.journal.format.heap import content_prefix, decode_content
from leveret.journal.format.record import COUNTED, DELIVERED, PUBLISHED, REQUEUED, Record
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recording.full_recorder import FullRecorder
from leveret.journal.recording.message_recorder import QueueChanges
from leveret.journal.recording.recorder import Recorder
from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import DATA, Harness, messages


class Kept(Harness):
    """On simulated files; messages are persistent."""

    properties = {"delivery_mode": 2}

    def __init__(self, **options: object) -> None:
        super().__init__(journal=SimulatedFiles(), **options)  # type: ignore[arg-type]

    @property
    def live(self) -> int:
        """Messages for which segments are needed."""
        return sum(row.live for row in self.journal.usage.segments)

    def all(self, queue: str = "q") -> str:
        """Bodies of what is ready."""
        got = []
        while (one := self.get(queue)) is not None:
            got.append(one[1].body.decode())
        return "".join(got)


@pytest.mark.parametrize("is_killed", [True, False])
def test_flags_are_as_they_were_declared(is_killed: bool) -> None:
    """Clients may not publish to an internal one. A queue goes with its last consumer, its exchange with the queue."""
    one = Kept()
    one.vhost.exchanges.declare("inner", "direct", durable=True, internal=True)
    one.vhost.exchanges.declare("passing", "fanout", durable=True, auto_delete=True)
    one.queue(auto_delete=True)
    one.bind("q", "passing")
    one.settle()
    one.kill() if is_killed else one.restart()
    with pytest.raises(EngineError, match="inner"):
        one.publish("A", exchange="inner")
    one.consume(tag="c")
    one.session.cancel("c")
    one.end_turn()
    assert "q" not in one.vhost.queues and "passing" not in one.vhost.exchanges


@pytest.mark.parametrize("is_out", [False, True])
def test_a_value_that_was_replaced_needs_no_segment(is_out: bool) -> None:
    """Replaced by a newer one of its key; or at the restart, when it was out as the newer one came."""
    one = Kept()
    one.queue(x_last_value_key="key")
    one.publish("A", headers={"key": "k"})
    if is_out:
        assert one.get(no_ack=False) is not None
    one.publish("B", headers={"key": "k"})
    one.settle()
    assert one.live == (2 if is_out else 1)
    one.kill()
    one.settle()
    assert one.live == 1
    one.restart()
    assert (one.live, one.all()) == (1, "B")


def test_segments_are_not_needed_for_a_virtual_host_that_was_going() -> None:
    """Its end was recorded, the ends of its messages were not yet: the next start counts them out."""
    one = Kept()
    vhost = one.broker.virtual_hosts.create("v")
    vhost.queues.declare("q", client=None, durable=True)
    session = one.broker.connections.open("v", one.user, name="c", flush=lambda: None).open_session()
    summary, contents = messages(["A"] * 3000, Kept.properties)
    session.publish(vhost.router.route("", "q", one.user), Envelope("", "q", summary), contents, mandatory=False)
    one.settle()
    assert one.live == 3000
    one.broker.virtual_hosts.delete("v")
    one.journal.commit()
    assert one.journal.wait(one.journal.next_lsn)
    one.kill()
    assert "v" not in one.broker.virtual_hosts
    assert one.live == 0


def test_counts_above_the_limit_are_not_written() -> None:
    """A message that comes back again and again costs a bounded number of records."""
    one = Kept(recorder=partial(Recorder, counts_max=3))
    one.queue(x_max_delivery_attempts=-1)
    one.publish("A")
    for _ in range(9):
        got = one.get(no_ack=False)
        assert got is not None
        one.session.reject(got[0], requeue=True)
        one.end_turn()
    one.settle()
    records = JournalReader(DATA, one.files).records(trust_open=True)
    assert sum(record.kind == REQUEUED for _, record in records) == 3


@pytest.mark.parametrize("recorder", [Recorder, FullRecorder])
@pytest.mark.parametrize("counts_max, are_written", [(0, False), (1, True), (-1, True)])
@pytest.mark.parametrize("is_run", [True, False])
def test_counts_before_deliveries_are_within_the_limit(
    recorder: type[Recorder], counts_max: int, are_written: bool, is_run: bool
) -> None:
    """Those of messages that are delivered in a run as they were published, too; they were written without a limit."""
    one = Kept(recorder=partial(recorder, persists_deliveries=True, counts_max=counts_max))
    one.queue()
    one.consume() if is_run else None
    one.publish(*"ABC")
    one.consume() if not is_run else None
    one.settle()
    assert [each.body for each in one.deliveries] == [b"A", b"B", b"C"]
    records = [record for _, record in JournalReader(DATA, one.files).records(trust_open=True)]
    assert any(record.kind == DELIVERED and record.flags & COUNTED for record in records) is are_written
    one.kill()
    restored = one.get()
    assert restored is not None and restored[1].deliveries == 1 + are_written


def test_a_checkpoint_watches_no_queue_when_it_is_over() -> None:
    """What leaves the queue that was stated last is noted while it is stated, and not for ever."""
    one = Kept()
    one.queue()
    one.publish(*"ABC")
    for _ in checkpoint(one.broker, one.journal, one.recorder):
        one.journal.commit()
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, QueueChanges)] == []


def test_contents_of_two_queues_of_an_exchange_are_told_apart() -> None:
    """They share runs, of which each has acknowledged another part: a checkpoint after the kill finds each content."""
    one = Kept()
    for queue in "ab":
        one.queue(queue)
        one.bind(queue, "amq.fanout")
    one.publish(*"ABCDEF", exchange="amq.fanout")
    assert [one.take(1, "a") for _ in range(2)] == [[b"A"], [b"B"]]
    tags = [got[0] for _ in range(6) if (got := one.get("b", no_ack=False)) is not None]
    one.session.ack(tags[-1])
    one.settle()
    one.kill()
    one.restart()
    assert (one.all("a"), one.all("b")) == ("CDEF", "ABCDE")


def test_a_content_that_is_moved_keeps_its_expiry_and_its_cause() -> None:
    """The copy is for the queues that still hold the message; all else is as it was published."""
    heap = content_prefix(b"key", (1, 2), 1_700_000_000_000, 17) + make_content(b"A")
    record = Record(PUBLISHED, 5, arg=0, msg_id=9, heap=heap)
    moved = moved_record(40, record, (2,))
    assert moved.arg == 40
    assert decode_content(moved.heap) == decode_content(heap)._replace(queue_ids=(2,))


def test_dead_letters_alike_keep_the_messages_that_they_come_from() -> None:
    """Two messages died in the same second, with the same properties: a search finds the story of each."""
    one = Kept()
    one.queue(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    one.queue("dead")
    one.publish(*"AB")
    for _ in range(2):
        got = one.get(no_ack=False)
        assert got is not None
        one.session.reject(got[0], requeue=False)
    one.settle()
    before = [message.envelope.cause_id for message in one.named("dead").messages()]
    one.kill()
    assert [message.envelope.cause_id for message in one.named("dead").messages()] == before
    assert len(set(before)) == 2


def test_offsets_of_a_stream_go_on_after_its_oldest_messages_went() -> None:
    """Retention dropped the head, then the broker was killed: the messages that stay have the offsets they had."""
    one = Kept()
    one.queue("s", x_queue_type="stream", x_max_length_bytes=400, x_stream_max_segment_size_bytes=100)
    for at in range(12):
        one.publish(b"%d" % at * 40, key="s")
    one.settle()
    before = one.named("s").first_offset
    assert before
    count = len(one.named("s").store)
    one.kill()
    assert (one.named("s").first_offset, len(one.named("s").store)) == (before, count)


@pytest.mark.parametrize("memory", [None, 0])
def test_what_was_restored_expires(memory: int | None) -> None:
    """No message came since that would expire: those that were there before the kill are looked after all the same."""
    one = Kept(memory=memory)
    one.queue()
    one.publish(*"ABC", expiration="1000")
    one.publish("D")
    one.settle()
    one.kill()
    one.advance(1500)
    assert one.named().ready_count == 1
    assert one.all() == "D"


def test_what_waited_over_a_restart_expires_when_it_is_due() -> None:
    """A returned message waits, the broker is killed; it becomes due before its time is up, and then expires."""
    one = Kept()
    one.queue(x_redelivery_delay=1000, x_message_ttl=3000)
    one.publish("A")
    got = one.get(no_ack=False)
    assert got is not None
    one.session.reject(got[0], requeue=True)
    one.settle()
    one.kill()
    one.advance(1100)
    assert one.named().ready_count == 1
    one.advance(3100)
    assert one.named().ready_count == 0


@pytest.mark.parametrize("memory", [None, 100_000])
@pytest.mark.parametrize("arguments", [{"x_non_destructive": True}, {"x_queue_type": "stream"}, {}], ids=str)
def test_a_delayed_message_waits_on(arguments: dict[str, object], memory: int | None) -> None:
    """Also where readers take nothing out, and where contents stay on disk."""
    one = Kept(memory=memory)
    one.queue(**arguments)
    one.publish("late", headers={"x-delay": 1000})
    one.publish("now")
    one.kill()
    queue = one.named()
    assert (queue.ready_count, len(queue.scheduled)) == (1, 1)
    one.advance(1000)
    assert (queue.ready_count, len(queue.scheduled)) == (2, 0)


@pytest.mark.parametrize("how", ["killed", "after a checkpoint", "killed twice"])
@pytest.mark.parametrize("memory", [None, 100_000])
@pytest.mark.parametrize("levels, order", [(0, "ABCDEF"), (2, "CABDEF"), (32, "CADFBE")])
def test_priorities_of_quorum_queues_mean_the_same_after_a_restart(
    levels: int, order: str, memory: int | None, how: str
) -> None:
    """Also of messages without one, of those of priority 0, and of those that stay on disk."""
    one = Kept(memory=memory, options=BrokerOptions(quorum_priorities=levels))
    one.queue(x_queue_type="quorum")
    for body, priority in (("A", None), ("B", 3), ("C", 6), ("D", 4), ("E", 0)):
        one.publish(body, **({} if priority is None else {"priority": priority}))
    if how == "after a checkpoint":
        one.checkpoint()
    one.kill()
    if how == "killed twice":
        one.checkpoint()
        one.kill()
    one.publish("F")
    assert one.all() == order


@pytest.mark.parametrize("arguments", [{}, {"x_filter": "n >= 0"}], ids=["all", "by a filter"])
def test_priority_zero_is_below_none_after_a_restart_with_messages_on_disk(arguments: dict[str, Any]) -> None:
    """Although the journal records both alike: a consumer gets those without a priority first."""
    one = Kept(memory=100_000, options=BrokerOptions(quorum_priorities=32))
    one.queue(x_queue_type="quorum")
    for number, priority in enumerate([0, None, 0, None, 0, None]):
        more = {} if priority is None else {"priority": priority}
        one.publish(bytes([65 + number]) * 40_000, headers={"n": number}, **more)
    one.kill()
    assert one.named().paged_count > 1
    one.consume(no_ack=True, **arguments)
    one.settle()
    assert [chr(got.body[0]) for got in one.deliveries] == [*"BDFACE"]
    assert one.named().ready_count == 0


def test_without_any_priority_a_quorum_queue_keeps_its_order_over_a_restart() -> None:
    """New messages do not overtake those on disk: the level of messages without a priority is not the lowest."""
    one = Kept(memory=100_000, options=BrokerOptions(quorum_priorities=32))
    one.queue(x_queue_type="quorum")
    bodies = [letter * 40_000 for letter in "ABCD"]
    one.publish(*bodies)
    one.kill()
    one.publish("E")
    assert one.all() == "".join(bodies) + "E"


def test_a_start_reads_back_what_memory_allows() -> None:
    """Of all queues together, however many there are."""
    one = Kept(memory=40_000)
    names = [f"q{number}" for number in range(12)]
    for name in names:
        one.queue(name)
        one.publish(*[b"x" * 1000] * 10, key=name)
    one.kill()
    held = [one.named(name).store.in_memory for name in names]
    assert held[0] > 0 and held[-1] == 0
    assert [one.named(name).ready_count for name in names] == [10] * 12


def test_a_limit_that_became_smaller_meanwhile_holds_after_a_restart() -> None:
    """The oldest go before anybody gets them."""
    one = Kept(settings=SettingsRepository([entry("q", default_ring_size=9)]))
    one.queue()
    one.publish(*"abcde")
    one.settings = SettingsRepository([entry("q", default_ring_size=2)])
    one.restart()
    assert one.all() == "de"
    one.restart()
    assert one.all() == ""


def test_what_expired_meanwhile_is_dead_after_the_start() -> None:
    """Nobody has to ask the queue."""
    one = Kept()
    one.queue("dead")
    one.queue(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    one.publish("a", expiration=b"1000")
    one.crash()
    one.clock.advance_ns(2000 * MS)
    one.begin()
    one.end_turn()
    assert (one.named().ready_count, one.named("dead").ready_count) == (0, 1)


def test_a_queue_keeps_its_address() -> None:
    """One that the broker made for dead letters has theirs, and not its own name."""
    settings = entry("q", dead_letter_address="DLA", auto_create_dead_letter_resources=True)
    one = Kept(settings=SettingsRepository([settings]))
    one.queue()
    one.publish("a")
    got = one.get(no_ack=False)
    assert got is not None
    one.session.reject(got[0], requeue=False)
    one.end_turn()
    (made,) = [name for name in one.vhost.queues if name != "q"]
    assert one.named(made).address == "DLA"
    one.kill()
    assert (one.named(made).address, one.all(made)) == ("DLA", "a")


@pytest.mark.parametrize("note", ["leveret address", "leveret auto-created", "leveret hosts"])
def test_nobody_declares_what_the_journal_notes_of_a_queue(note: str) -> None:
    """It would be read back as another queue, or not at all: the broker could not start."""
    one = Kept()
    with pytest.raises(InvalidArgument) as refused:
        one.queue("q", **{note: 5})
    assert refused.value.key == note  # type: ignore[attr-defined]
    one.queue("q", **{"leveret": 5})
    one.restart()
    assert list(one.named("q").arguments) == ["leveret"]


#: Values that a client of an older broker could give an argument with the name of a note.
_ODD = (
    Field("I", 5), Field("t", False), Field("V", None), Field("d", 0.5), Field("F", {"k": Field("I", 1)}),
    Field("A", [Field("I", 1)]), Field("S", b"\xff\xfe,,"), Field("x", bytes(37)), Field("x", b"\xff" * 37),
)  # fmt: skip
_NOTES = (
    *("address", "auto-created", "makes-no-queues", "used", "first-offset", "recovery", "last-id", "notes", "hosts"),
    *("sites", "owners", "transferred", "other"),
)


@pytest.mark.parametrize("queue_type", ["classic", "quorum", "stream", "amps"])
@pytest.mark.parametrize("odd", _ODD, ids=lambda odd: f"{odd.tag}{odd.value!r:.12}")
def test_a_journal_whose_notes_a_client_wrote_opens(queue_type: str, odd: Field) -> None:
    """Older brokers let clients declare such arguments; the messages of the queue are there, and stay there."""
    one = Kept()
    for note in _NOTES:
        arguments = {"x-queue-type": Field("S", queue_type.encode()), f"leveret {note}": odd}
        one.vhost.queues.restore(note, auto_delete=False, arguments=arguments, address=None, is_auto_created=False)
        one.publish("A", key=note)
    one.settle()
    for _ in range(2):
        one.kill()
        assert {note: one.named(note).ready_count for note in _NOTES} == dict.fromkeys(_NOTES, 1)


@pytest.mark.parametrize("declared_too", [False, True])
def test_a_queue_that_was_used_is_unused_after_a_restart(declared_too: bool) -> None:
    """It goes when nobody uses it, whether its consumer left before the restart or with it; others stay."""
    settings = entry("#", auto_create_queues=True, auto_delete_created_queues=declared_too)
    one = Kept(settings=SettingsRepository([settings]), options=BrokerOptions(address_queue_scan_period_ms=100))
    for name in ("got", "left", "gone"):
        if declared_too:
            one.queue(name)
        one.publish("A", key=name)
    one.publish("A", key="never")
    assert one.all("got") == "A"
    one.consume("left", tag="left", no_ack=True)
    one.session.cancel("left")
    one.consume("gone", tag="gone", no_ack=True)
    one.settle()
    for _ in range(2):  # the second start reads a checkpoint
        one.restart()
        assert set(one.vhost.queues) == {"got", "left", "gone", "never"}
    one.advance(500)
    assert set(one.vhost.queues) == {"never"}


@pytest.mark.parametrize("recorder", [Recorder, FullRecorder])
@pytest.mark.parametrize("is_stated", [False, True])
@pytest.mark.parametrize("counts_max, tries", [(0, 1), (0, 3), (3, 3), (3, 4), (3, 7)])
def test_no_message_comes_earlier_than_due_however_often_it_was_tried(
    recorder: type[Recorder], is_stated: bool, counts_max: int, tries: int
) -> None:
    """Counts above max-redelivery-records are not written; when a message is due is, and it is not lost."""
    settings = SettingsRepository([entry("#", redelivery_delay_ms=1000, max_delivery_attempts=-1)])
    one = Kept(recorder=partial(recorder, counts_max=counts_max), settings=settings)
    one.queue(x_max_delivery_attempts=-1)
    one.publish("A")
    for _ in range(tries):
        got = one.get(no_ack=False)
        assert got is not None
        one.session.reject(got[0], requeue=True)
        one.end_turn()
        if _ < tries - 1:
            one.advance(1000)
    one.settle()
    if is_stated:
        for _ in checkpoint(one.broker, one.journal, one.recorder):
            one.journal.commit()
        one.settle()
    one.kill()
    one.advance(990)
    assert one.all() == "", "earlier than due"
    one.advance(20)
    assert one.all() == "A"
