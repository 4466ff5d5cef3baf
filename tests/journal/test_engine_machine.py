"""The broker on a journal, restarted at any moment: what was safe is there, and nothing comes back from the dead.

The same operations as in tests/engine/test_rules_machine.py, and moves, mixed runs, duplicate ids and another virtual
host, with restarts and power cuts between them. The model is the engine's own state when its journal was last safe, and
what happened since.
"""

from __future__ import annotations

import unittest
from typing import Any, NamedTuple

import pytest
from effort import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simulated_files import SimulatedFiles

from leveret.engine import Broker, Choice, Envelope, ManualClock, Message, Moving, Session, User, to_queue
from leveret.engine.clients.session import NACKED
from leveret.engine.messages.content import NATIVE, encode_header, scan_properties
from leveret.engine.messages.field_table import Field
from leveret.journal import Journal, JournalOptions, JournalReader, Record
from leveret.journal.format.heap import decode_runs
from leveret.journal.format.record import ENQUEUED, KEPT, RANGE, TERMINAL_CODES
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recording.full_recorder import FullRecorder
from leveret.journal.recording.message_index import message_index
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recording.restore import restore
from leveret.journal.recovery.check import verify
from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import messages

USER = User("guest")
MS = 1_000_000
PATH = "data"

SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "redelivery_delay_ms": st.sampled_from([0, 100, 5000]),
        "max_delivery_attempts": st.sampled_from([-1, 2, 5]),
        "dead_letter_address": st.sampled_from(["", "dead", "nobody"]),
        "auto_create_dead_letter_resources": st.booleans(),
        "expiry_address": st.sampled_from(["", "dead"]),
        "default_ring_size": st.sampled_from([-1, 1, 3]),
        "default_last_value_key": st.sampled_from(["", "k"]),
        "default_non_destructive": st.booleans(),
    },
)

State = dict[tuple[str, str], dict[int, "Told"]]  # (virtual host, queue) -> message id -> what is told of it
PRIORITIES = {"x-max-priority": Field("l", 2)}


class Told(NamedTuple):
    """Of a message: its body and where it was published to; attempts that failed; wall ms at which it expires, and
    until which it waits (0: never, it is ready).
    """

    body: bytes
    published_to: tuple[str, str]
    attempts: int
    priority: int
    expires_ms: int
    due_ms: int


