"""A broker on a journal, with or without messages that only the journal has: for tests that compare the two."""

from __future__ import annotations

from typing import Any, ClassVar

from simulated_files import SimulatedFiles

from leveret.engine import Broker, Delivered, Envelope, ManualClock, Session, User
from leveret.engine.messages.content import PLAIN, encode_header, scan_properties
from leveret.engine.messages.field_table import FieldTable
from leveret.journal import Journal, JournalOptions
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recording.message_index import message_index
from leveret.journal.recording.pager import JournalPager
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recording.restore import restore
from leveret.journal.recording.temp_store import FileTempStore
from leveret.settings import SettingsRepository, entry

USER = User("guest")
MS = 1_000_000
#: Settings that page messages out.
MEMORY_LIMITS = frozenset({"memory_limit", "max_size_bytes", "max_size_messages", "cursor", "producer_flow_control"})
PERSISTENT: dict[str, Any] = {"delivery_mode": 2}


class DepthWorld:
    """Three sessions of one client, the last one only gets; queues `q`, `dead` and `other` behind a topic exchange `e`.

    `memory`: octets that messages may take; None: nothing leaves memory. `said`: settings of `q`.
    """

    #: Whether transient messages may leave memory, too.
    has_spool: ClassVar[bool] = True

    def __init__(
        self, arguments: FieldTable, said: dict[str, Any], *, memory: int | None, files: SimulatedFiles | None = None
    ) -> None:
        self.files = files or SimulatedFiles()
        self.clock = ManualClock()
        self.arguments, self.said, self.memory = arguments, said, memory
        self.seen: dict[str, list[tuple[bool, Any]]] = {}
        self.start()

    def start(self) -> None:
        """On what the files have."""
        self.broker = Broker(self.clock, settings=self.repository())
        options = JournalOptions(segment_size=3000, preallocate_size=0)
        self.journal = Journal.open("j", self.clock, options, files=self.files, threaded=False, new_id=bytes(16))
        self.recorder = Recorder(self.broker, self.journal, counts_max=-1)
        if self.memory is not None:
            if self.has_spool:
                self.broker.context.storage.open_temp = FileTempStore
            self.broker.context.storage.pager = JournalPager(self.broker, self.journal, self.recorder, self.memory)
        restore(self.broker, self.journal, self.recorder)
        self.client = self.broker.connections.open("/", USER, name="c", flush=self.flush)
        self.sessions: list[Session] = [self.client.open_session() for _ in range(3)]
        vhost = self.client.vhost
        self.queue = vhost.queues.declare("q", client=self.client, durable=True, arguments=self.arguments)
        vhost.exchanges.declare("e", "topic", durable=True)
        for name in ("q", "dead", "other"):
            vhost.queues.declare(
                name, client=self.client, durable=True, arguments={} if name != "q" else self.arguments
            )
            vhost.bindings.add("queue", name, "e", f"{name}.#", {})
        vhost.bindings.add("queue", "other", "e", "q.both", {})
        self.end_turn()

    def restart(self) -> None:
        """The power goes; all was safe."""
        after = self.files.power_cut()
        self.close()
        self.files = after
        self.start()

    def close(self) -> None:
        """Give everything back."""
        self.journal.close()
        self.broker.context.storage.close()

    def repository(self) -> SettingsRepository:
        """The operator's settings; where nothing leaves memory, without limits on what is there."""
        said = self.said
        if self.memory is None:
            said = {key: value for key, value in said.items() if key not in MEMORY_LIMITS}
        return SettingsRepository([entry("q", **said)])

    def flush(self) -> None:
        """The client reads what was put for it."""
        for effect in self.client.take_outbox():
            if isinstance(effect, Delivered):
                consumer: Any = effect.consumer
                list_ = self.seen.setdefault(consumer.tag, [])
                list_ += [
                    (effect.redelivered, self.content(envelope, content))
                    for _, envelope, contents in effect.runs()
                    for content in contents
                ]
        self.client.drained()

    @staticmethod
    def content(envelope: Envelope, content: bytes) -> Any:
        """What a client sees of a message."""
        return (
            envelope.framing.split(content)[1],
            sorted(envelope.headers(content)),
            envelope.routing_key,
            envelope.exchange,
        )

    def end_turn(self) -> None:
        """Until there is nothing to do now, what is due already included."""
        self._end_turn()
        while (due := self.broker.next_deadline_ns()) is not None and due <= self.clock.monotonic_ns():
            self.broker.advance()
            self._end_turn()

    def _end_turn(self) -> None:
        while self.broker.end_turn() or self.broker.scheduler.load() or self.broker.scheduler.hungry:
            self.journal.commit()
        self.journal.commit()
        assert self.journal.wait(self.journal.next_lsn)
        self.broker.more_is_safe()

    def publish(self, sizes: list[int], properties: dict[str, Any], number: int, key: str = "q.x") -> None:
        """A run of messages, numbered."""
        bodies = [b"%d.%d" % (number, index) + bytes(size) for index, size in enumerate(sizes)]
        contents = [PLAIN.join(encode_header(len(body), properties), body) for body in bodies]
        facts = scan_properties(PLAIN.split(contents[0])[0][12:])
        route = self.client.vhost.router.route("e", key, USER)
        self.sessions[2].publish(route, Envelope("e", key, facts), contents, mandatory=False)

    def advance(self, ms: int) -> None:
        """Time goes by, and what is due happens in time."""
        until = self.clock.monotonic_ns() + ms * MS
        while (due := self.broker.next_deadline_ns()) is not None and due <= until:
            self.clock.advance_ns(max(0, due - self.clock.monotonic_ns()))
            self.broker.advance()
            self.end_turn()
        self.clock.advance_ns(until - self.clock.monotonic_ns())

    def get(self, name: str = "q", *, no_ack: bool = True) -> Any:
        """What a get gives."""
        got = self.sessions[2].get(self.client.vhost.queues.named(name), no_ack=no_ack)
        if got is None:
            return None
        tag, message, redelivered, left = got
        return tag, redelivered, left, self.content(message.envelope, message.content)

    def consume(self, tag: str, *, prefetch: int = 0, no_ack: bool = True, total: bool = False, who: int = 0) -> None:
        """A subscription."""
        session = self.sessions[who]
        session.limit(prefetch, total=total)
        session.consume(self.queue, tag, no_ack=no_ack, exclusive=False, arguments={})

    def state(self) -> None:
        """A checkpoint; segments go and contents move."""
        for _ in checkpoint(self.broker, self.journal, self.recorder):
            self.journal.commit()
        self.journal.commit()
        self.journal.wait(self.journal.next_lsn)
        self.journal.old_segments.reclaim()
        base_lsn = self.journal.ledger.to_empty()
        if base_lsn is not None:
            queues_of = message_index(self.broker, self.recorder)
            for _ in self.journal.old_segments.move_forward(base_lsn, queues_of, self.recorder.contents.move):
                self.journal.commit()

    def bodies(self, tag: str) -> list[bytes]:
        """What a consumer got, without padding."""
        return [content[0].rstrip(b"\0") for _, content in self.seen.get(tag, [])]

    def facts(self) -> object:
        """What there is to compare."""
        statistics = [queue.statistics() for queue in self.client.vhost.queues.values()]
        return statistics, self.seen, [len(session.unacked) for session in self.sessions]
