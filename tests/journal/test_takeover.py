"""A node takes over: what it restores was perhaps delivered by the node that led before."""

from functools import partial
from typing import Any

import pytest
from simulated_files import SimulatedFiles

from leveret.engine import Broker, Session
from leveret.journal import Journal, JournalOptions
from leveret.journal.format.record import REDELIVERED
from leveret.journal.recording.full_recorder import FullRecorder
from leveret.journal.recording.recorder import Recorder
from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import Delivery, Harness


class Node(Harness):
    """A broker on simulated files. Messages are persistent; `take_over`: another node goes on with its journal."""

    properties = {"delivery_mode": 2}

    def __init__(self, settings: str = "", **options: Any) -> None:
        super().__init__(settings, journal=SimulatedFiles(), **options)

    def take_over(self) -> None:
        self.settle()
        self.took_over = True
        self.kill(power_cut=True)

    def seen(self) -> list[tuple[str, bool]]:
        """Body and redelivered flag of the deliveries since the last look."""
        seen, self.deliveries = self.deliveries, []
        return [(one.body.decode(), one.redelivered) for one in seen]


class HoldingRecorder(Recorder):
    """Of a node in a cluster with persist-delivery-count-before-delivery."""

    def __init__(self, broker: Broker, journal: Journal) -> None:
        super().__init__(broker, journal, persists_deliveries=True)
        self.hold_deliveries()


KINDS: list[dict[str, Any]] = [
    {},
    {"x_queue_type": "quorum"},
    {"x_max_priority": 5},
    {"x_last_value_key": "key"},
    {"x_non_destructive": True},
    {"x_queue_type": "stream"},
    {"x_queue_type": "amps", "x_max_backlog_per_consumer": 100},
    {"x_queue_type": "amps", "x_max_backlog_per_consumer": 100, "x_semantics": "at-most-once"},
    {"x_single_active_consumer": True},
    {"x_message_ttl": 1_000_000},
    {"x_group_buckets": 4},
]


def consume(node: Node, arguments: dict[str, Any]) -> Session:
    """Subscribe from a connection of its own, from the first message on."""
    session = node.connect("consumer")
    is_stream = arguments.get("x_queue_type") == "stream"
    node.consume(by=session, prefetch=100, **({"x_stream_offset": "first"} if is_stream else {}))
    return session


@pytest.mark.parametrize("arguments", KINDS, ids=str)
def test_first_deliveries_after_a_takeover_are_redeliveries(arguments: dict[str, Any]) -> None:
    """Of what no client ever had, too: nobody knows."""
    node = Node()
    node.queue(**arguments)
    node.publish("A", headers={"key": "a"})
    node.publish("B", headers={"key": "b"})
    node.take_over()
    consume(node, arguments)
    node.publish("C", headers={"key": "c"})
    node.settle()
    assert node.seen() == [("A", True), ("B", True), ("C", False)]


@pytest.mark.parametrize("arguments", KINDS, ids=str)
def test_a_start_in_the_same_place_flags_nothing(arguments: dict[str, Any]) -> None:
    """As ever: what was out then is ready again, and not known."""
    node = Node()
    node.queue(**arguments)
    node.publish("A", headers={"key": "a"})
    node.settle()
    node.kill(power_cut=True)
    consume(node, arguments)
    node.settle()
    assert node.seen() == [("A", False)]


@pytest.mark.parametrize("kind", ["classic", "quorum", "amps"])
def test_gets_after_a_takeover_are_redeliveries(kind: str) -> None:
    """Of restored messages only."""
    node = Node(kind=kind)
    node.queue()
    node.publish("A")
    node.take_over()
    node.publish("B")
    first, second = node.get(no_ack=False), node.get(no_ack=False)
    assert first is not None and second is not None
    assert (first[1].body, first[2], second[1].body, second[2]) == (b"A", True, b"B", False)


def test_the_counters_say_the_same() -> None:
    """They count what clients were told."""
    node = Node()
    node.queue()
    node.publish(*"ABC")
    node.take_over()
    node.publish("D")
    session = consume(node, {})
    assert node.named().counters.redelivered == session.redelivered == 3