class JournalMachine(RuleBasedStateMachine):
    """Queues `q` (with rules), `dead`, `plain` and `ranked` (with priorities), all durable, bound to a durable
    exchange; `fleeting` is not.
    """

    recorder_type: type[Recorder] = Recorder
    scope = "durable"

    @initialize(said=SETTINGS, segment_size=st.sampled_from([2000, 100_000]))
    def start(self, said: dict[str, Any], segment_size: int) -> None:
        self.clock = ManualClock()
        self.files = SimulatedFiles()
        self.rules = SettingsRepository([entry("q", **said)])
        self.options = JournalOptions(segment_size=segment_size, preallocate_size=0, scope=self.scope)
        self.open()
        vhost = self.session.client.vhost
        vhost.exchanges.declare("e", "topic", durable=True)
        for name in ("q", "dead", "plain", "ranked"):
            self.declare(name)
        self.make_safe()

    def declare(self, name: str) -> None:
        vhost = self.session.client.vhost
        arguments = PRIORITIES if name == "ranked" else {}
        vhost.queues.declare(name, client=self.session.client, durable=True, arguments=arguments)
        vhost.bindings.add("queue", name, "e", f"{name}.#", {})

    def open(self) -> None:
        """Start a broker on what the files hold."""
        self.broker = Broker(self.clock, settings=self.rules)
        self.journal = Journal.open(
            PATH, self.clock, self.options, files=self.files, threaded=False, new_id=b"0123456789abcdef"
        )
        self.recorder = self.recorder_type(self.broker, self.journal, counts_max=-1)
        restore(self.broker, self.journal, self.recorder)
        client = self.broker.connections.open("/", USER, name="c", flush=lambda: None)
        client.flush = lambda: (client.take_outbox(), client.drained())  # type: ignore[func-returns-value]
        self.session: Session = client.open_session()
        vhost = client.vhost
        vhost.queues.declare("fleeting", client=client)
        vhost.bindings.add("queue", "fleeting", "amq.topic", "#", {})
        self.end_turn()

    def end_turn(self) -> None:
        while self.broker.end_turn():
            self.journal.commit()
        self.journal.commit()

    def living(self, broker: Broker) -> State:
        """What would have to survive: not what has expired, and stands behind others that a restart may take away."""
        found: State = {}
        now = self.clock.monotonic_ns()
        for queue in (queue for vhost in broker.virtual_hosts.values() for queue in vhost.queues.values()):
            if queue.durable:
                due = {message.id: due_ns for due_ns, message in queue.scheduled.entries()}
                held = [*queue.messages(), *(() if queue.keeps_acked else queue.unacked_messages())]
                found[queue.vhost_name, queue.name] = {
                    one.id: self.told(one, due.get(one.id, 0))
                    for one in held
                    if one.envelope.summary.persistent and not 0 < one.expires_ns <= now
                }
        return found

    def told(self, message: Message, due_ns: int) -> Told:
        """A delivery that is still out is no attempt yet."""
        envelope, out = message.envelope, message.holder is not None
        return Told(
            message.body,
            (envelope.exchange, envelope.routing_key),
            max(0, message.deliveries - message.uncounted - out),
            envelope.summary.priority or 0,
            *(time_ns and self.clock.wall_ms() + (time_ns - self.clock.monotonic_ns()) // MS
              for time_ns in (message.expires_ns, due_ns)),
        )  # fmt: skip

    def ids(self, broker: Broker) -> dict[tuple[str, str], dict[str, int]]:
        """The duplicate ids that have to survive, by virtual host and address, with the message that brought each."""
        caches = {
            (vhost.name, address): {id_: message_id for id_ in cache.ids() if (message_id := cache.message_id_of(id_))}
            for vhost in broker.virtual_hosts.values()
            for address, cache in vhost.context.id_caches.items()
        }
        return {place: ids for place, ids in caches.items() if ids}

    def make_safe(self) -> None:
        """Wait for the disk."""
        self.end_turn()
        assert self.journal.wait(self.journal.next_lsn)

    # -- operations -------------------------------------------------------------------------------------------------

    @rule(
        bodies=st.lists(st.binary(max_size=20), min_size=1, max_size=5),
        key=st.sampled_from(["q.a", "q.b", "dead.x", "plain.z", "ranked.a", "nowhere"]),
        exchange=st.sampled_from(["e", "e", "amq.topic"]),
        persistent=st.booleans(),
        value=st.sampled_from([None, b"x", b"y"]),
        delay=st.sampled_from([None, None, 2000]),
        expiration=st.sampled_from([None, None, b"700"]),
        priority=st.sampled_from([None, 1, 9]),
        id_=st.sampled_from([None, None, b"one", b"two"]),
    )
    def publish(
        self,
        bodies: list[bytes],
        key: str,
        exchange: str,
        persistent: bool,
        value: bytes | None,
        delay: int | None,
        expiration: bytes | None,
        priority: int | None,
        id_: bytes | None,
    ) -> None:
        table = {} if value is None else {"k": Field("S", value)}
        if id_ is not None:
            table["_AMQ_DUPL_ID"] = Field("S", id_)
        if delay is not None:
            table["x-delay"] = Field("l", delay)
        properties: dict[str, Any] = {
            "headers": table,
            "expiration": expiration,
            "delivery_mode": 2 if persistent else 1,
            "priority": priority,
        }
        contents = [NATIVE.join(encode_header(len(body), properties), body) for body in bodies]
        facts = scan_properties(NATIVE.split(contents[0])[0][12:])
        vhost = self.session.client.vhost
        self.session.publish(
            vhost.router.route(exchange, key, USER), Envelope(exchange, key, facts), contents, mandatory=False
        )
        self.end_turn()

    @rule(
        name=st.sampled_from(["plain", "ranked", "q", "fleeting"]),
        run=st.lists(
            st.tuples(st.binary(max_size=9), st.sampled_from([1, 2, 2]), st.sampled_from([None, 0, 1, 2])),
            min_size=2,
            max_size=6,
        ),
    )
    def publish_mixed(self, name: str, run: list[tuple[bytes, int, int | None]]) -> None:
        """Messages that are not alike, read together."""
        made = [messages([body], {"delivery_mode": mode, "priority": priority}) for body, mode, priority in run]
        queue = self.broker.virtual_hosts["/"].queues.named(name)
        envelopes = [Envelope("", name, summary) for summary, _ in made]
        self.session.publish_mixed([queue] * len(made), envelopes, [content for _, (content,) in made])
        self.end_turn()

    @rule(name=st.sampled_from(["q", "dead", "plain", "ranked"]), to=st.sampled_from(["plain", "ranked", "fleeting"]))
    def move(self, name: str, to: str) -> None:
        """An operator moves the first message of a queue, or two."""
        client, queue = self.session.client, self.broker.virtual_hosts["/"].queues.named(name)
        if name != to and not queue.kind.move_refusal:
            Moving(queue, client, Choice(lambda _: True, limit=2), to_queue(client, to), "moved").work()
        self.end_turn()

    @rule(bodies=st.lists(st.binary(max_size=9), max_size=3))
    def change_virtual_host(self, bodies: list[bytes]) -> None:
        """Another virtual host is deleted with all that is in it, or made with a queue and messages."""
        if "v" in self.broker.virtual_hosts:
            self.broker.virtual_hosts.delete("v")
        else:
            vhost = self.broker.virtual_hosts.create("v")
            client = self.broker.connections.open("v", USER, name="v", flush=lambda: None)
            vhost.exchanges.declare("e", "direct", durable=True)
            vhost.queues.declare("plain", client=client, durable=True)
            vhost.bindings.add("queue", "plain", "e", "k", {})
            table = {"_AMQ_DUPL_ID": Field("S", b"one")}
            summary, contents = messages(bodies, {"delivery_mode": 2, "headers": table})
            if bodies:
                client.open_session().publish(
                    vhost.router.route("e", "k", USER), Envelope("e", "k", summary), contents, mandatory=False
                )
            client.close()
        self.end_turn()

    @rule(
        name=st.sampled_from(["q", "dead", "plain", "ranked", "fleeting"]),
        no_ack=st.booleans(),
        count=st.integers(1, 4),
    )
    def get(self, name: str, no_ack: bool, count: int) -> None:
        for _ in range(count):
            self.session.get(self.broker.virtual_hosts["/"].queues.named(name), no_ack=no_ack)
        self.end_turn()

    @rule(which=st.integers(0, 9), how=st.sampled_from(["ack", "nack", "reject"]), multiple=st.booleans())
    def settle(self, which: int, how: str, multiple: bool) -> None:
        tags = list(self.session.unacked)
        if tags:
            tag = tags[which % len(tags)]
            if how == "ack":
                self.session.ack(tag, multiple=multiple)
            else:
                self.session.reject(tag, multiple=multiple, requeue=how == "nack", why=NACKED)
        self.end_turn()

    @rule(name=st.sampled_from(["q", "dead", "plain", "fleeting"]))
    def purge(self, name: str) -> None:
        self.broker.virtual_hosts["/"].queues.named(name).purge()
        self.end_turn()

    @rule()
    def delete_and_declare(self) -> None:
        vhost = self.session.client.vhost
        vhost.queues.delete("plain", self.session.client)
        self.end_turn()
        self.declare("plain")
        self.end_turn()

    @rule(ms=st.sampled_from([1, 400, 6000]))
    def advance(self, ms: int) -> None:
        until = self.clock.monotonic_ns() + ms * MS
        while (due := self.broker.next_deadline_ns()) is not None and due <= until:
            self.clock.advance_ns(max(0, due - self.clock.monotonic_ns()))
            self.broker.advance()
            self.end_turn()
        self.clock.advance_ns(until - self.clock.monotonic_ns())

    @rule()
    def checkpoint(self) -> None:
        """In one go; its slices between turns are in test_checkpoints_between_turns."""
        self.end_turn()
        for _ in checkpoint(self.broker, self.journal, self.recorder):
            self.journal.commit()
        self.journal.commit()
        self.make_safe()
        self.journal.old_segments.reclaim()
        base_lsn = self.journal.usage.worth_emptying()
        if base_lsn is not None:
            queues_of = message_index(self.broker, self.recorder.objects)
            for _ in self.journal.old_segments.move_forward(base_lsn, queues_of, self.recorder.messages.contents.move):
                self.journal.commit()
            self.journal.commit()

    @rule()
    def sync(self) -> None:
        self.make_safe()

    @rule()
    def kill_when_safe(self) -> None:
        """The process dies; everything was on the disk."""
        self.make_safe()
        before = self.living(self.broker)
        self.journal.contents.close()
        self.files = self.files.power_cut()
        self.open()
        assert self.living(self.broker)["/", "plain"] == before["/", "plain"]
        self.make_safe()

    # -- what always holds --------------------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "session"))
    @invariant()
    def a_restart_now_would_find_it(self) -> None:
        """The journal's own reading of itself agrees with the engine, message by message."""
        if self.journal.next_lsn > self.journal.committed_lsn:
            assert self.journal.wait(self.journal.next_lsn)
        broker = Broker(self.clock, settings=SettingsRepository())
        files = self.files.power_cut()
        journal = Journal.open(PATH, self.clock, self.options, files=files, threaded=False)
        restore(broker, journal, self.recorder_type(broker, journal, counts_max=-1))
        assert self.living(broker) == self.living(self.broker)
        assert self.ids(broker) == self.ids(self.broker)


