"""The broker on a journal, restarted at any moment: what was safe is there, and nothing comes back from the dead.

The same operations as in tests/engine/test_rules_machine.py, with restarts and power cuts between them. The model is
the engine's own state when its journal was last safe, and what happened since.
"""

from __future__ import annotations

import unittest
from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simulated_files import SimulatedFiles

from leveret.engine import Broker, Envelope, ManualClock, Message, Session, User
from leveret.engine.clients.session import NACKED
from leveret.engine.messages.content import PLAIN, encode_header, scan_properties
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

State = dict[str, dict[int, tuple[bytes, int]]]  # queue -> message id -> (body, counted attempts)


class JournalMachine(RuleBasedStateMachine):
    """Queues `q` (with rules), `dead` and `plain`, all durable, bound to a durable exchange; `fleeting` is not."""

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
        for name in ("q", "dead", "plain"):
            vhost.queues.declare(name, client=self.session.client, durable=True)
            vhost.bindings.add("queue", name, "e", f"{name}.#", {})
        self.make_safe()

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
        for queue in broker.virtual_hosts["/"].queues.values():
            if queue.durable:
                held = [*queue.messages(), *(() if queue.keeps else queue.unacked_messages())]
                found[queue.name] = {
                    one.id: self.facts(one)
                    for one in held
                    if one.envelope.summary.persistent and not 0 < one.expires_ns <= now
                }
        return found

    @staticmethod
    def facts(message: Message) -> tuple[bytes, int]:
        """Body and attempts that failed: a delivery that is still out does not count yet."""
        out = message.holder is not None
        return message.body, max(0, message.deliveries - message.uncounted - out)

    def make_safe(self) -> None:
        """Wait for the disk."""
        self.end_turn()
        assert self.journal.wait(self.journal.next_lsn)

    # -- operations -------------------------------------------------------------------------------------------------

    @rule(
        bodies=st.lists(st.binary(max_size=20), min_size=1, max_size=5),
        key=st.sampled_from(["q.a", "q.b", "dead.x", "plain.z", "nowhere"]),
        exchange=st.sampled_from(["e", "e", "amq.topic"]),
        persistent=st.booleans(),
        value=st.sampled_from([None, b"x", b"y"]),
        delay=st.sampled_from([None, None, 2000]),
        expiration=st.sampled_from([None, None, b"700"]),
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
    ) -> None:
        table = {} if value is None else {"k": Field("S", value)}
        if delay is not None:
            table["x-delay"] = Field("l", delay)
        properties: dict[str, Any] = {
            "headers": table,
            "expiration": expiration,
            "delivery_mode": 2 if persistent else 1,
        }
        contents = [PLAIN.join(encode_header(len(body), properties), body) for body in bodies]
        facts = scan_properties(PLAIN.split(contents[0])[0][12:])
        vhost = self.session.client.vhost
        self.session.publish(
            vhost.router.route(exchange, key, USER), Envelope(exchange, key, facts), contents, mandatory=False
        )
        self.end_turn()

    @rule(name=st.sampled_from(["q", "dead", "plain", "fleeting"]), no_ack=st.booleans(), count=st.integers(1, 4))
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
        vhost.queues.declare("plain", client=self.session.client, durable=True)
        vhost.bindings.add("queue", "plain", "e", "plain.#", {})
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
        base_lsn = self.journal.ledger.to_empty()
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
        assert self.living(self.broker)["plain"] == before["plain"]
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


class TestJournalled(JournalMachine.TestCase):  # type: ignore[misc,name-defined]
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


class TestFullyJournalled(FullMachine.TestCase):  # type: ignore[misc,name-defined]
    """Many short stories."""

    settings = TestJournalled.settings


assert issubclass(TestJournalled, unittest.TestCase)
pytestmark = pytest.mark.filterwarnings("error")