@pytest.mark.parametrize("arguments", KINDS, ids=str)
def test_limits_that_come_after_a_takeover_change_no_flag(arguments: dict[str, Any]) -> None:
    """A reload that limits the queue, and one that does not any more."""
    node = Node()
    node.queue(**arguments)
    node.publish("A", headers={"key": "a"})
    node.take_over()
    node.reload(SettingsRepository([entry("q", memory_limit=1_000_000, cursor="vm")]))
    node.reload(SettingsRepository())
    consume(node, arguments)
    node.settle()
    assert node.seen() == [("A", True)]


def test_leased_messages_of_several_kinds_are_told_apart() -> None:
    """Each with headers of its own: old ones are redelivered, new ones are not."""
    node = Node(kind="amps")
    node.queue(x_max_backlog_per_consumer=100)
    node.publish("A", headers={"k": 1})
    node.publish("B", headers={"k": 2}, priority=3)
    node.take_over()
    node.publish("C", headers={"k": 3}, priority=4)
    node.publish("D", headers={"k": 4})
    consume(node, {})
    node.settle()
    assert sorted(node.seen()) == [("A", True), ("B", True), ("C", False), ("D", False)]


def test_barriers_are_redelivered_too() -> None:
    """A barrier goes to each consumer; perhaps it did before."""
    node = Node(kind="amps")
    node.queue(x_barrier_expr="/stop = 1")
    node.publish('{"stop": 1, "n": "A"}')
    node.take_over()
    node.publish('{"stop": 1, "n": "B"}')
    consume(node, {})
    node.settle()
    assert all("x-barrier" in one.headers for one in node.deliveries)
    assert [is_redelivered for _, is_redelivered in node.seen()] == [True, False]


