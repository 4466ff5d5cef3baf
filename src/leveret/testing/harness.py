"""A broker on virtual time, without sockets and threads, for tests of queues, policies and the journal.

    harness = Harness('[[address-setting]]\\nmatch = "q"\\ndefault-ring-size = 3')
    harness.queue()
    harness.publish(*"ABCD")
    assert harness.all() == "BCD"

Verbs call the engine as a frontend does. Those that move messages, and a reload, end the turn, unless `ends_turns` is
False; declarations and bindings do not.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from ..configured.configured import ConfiguredObjects
from ..configured.options import broker_options
from ..engine import (
    NATIVE,
    Broker,
    Client,
    Consumer,
    Delivered,
    Effect,
    Envelope,
    FieldTable,
    ManualClock,
    Message,
    PropertySummary,
    Queue,
    Route,
    Session,
    User,
    Users,
    encode_header,
    hash_password,
    scan_properties,
)
from ..engine.invariants import check_broker
from ..journal import REAL, Files, Journal, JournalFull, JournalOptions, JournalReader, Record
from ..journal.recording.checkpoint import checkpoint, empty_segment
from ..journal.recording.pager import JournalPager
from ..journal.recording.recorder import Recorder
from ..journal.recording.restore import restore
from ..journal.recording.temp_store import FileTempStore
from ..settings import NO_SETTINGS, Configuration, SettingsRepository, load_configuration
from .memory_pager import MemoryPager, MemoryTempStore
from .wire_values import wire_property, wire_table

GUEST = User("guest", hash_password("guest", b"salt"), ("administrator",), loopback_only=True)
#: The directory of a journal on simulated files.
DATA = "data"


class KillableFiles(Files, Protocol):
    """Files in memory that can lose what a killed process, or a power cut, loses."""

    def crash(self) -> "KillableFiles":
        """The files after a kill of the process."""

    def power_cut(self) -> "KillableFiles":
        """The files after a power cut."""


class Delivery(NamedTuple):
    """A message as its consumer received it."""

    consumer: Consumer
    tag: int
    envelope: Envelope
    content: bytes
    redelivered: bool

    @property
    def body(self) -> bytes:
        """The octets of the body."""
        return self.envelope.framing.split(self.content)[1]

    @property
    def headers(self) -> FieldTable:
        """The headers that the frontend would send."""
        return self.envelope.headers(self.content)


def load(settings: str, name: str = "harness.toml") -> Configuration:
    """The configuration of a TOML text without faults. `name`: the file in the positions of its settings."""
    configuration, faults = load_configuration([(name, settings)])
    assert not faults, faults
    return configuration


def arguments_of(values: Mapping[str, Any]) -> FieldTable:
    """The field table of keywords, whose underscores become dashes."""
    return wire_table({key.replace("_", "-"): value for key, value in values.items()})


def messages(bodies: Iterable[bytes | str], properties: Mapping[str, Any]) -> tuple[PropertySummary, list[bytes]]:
    """The summary of messages with the same properties, and their contents. Values are Python's or `Field`s."""
    values = {name: wire_property(value) for name, value in properties.items()}
    if "headers" in values:
        values["headers"] = wire_table(properties["headers"])
    contents, headers = [], {0: encode_header(0, values)}  # by size of the body
    for body in bodies:
        octets = body.encode() if isinstance(body, str) else body
        if len(octets) not in headers:
            headers[len(octets)] = encode_header(len(octets), values)
        contents.append(NATIVE.join(headers[len(octets)], octets))
    return scan_properties(headers[0][12:]), contents