class TestJournalled(JournalMachine.TestCase):  # type: ignore[misc,valid-type]
    """Many short stories."""

    settings = settings(
        max_examples=examples(60),
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class FullMachine(JournalMachine):
    """The same with everything recorded: recovery passes over what is history alone."""

    recorder_type = FullRecorder
    scope = "all"

    def teardown(self) -> None:
        """What was written is sound, and says of each (message, queue) that it came once and went at most once."""
        if not hasattr(self, "session"):
            return
        self.make_safe()
        report = verify(PATH, self.files)
        assert not report.faults, report.faults
        seen: dict[tuple[int, int], list[str]] = {}
        for _, record in JournalReader(PATH, self.files).records(trust_open=True):
            word = "enqueued" if record.kind == ENQUEUED else "gone" if record.kind in TERMINAL_CODES else ""
            if word and not record.flags & KEPT:
                for id_ in ids_of(record):
                    seen.setdefault((id_, record.queue_id), []).append(word)
        for (id_, _), words in seen.items():
            # What a checkpoint made it possible to forget begins later; what never came in was dropped.
            assert words in (["enqueued"], ["enqueued", "gone"], ["gone"]), (id_, words)


def ids_of(record: Record) -> list[int]:
    """The messages that a record is about."""
    if not record.flags & RANGE:
        return [record.msg_id]
    runs = decode_runs(record.heap) if record.heap else [(record.msg_id, record.size)]
    return [id_ for first, count in runs for id_ in range(first, first + count)]


class TestFullyJournalled(FullMachine.TestCase):  # type: ignore[misc,valid-type]
    """Many short stories."""

    settings = TestJournalled.settings


assert issubclass(TestJournalled, unittest.TestCase)
pytestmark = pytest.mark.filterwarnings("error")