def test_no_attempt_is_counted() -> None:
    """Delivery limit and redelivery delay begin with the first attempt that fails; the count tells nothing else."""
    node = Node()
    node.queue(x_max_delivery_attempts=2, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    node.queue("dead")
    node.publish("A")
    node.take_over()
    got = node.get(no_ack=False)
    assert got is not None and got[2] and "x-delivery-count" not in got[1].envelope.headers(got[1].content)
    node.session.reject(got[0], requeue=True, why="nacked")
    node.end_turn()
    assert node.named().ready_count == 1 and node.named("dead").ready_count == 0
    got = node.get(no_ack=False)
    assert got is not None
    node.session.reject(got[0], requeue=True, why="nacked")
    node.end_turn()
    assert node.named().ready_count == 0 and node.named("dead").ready_count == 1


def test_a_checkpoint_has_nothing_of_it() -> None:
    """The next start in the same place, which is no takeover, knows the flag of what was counted only."""
    node = Node()
    node.queue()
    node.publish(*"AB")
    node.take_over()
    node.took_over = False
    node.restart()
    consume(node, {})
    assert node.seen() == [("A", False), ("B", False)]


@pytest.mark.parametrize("count", [10, 3000])
def test_deep_queues(count: int) -> None:
    """Messages that go from the disk straight to consumers, as new ones do, are told apart by their ids."""
    node = Node(memory=1)
    node.queue()
    node.publish(*["old"] * count)
    node.take_over()
    node.publish(*["new"] * count)
    node.settle()
    session = node.connect("consumer")
    node.consume(by=session, prefetch=0)
    for _ in range(100):
        node.settle()
    assert node.seen() == [("old", True)] * count + [("new", False)] * count


def test_it_is_exact_where_counts_are_recorded_before_deliveries() -> None:
    """persist-delivery-count-before-delivery: a message that was not out is delivered for the first time."""
    node = Node(recorder=partial(Recorder, persists_deliveries=True))
    node.queue()
    node.queue("stream", x_queue_type="stream")
    node.publish(*"AB")
    node.publish("C", key="stream")
    assert node.get(no_ack=False) is not None
    node.take_over()
    consume(node, {})
    assert node.seen() == [("A", True), ("B", False)]
    node.consume("stream", by=node.connect(), prefetch=10, x_stream_offset="first")
    node.settle()
    assert node.seen() == [("C", True)]  # counts of streams are not recorded


def test_counts_of_deliveries_are_recorded_on_a_node_that_holds_them_back() -> None:
    """persist-delivery-count-before-delivery is no less in a cluster: what was out comes again as redelivered."""
    node = Node(recorder=HoldingRecorder)
    node.queue(x_queue_type="quorum")
    node.publish(*"AB")
    assert node.get(no_ack=False) is not None
    node.settle()
    node.kill(power_cut=True)
    consume(node, {})
    assert node.seen() == [("A", True), ("B", False)]


def test_the_history_says_what_clients_were_told() -> None:
    """scope = "all": the flag is in the record of the delivery."""
    node = Node(recorder=FullRecorder, journal_options=JournalOptions(preallocate_size=0, scope="all"))
    node.queue()
    node.publish("A")
    node.take_over()
    node.publish("B")
    consume(node, {})
    node.settle()
    delivered = [record for record in node.records() if record.name == "delivered"]
    assert [bool(record.flags & REDELIVERED) for record in delivered] == [True, False]


def test_messages_that_wait_for_their_time_are_redelivered_when_they_are_due() -> None:
    """They are older than the takeover."""
    node = Node()
    node.queue(x_redelivery_delay=1000)
    node.publish("A")
    got = node.get(no_ack=False)
    assert got is not None
    node.session.reject(got[0], requeue=True, why="nacked")
    node.take_over()
    consume(node, {})
    assert node.seen() == []
    node.advance(1000)
    assert node.seen() == [("A", True)]


@pytest.mark.parametrize("lost", [0, 1, 100])
def test_ids_go_on_far_above_those_that_the_lost_node_used(lost: int) -> None:
    """Its last records may have been cut: no id of them, and no bookmark, means another message later."""
    node = Node(kind="amps")
    node.queue(x_max_backlog_per_consumer=100)
    node.publish(*"ABC")
    node.settle()
    kept = node.files.power_cut()
    if lost:
        node.publish(*["X"] * lost)
    node.broker.context.next_id += 1000  # transient messages, which have no records
    last_id = node.broker.context.next_id - 1
    node.files, node.took_over = kept, True
    node.begin()
    assert node.broker.context.next_id >= last_id + (1 << 24)
    node.publish("D")
    node.consume(prefetch=10)
    bookmarks: list[Delivery] = node.deliveries
    assert [one.body for one in bookmarks] == [b"A", b"B", b"C", b"D"]
    ids = [int(str(one.headers["x-bookmark"].text).split("|")[1]) for one in bookmarks]
    assert ids[-1] > last_id and ids[:3] == [1, 2, 3]


def test_offsets_of_a_stream_go_on_where_they_were() -> None:
    """An offset that a consumer knows means the same message."""
    node = Node(kind="stream")
    node.queue()
    node.publish(*"AB")
    node.take_over()
    node.publish("C")
    node.consume(prefetch=10, x_stream_offset=1)
    node.settle()
    found = [(one.body, one.headers["x-stream-offset"].value) for one in node.deliveries]
    assert found == [(b"B", 1), (b"C", 2)]


def test_a_duplicate_id_travels_with_the_journal() -> None:
    """A publisher that did not hear the confirm sends again, to the node that leads now: the message is there once."""
    node = Node()
    node.queue()
    node.publish("A", headers={"_AMQ_DUPL_ID": "1"})
    node.take_over()
    node.publish("A", headers={"_AMQ_DUPL_ID": "1"})
    node.publish("B", headers={"_AMQ_DUPL_ID": "2"})
    assert node.all() == "AB"


def test_short_leads_add_up_to_a_checkpoint() -> None:
    """No leader appends enough for a checkpoint of its own; each would read the records of all before it for ever."""
    node = Node(journal_options=JournalOptions(segment_size=20_000, preallocate_size=0))
    node.queue()
    node.took_over = True
    sizes = []
    for _ in range(60):
        if node.journal.checkpoints.is_due:
            node.checkpoint(reclaims=True)
        node.publish(b"A" * 300)
        assert node.all() == "A" * 300
        node.settle()
        node.kill()
        sizes.append(sum(segment.size for segment in node.journal.usage.segments))
    assert max(sizes) < 2 * 20_000