class Harness:
    """A broker on virtual time, with a client whose `session` publishes and gets.

    `settings`: TOML, or a repository. `kind`: the x-queue-type of queues that name none. `broker`: see `Broker`.
    `memory`: maximum octets of messages in memory; None: no limit.
    `journal`: the directory of a journal, or files in memory; None: no journal.
    `deliveries`: deliveries to clients; `effects`: other effects for them; `stalled`: clients that do not read.
    """

    #: Whether `begin` connects a client.
    has_client = True
    #: Whether verbs end the turn.
    ends_turns = True
    #: Whether the broker's invariants are checked after each turn.
    checks = False
    #: Whether the end of a turn writes its records; False: `settle` writes them.
    writes = True
    #: Whether the journal may fail; then the recorder is told, and `failures` has the errors.
    may_fail = False
    #: Default properties of messages.
    properties: ClassVar[Mapping[str, Any]] = {}
    #: Whether the next broker takes over from another node of a cluster.
    took_over = False
    #: Whether transient messages may leave memory.
    has_temp_store = True

    def __init__(
        self,
        settings: str | SettingsRepository = NO_SETTINGS,
        *,
        journal: Path | KillableFiles | None = None,
        journal_options: JournalOptions = JournalOptions(preallocate_size=0),  # noqa: B008
        recorder: Callable[[Broker, Journal], Recorder] = Recorder,
        memory: int | None = None,
        kind: str = "classic",
        clock: ManualClock | None = None,
        **broker: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.settings, self.memory, self.kind = settings, memory, kind
        self.user: User = broker.pop("user", GUEST)
        self.files: Any = REAL if isinstance(journal, Path) else journal
        self.path = str(journal) if isinstance(journal, Path) else DATA
        self.journal: Any = None
        self._journal_options, self._make_recorder, self._options = journal_options, recorder, broker
        self.begin()

    # -- life -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make a broker, and restore it from the journal, if there is one.

        Subclasses declare here the objects of each new broker.
        """
        settings, options = self.settings, {"users": Users([self.user]), **self._options}
        configuration = load(settings) if isinstance(settings, str) else None
        if configuration is not None:
            options = {"options": broker_options(configuration), **options}
        repository = settings if configuration is None else configuration.repository
        broker = self.broker = Broker(self.clock, settings=repository, **options)  # type: ignore[arg-type]
        self.vhost = broker.virtual_hosts["/"]
        self.deliveries: list[Delivery] = []
        self.effects: list[Effect] = []
        self.stalled: set[Client] = set()
        self.failures: list[Exception] = []
        self._confirmed: dict[Session, int] = {}
        if self.files is not None:
            self._open_journal()
        self._limit_memory()
        if self.files is not None:
            restore(broker, self.journal, self.recorder, took_over=self.took_over)
        if configuration is not None:
            self.objects = ConfiguredObjects(broker, configuration)
            self.objects.apply(configuration)
        if self.has_client:
            self.session = self.connect()
            self.client: Client = self.session.client

    def _open_journal(self) -> None:
        new_id = None if self.files is REAL else bytes(16)
        self.journal = Journal.open(
            self.path, self.clock, self._journal_options, files=self.files, threaded=False, new_id=new_id
        )
        self.recorder = self._make_recorder(self.broker, self.journal)
        if self.may_fail:
            self.journal.set_callbacks(lambda lsn: None, self._failed)

    def _failed(self, error: Exception) -> None:
        self.failures.append(error)
        self.recorder.fail(for_good=not isinstance(error, JournalFull))

    def _limit_memory(self) -> None:
        storage = self.broker.context.storage
        if self.memory is None:
            return
        if self.journal is not None:
            storage.pager = JournalPager(self.broker, self.journal, self.recorder, self.memory)
            open_temp: Any = FileTempStore
        else:
            storage.pager = pager = MemoryPager(self.memory)
            self.broker.context.listeners.append(pager.record)
            open_temp = lambda: MemoryTempStore(1 << 40)  # noqa: E731
        if self.has_temp_store:
            storage.open_temp = open_temp

    def close(self) -> None:
        """End without a checkpoint, and release the files."""
        if self.journal is not None:
            self.journal.close()
        self.broker.context.storage.close()

    def restart(self) -> None:
        """End as after SIGTERM, and begin again from the disk."""
        self.checkpoint()
        self.close()
        self.begin()

    def kill(self, *, power_cut: bool = False) -> None:
        """End as after a kill, and begin again from the written octets.

        power_cut: from the synced octets, if the files are in memory; real files keep all written ones.
        """
        self.crash(power_cut=power_cut)
        self.begin()

    def crash(self, *, power_cut: bool = False) -> None:
        """End as after a kill or a power cut, and keep what is left of the files. Real files lose nothing."""
        if self.files is REAL:
            os.close(self.journal.writer.file._handle)
            self.journal.contents.close()
            self.journal._directory.close()
            self.broker.context.storage.close()
        else:
            left = self.files.power_cut() if power_cut else self.files.crash()
            self.close()
            self.files = left

    # -- time and turns ---------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """End one turn. Returns whether the broker wants another one."""
        is_more = self.broker.end_turn() or self.broker.scheduler.load()
        if self.checks:
            check_broker(self.broker)
        if self.journal is not None and self.writes:
            self.journal.commit()
        return is_more

    def end_turn(self) -> None:
        """End turns, and run due work, until nothing is left to do now."""
        self.finish_turns()
        while (due_ns := self.broker.next_deadline_ns()) is not None and due_ns <= self.clock.monotonic_ns():
            self.broker.advance()
            self.finish_turns()

    def finish_turns(self) -> None:
        """End turns until the broker wants no other. Do not run due work."""
        while self.turn():
            pass
        if self.journal is not None and self.writes:
            self.write_journal()

    def turns(self, measure: Callable[[], int]) -> Iterator[int]:
        """End turns one by one until the broker wants no other. Yields the change of `measure()` by each."""
        is_more = True
        while is_more:
            before = measure()
            is_more = self.turn()
            yield measure() - before

    def write_journal(self) -> None:
        """Write the records, and tell the broker that they are safe. No turn ends."""
        self.journal.commit()
        assert self.journal.wait(self.journal.next_lsn) or self.may_fail
        self.broker.release_awaiting()

    def settle(self) -> None:
        """Write the records, and end turns."""
        if self.journal is not None:
            self.write_journal()
        self.end_turn()

    def _acted(self) -> None:
        if self.ends_turns:
            self.end_turn()

    def advance(self, ms: float) -> None:
        """Advance time from deadline to deadline, and run due work at each."""
        until_ns = self.clock.monotonic_ns() + int(ms * 1e6)
        while (due_ns := self.broker.next_deadline_ns()) is not None and due_ns <= until_ns:
            self.clock.advance_ns(max(0, due_ns - self.clock.monotonic_ns()))
            self.broker.advance()
            self.follow_up()
        self.clock.advance_ns(until_ns - self.clock.monotonic_ns())

    def follow_up(self) -> None:
        """Called after due work; subclasses may do more."""
        self.end_turn()

    def reload(self, settings: str | SettingsRepository) -> None:
        """Replace the settings. TOML is possible only if the harness began with TOML."""
        if isinstance(settings, str):
            self.objects.apply(load(settings))
        else:
            self.broker.reloading.replace_settings(settings, self.broker.context.options)
        self._acted()

    # -- clients ----------------------------------------------------------------------------------------------------

    def connect(
        self, name: str = "client", *, flush: Callable[[], object] | None = None, site: str | None = None
    ) -> Session:
        """A session of a new connection, which reads its output at once. `flush`: called instead."""
        client: Client = self.broker.connections.open(
            "/", self.user, name=name, flush=flush or (lambda: self.read(client)), site=site
        )
        return client.open_session()

    def read(self, client: Client) -> None:
        """Note a client's output. A stalled client does not tell the broker that it has read it."""
        for effect in client.take_outbox():
            if isinstance(effect, Delivered):
                self.deliveries += [
                    Delivery(effect.consumer, tag, envelope, content, effect.redelivered)
                    for first_tag, envelope, contents in effect.runs()
                    for tag, content in enumerate(contents, first_tag)
                ]
            else:
                self.effects.append(effect)
        if client not in self.stalled:
            client.drained()

    def taken(self, tag: str | None = None) -> str:
        """The joined bodies of the deliveries since the last call. `tag`: only of one consumer; the others stay."""
        taken = [one for one in self.deliveries if tag in (None, one.consumer.tag)]
        self.deliveries = [one for one in self.deliveries if tag not in (None, one.consumer.tag)]
        return b"".join(one.body for one in taken).decode()

    def confirms(self, session: Session | None = None) -> str:
        """The confirms since the last call in the order of their tags: A for an ack, N for a nack."""
        session = session or self.session
        assert session.confirms is not None
        outcomes, confirmed = "", self._confirmed.get(session, 0)
        for tag, _, is_ack in session.confirms.take():  # a confirm covers all tags after the one before
            outcomes += ("A" if is_ack else "N") * (tag - confirmed)
            confirmed = self._confirmed[session] = tag
        return outcomes

    # -- objects ----------------------------------------------------------------------------------------------------

    def queue(
        self, name: str = "q", *, client: Client | None = None, durable: bool = True, exclusive: bool = False,
        auto_delete: bool = False, **arguments: Any,
    ) -> Queue:  # fmt: skip
        """Declare a queue by a client, or by an operator (None). Underscores in arguments become dashes."""
        table = arguments_of(arguments)
        if self.kind != "classic":
            table = {**wire_table({"x-queue-type": self.kind}), **table}
        return self.vhost.queues.declare(
            name, client=client, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=table
        )

    def named(self, queue: str | Queue = "q", by: Session | None = None) -> Queue:
        """The queue of this name."""
        return self.vhost.queues.named(queue, None if by is None else by.client) if isinstance(queue, str) else queue

    def bind(self, queue: str, exchange: str, key: str = "", **arguments: Any) -> None:
        self.vhost.bindings.add("queue", queue, exchange, key, arguments_of(arguments))

    # -- messages ---------------------------------------------------------------------------------------------------

    def publish(
        self, *bodies: bytes | str, key: str = "q", exchange: str = "", by: Session | None = None,
        mandatory: bool = False, **properties: Any,
    ) -> list[bytes]:  # fmt: skip
        """Publish messages with the same properties in one run. Returns the bodies of returned messages."""
        summary, contents = messages(bodies, {**self.properties, **properties})
        route = self.route(key, exchange, None if by is None else by.client)
        envelope = self.envelope(exchange, key, summary)
        returned = (by or self.session).publish(route, envelope, contents, mandatory=mandatory)
        self._acted()
        return [NATIVE.split(content)[1] for _, contents in returned for content in contents]

    def route(self, key: str, exchange: str = "", client: Client | None = None) -> Route:
        """The route of messages with this key."""
        return self.vhost.router.route(exchange, key, self.user, client)

    def envelope(self, exchange: str, key: str, summary: PropertySummary) -> Envelope:
        """The common envelope of messages that are published together."""
        return Envelope(exchange, key, summary)

    def consume(
        self, queue: str | Queue = "q", tag: str = "c", *, by: Session | None = None, prefetch: int | None = None,
        total: bool = False, no_ack: bool = False, exclusive: bool = False, **arguments: Any,
    ) -> Consumer:  # fmt: skip
        """Subscribe. `prefetch`: sent by a basic.qos before. Underscores in arguments become dashes."""
        session = by or self.session
        if prefetch is not None:
            session.set_prefetch(prefetch, total=total)
        consumer = session.consume(
            self.named(queue, session), tag, no_ack=no_ack, exclusive=exclusive, arguments=arguments_of(arguments)
        )
        self._acted()
        return consumer

    def get(
        self, queue: str | Queue = "q", *, no_ack: bool = True, by: Session | None = None
    ) -> tuple[int, Message, bool, int] | None:
        """basic.get: delivery tag, message, redelivered, messages left; None: no message is ready."""
        got = (by or self.session).get(self.named(queue, by), no_ack=no_ack)
        self._acted()
        return got

    def take(self, count: int = 1, queue: str | Queue = "q") -> list[bytes]:
        """Get and acknowledge `count` messages, which must exist. Returns their bodies."""
        bodies = []
        for _ in range(count):
            got = self.session.get(self.named(queue), no_ack=False)
            assert got is not None, f"nothing ready in {queue}"
            self.session.ack(got[0])
            bodies.append(got[1].body)
        self._acted()
        return bodies

    def all(self, queue: str | Queue = "q") -> str:
        """Get all ready messages. Returns the joined bodies."""
        bodies = b""
        while (got := self.get(queue)) is not None:
            bodies += got[1].body
        return bodies.decode()

    def bodies(self, queue: str | Queue = "q") -> list[bytes]:
        """The bodies of the messages in the queue's memory, in order; the messages stay."""
        return [one.body for one in self.named(queue).messages()]

    # -- the journal ------------------------------------------------------------------------------------------------

    def checkpoint(self, *, reclaims: bool = False) -> None:
        """Write a checkpoint. `reclaims`: then delete useless segments, and empty one that is almost useless."""
        self.end_turn()
        for _ in checkpoint(self.broker, self.journal, self.recorder):
            self.journal.commit()
        self.settle()
        if reclaims:
            self.journal.old_segments.reclaim()
            base_lsn = self.journal.old_segments.worth_emptying()
            if base_lsn is not None:
                for _ in empty_segment(self.broker, self.journal, self.recorder, base_lsn):
                    self.journal.commit()
            self.settle()

    def records(self) -> list[Record]:
        """The records of the journal in order."""
        reader = JournalReader(self.path, self.files)
        return [record for _, record in reader.records(trust_open=True)]
