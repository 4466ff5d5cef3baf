"""Clients of a simulated world: publishers, consumers, one that acknowledges by bookmark. Books are in `books.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leveret.engine import Delivered, Unreadable
from leveret.engine.errors import QueueNotFound
from leveret.engine.leases import discarding
from leveret.engine.leases.headers import ORIGIN

from .books import key_of
from .queues import LATE_MS, kind_of
from .sites import NAMES, filter_of, headers_of

if TYPE_CHECKING:
    from leveret.engine import Client as EngineClient
    from leveret.engine import FieldTable

    from .node import Node
    from .node_broker import NodeBroker
    from .world import World

MS = 1_000_000


class Client:
    """It is connected to a broker that serves, to any of those that believe that they lead.

    `homes`: where sites matter, the nodes through which it may connect. `site`: the one through which it is connected.
    """

    def __init__(self, world: World, homes: Sequence[str] = NAMES) -> None:
        self.world = world
        self.books = world.books
        self.homes = homes
        self.broker: NodeBroker | None = None
        self.session: Any = None
        self.site: Node | None = None
        self._site_life = 0

    def begin(self) -> None:
        """Act now and then."""
        if self.broker is not None and (not self.broker.is_connected or self._has_lost_site(self.broker)):
            self._leave(self.broker)
            self.broker = None
            self.lost()
        if self.broker is None:
            self._connect()
        elif not self.broker.node.is_paused and (self.site is None or not self.site.is_paused):
            broker = self.broker
            broker.node.soon(self.world.latency_ns(), lambda: self._act_at(broker))
        is_hasty = self.site is not None and self.world.is_calm  # small backlogs are to come to an end
        self.world.at(self.world.chance.uniform(60, 500) * (0.1 if is_hasty else 1) * MS, self.begin)

    def _has_lost_site(self, broker: NodeBroker) -> bool:
        """Whether the node through which it is connected ended, or does not reach the broker."""
        site = self.site
        return site is not None and (
            not site.is_alive or site.generation != self._site_life or not self._passes(site, broker)
        )

    def _passes(self, site: Node, broker: NodeBroker) -> bool:
        return site is broker.node or self.world.reaches(site.name, broker.node.name)

    def _leave(self, broker: NodeBroker) -> None:
        """The broker hears that the connection is lost: soon, or late, as of one that is half open."""
        session, delay_ns = self.session, self.world.latency_ns()
        if self.site is None:
            return
        if self.world.chance.random() < 0.3:
            delay_ns += self.world.chance.uniform(0, 5) * 1000 * MS

        def close() -> None:
            if broker.is_connected and broker.node.broker is broker:
                session.client.close(failed=True)
                broker.end_turn()

        broker.node.soon(delay_ns, close)

    def _act_at(self, broker: NodeBroker) -> None:
        if broker is self.broker and broker.answers:
            assert not broker.is_closed, f"{broker.node.name} resigned, and still serves"
            self.world.check_served(broker)
            self.act(broker)

    def _connect(self) -> None:
        serving = [node.broker for node in self.world.nodes.values() if node.is_alive and not node.is_paused]
        brokers = [broker for broker in serving if broker is not None and broker.answers]
        if brokers:
            broker = self.world.chance.choice(brokers)
            if self.world.sites is not None:
                nodes = [self.world.nodes[name] for name in self.homes]
                nodes = [one for one in nodes if one.is_alive and not one.is_paused and self._passes(one, broker)]
                if not nodes:
                    return
                self.site = self.world.chance.choice(nodes)
                self._site_life = self.site.generation
            site = None if self.site is None else self.site.name
            self.session = broker.connect(type(self).__name__, flush=lambda: self.flushed(broker), site=site)
            try:
                self.connected(broker)
            except Unreadable:
                assert broker.is_closed
            except QueueNotFound:  # its node has not joined yet
                assert self.site is not None
                self.session.client.close(failed=False)
            else:
                self.broker = broker

    def connected(self, broker: NodeBroker) -> None:
        """It has a session."""

    def lost(self) -> None:
        """The connection is closed."""

    def act(self, broker: NodeBroker) -> None:
        """Do something."""

    def flushed(self, broker: NodeBroker) -> None:
        """The broker has something for this client."""

    def release_awaiting(self, broker: NodeBroker) -> None:
        """More of what this broker recorded is agreed."""


class Publisher(Client):
    """Persistent messages to a queue, with confirms. `unanswered`: delivery tag -> body, LSN behind its record.

    `repeats`: it has duplicate ids, and sends again what was not confirmed.
    """

    def __init__(
        self, world: World, name: str, queue: str, *, homes: Sequence[str] = NAMES, repeats: bool = False
    ) -> None:
        super().__init__(world, homes)
        self.name, self.queue, self.repeats = name, queue, repeats
        self.count = 0
        self.rests = False
        self.unanswered: dict[int, tuple[str, int]] = {}
        self._again: deque[str] = deque()
        self._tag = 0

    def connected(self, broker: NodeBroker) -> None:
        broker.named(called(self.queue), self.session)
        self.session.select_confirms()
        self._tag = 0

    def lost(self) -> None:
        if self.repeats:
            self._again.extend(body for body, _ in self.unanswered.values())
        self.unanswered.clear()

    def act(self, broker: NodeBroker) -> None:
        if not broker.is_held:
            if self._again:
                key, _, attempt = self._again.popleft().partition("/")
                self._publish(broker, f"{key}/{int(attempt) + 1}")
            elif not self.rests:
                for _ in range(self.world.chance.randint(1, 3)):
                    self.count += 1
                    self._publish(broker, f"{self.name}.{self.count}/1")
        self._take(broker)

    def _publish(self, broker: NodeBroker, body: str) -> None:
        lsn = send(broker, self, self.queue, body, has_id=self.repeats)
        self._tag += 1
        self.books.published(body, self.queue, lsn)
        self.unanswered[self._tag] = (body, lsn)

    def release_awaiting(self, broker: NodeBroker) -> None:
        if broker is self.broker:
            self._take(broker)

    def _take(self, broker: NodeBroker) -> None:
        confirmed = 0
        for tag, is_multiple, is_ack in self.session.confirms.take(broker.recorder.safe_lsn):
            assert is_ack
            for one in sorted(self.unanswered):
                if one == tag or (is_multiple and one < tag):
                    body, lsn = self.unanswered.pop(one)
                    self.books.confirmed.add(key_of(body))
                    confirmed = max(confirmed, lsn)
        if confirmed:
            self.world.check_confirm(broker.node, confirmed)


class Committer(Client):
    """Transactions of some messages to a queue: all or none of each are there."""

    def __init__(self, world: World, name: str, queue: str, *, homes: Sequence[str] = NAMES) -> None:
        super().__init__(world, homes)
        self.name, self.queue = name, queue
        self.count = 0
        self.rests = False
        self.unanswered: deque[tuple[list[str], int]] = deque()  # keys of a commit, LSN behind it

    def connected(self, broker: NodeBroker) -> None:
        broker.named(called(self.queue), self.session)
        self.session.select_transactions()

    def lost(self) -> None:
        self.unanswered.clear()

    def act(self, broker: NodeBroker) -> None:
        if self.rests or broker.is_held:
            return
        bodies = []
        for _ in range(self.world.chance.choice([2, 5, 20])):
            self.count += 1
            bodies.append(f"{self.name}.{self.count}/1")
            send(broker, self, self.queue, bodies[-1])
        commit = self.session.commit()
        broker.end_turn()
        assert commit.is_done
        lsn = broker.journal.next_lsn
        for body in bodies:
            self.books.published(body, self.queue, lsn)
        keys = [key_of(body) for body in bodies]
        self.books.transactions.append(keys)
        self.unanswered.append((keys, max(lsn, commit.sync_lsn)))

    def release_awaiting(self, broker: NodeBroker) -> None:
        if broker is not self.broker:
            return
        while self.unanswered and self.unanswered[0][1] <= broker.recorder.safe_lsn:
            keys, lsn = self.unanswered.popleft()
            self.books.confirmed |= set(keys)
            self.world.check_confirm(broker.node, lsn)


def called(queue: str) -> str:
    """The name of a queue at its sites."""
    return queue.partition("@")[0]


def whole(octets: bytes) -> str:
    """What a message is called, of a body as `send` makes it."""
    name, _, rest = bytes(octets).partition(b",")
    assert not rest.strip(b"x"), f"{name!r} is not as it was published"
    return name.decode()


def send(broker: NodeBroker, by: Client, queue: str, body: str, *, has_id: bool = False, key: str = "") -> int:
    """Publish a persistent message. Returns the LSN behind it."""
    world = by.world
    if world.sites is not None and by.site is not None:
        world.sites.publishes(body, by.site.name)
        if queue in world.sites.queues and world.sites.is_barrier(queue, body):
            world.books.acknowledged(body)  # it is gone when the consumers of that moment have it, if any takes it
    headers: dict[str, Any] = {"key": body.partition(".")[0], **headers_of(body)}
    if has_id:
        headers["_AMQ_DUPL_ID"] = key_of(body)
    if queue == "later":
        headers["_AMQ_SCHED_DELIVERY"] = broker.clock.wall_ms() + LATE_MS
    octets = body + "," + "x" * world.chance.choice([0, 100, 3000])
    broker.publish(octets, key=key or called(queue), by=by.session, delivery_mode=2, headers=headers)
    return int(broker.journal.next_lsn)


class Received(NamedTuple):
    """A delivery on its way to a client. `lsn`: it waits until that is agreed. `is_noted`: in the books."""

    lsn: int
    tag: int
    body: str
    is_redelivered: bool
    offset: int
    is_noted: bool = False


def delivered_to(client: EngineClient) -> Iterator[tuple[int, str, bool, FieldTable]]:
    """What was sent to a client since: tag, body, whether it is redelivered, and headers of each message."""
    for effect in client.take_outbox():
        if isinstance(effect, Delivered):
            for first_tag, envelope, contents in effect.runs():
                for tag, content in enumerate(contents, first_tag):
                    body = whole(envelope.framing.split(content)[1])
                    yield tag, body, effect.redelivered, envelope.headers(content)
    client.drained()


class Consumer(Client):
    """Of one queue: it acknowledges most of what it gets, at once or later, and gives some back, or rejects it.

    `of`: it takes the messages of this publisher alone; empty: all.
    """

    def __init__(self, world: World, queue: str, *, homes: Sequence[str] = NAMES, of: str = "") -> None:
        super().__init__(world, homes)
        self.queue, self._of = queue, of
        self._sites = world.sites if kind_of(queue).is_sited else None
        self._is_at_most_once = self._sites is not None and self._sites.is_at_most_once(queue)
        self.is_ending = False  # it acknowledges everything
        self._inbox: deque[Received] = deque()
        self._out: list[Received] = []  # not acknowledged
        self._acked: list[tuple[str, int]] = []
        self._hold_lsn = 0
        self._next_offset = 0

    def connected(self, broker: NodeBroker) -> None:
        self._inbox.clear()
        self._out, self._acked, self._hold_lsn = [], [], 0
        self.session.client.on_send_after = self._hold
        arguments: dict[str, Any] = {"x_stream_offset": self._next_offset} if self.queue == "stream" else {}
        if self._of:
            arguments["x_filter"] = filter_of(self._of)
        broker.consume(called(self.queue), by=self.session, prefetch=8, **arguments)

    def _hold(self, lsn: int, number: int) -> None:
        self._hold_lsn = max(self._hold_lsn, lsn)

    def flushed(self, broker: NodeBroker) -> None:
        for tag, body, is_redelivered, headers in delivered_to(self.session.client):
            message = self.session.unacked.get(tag)
            if message is not None and message.id and self.queue != "stream":  # a barrier is shown without an id
                self.books.met(message.id, body)
            # It may be acknowledged before this client reads it: by another one, or under the tag of a lease before.
            # What a leader sends that was replaced waits for an agreement that does not come, while the next leader
            # delivers the same; and a dead letter that nobody has read may be lost, and made again as another message.
            is_noted = self.queue not in ("stream", "dead") and broker.term == self.world.served_term
            if is_noted:
                self._note(body, is_redelivered=is_redelivered)
            offset = headers.get("x-stream-offset")
            at = -1 if offset is None else offset.value
            self._inbox.append(Received(self._hold_lsn, tag, body, is_redelivered, at, is_noted))

    def act(self, broker: NodeBroker) -> None:
        while self._inbox and self._inbox[0].lsn <= broker.recorder.safe_lsn:
            self._take(self._inbox.popleft())
        for one in self._out[:]:
            if self.is_ending or self.world.chance.random() < 0.8:
                self._out.remove(one)
                self._settle(broker, one)
        broker.end_turn()

    def _take(self, one: Received) -> None:
        self._out.append(one)
        if self.queue == "stream":
            assert one.offset == self._next_offset, f"the stream goes on at {one.offset}, not {self._next_offset}"
            self._next_offset += 1
            self.books.read(one.offset, one.body)
        else:
            if not one.is_noted:
                self._note(one.body, is_redelivered=one.is_redelivered)
            self.books.seen(self.queue, one.body, self.world.agreed_lsn)
            if self._is_at_most_once:  # the client does not see it before that is agreed
                self.books.gone(self.queue, one.body)

    def _note(self, body: str, *, is_redelivered: bool) -> None:
        """A message is handed out. A barrier goes to each consumer."""
        if self._sites is None or not self._sites.is_barrier(self.queue, body):
            self.books.handed_out(self.queue, body, is_redelivered=is_redelivered)

    def _settle(self, broker: NodeBroker, one: Received) -> None:
        chance = 1.0 if self.is_ending or self.queue == "stream" else self.world.chance.random()
        if chance < 0.05:
            self.session.reject(one.tag, requeue=True)
        elif chance < 0.25 and kind_of(self.queue).dead_letters:
            self.session.reject(one.tag, requeue=False)
        else:
            is_holder = self._sites is None or self._holds(broker, one.tag)
            self.session.ack(one.tag)
            if self.queue != "stream":
                self.books.acknowledged(one.body)
                broker.end_turn()
                if is_holder:
                    self._acked.append((one.body, broker.journal.next_lsn))

    def _holds(self, broker: NodeBroker, tag: int) -> bool:
        """Whether it has the lease; else its acknowledgement may come too late."""
        message = self.session.unacked.get(tag)
        assert broker.book is not None
        return message is not None and broker.book.holder(self.queue, message.id) is self.session

    def release_awaiting(self, broker: NodeBroker) -> None:
        if broker is self.broker:
            safe_lsn = broker.recorder.safe_lsn
            for body, lsn in self._acked:
                if lsn <= safe_lsn:
                    self.books.gone(self.queue, body)
            self._acked = [one for one in self._acked if one[1] > safe_lsn]


class Controller(Client):
    """It acknowledges messages of a leased queue by bookmarks, of lost messages too: that must do nothing."""

    def __init__(self, world: World, queue: str = "leased") -> None:
        super().__init__(world)
        self._queue = queue

    def act(self, broker: NodeBroker) -> None:
        books, chance = self.books, self.world.chance
        if not books.meanings or chance.random() > 0.2:
            return
        id_ = chance.choice(list(books.meanings)[-40:])
        steps = discarding(broker.named(self._queue), f"{ORIGIN}|{id_}|", None, "")
        while next(steps, None) is not None:
            pass
        if books.queue_of.get(key_of(books.meanings[id_])) == self._queue:
            books.acknowledged(books.meanings[id_])
        broker.end_turn()


class Replayer(Client):
    """It reads what a leased queue captured, from a bookmark on, and takes nothing; now and then it begins anew.

    `count`: of messages.
    """

    def __init__(self, world: World, queue: str = "leased") -> None:
        super().__init__(world)
        self.queue = queue
        self.count = 0
        self._last_id = 0
        self._inbox: deque[Received] = deque()
        self._hold_lsn = 0

    def connected(self, broker: NodeBroker) -> None:
        self._inbox.clear()
        self._hold_lsn = 0
        self.session.client.on_send_after = self._hold
        bookmark = f"{ORIGIN}|{self._last_id}|" if self._last_id else "0"
        broker.consume(self.queue, by=self.session, prefetch=8, x_bookmark=bookmark)

    def _hold(self, lsn: int, number: int) -> None:
        self._hold_lsn = max(self._hold_lsn, lsn)

    def flushed(self, broker: NodeBroker) -> None:
        for tag, body, _, headers in delivered_to(self.session.client):
            id_ = int(headers["x-bookmark"].value.split(b"|")[1])
            self.books.met(id_, body)
            self._inbox.append(Received(self._hold_lsn, tag, body, False, id_))

    def act(self, broker: NodeBroker) -> None:
        while self._inbox and self._inbox[0].lsn <= broker.recorder.safe_lsn:
            one = self._inbox.popleft()
            assert one.offset > self._last_id, f"a replay of {self.queue} goes on at {one.offset} after {self._last_id}"
            self.count, self._last_id = self.count + 1, one.offset
            self.books.seen(self.queue, one.body, self.world.agreed_lsn)
            self.session.ack(one.tag)
        if self.world.chance.random() < 0.02:
            self.session.client.close(failed=False)
            self.broker, self._last_id = None, 0
        broker.end_turn()


class Stranger(Client):
    """It asks for queues that its site does not see, by the names that others have for them, and by full names."""

    def __init__(self, world: World, home: str) -> None:
        super().__init__(world, home)
        self._count = 0

    def act(self, broker: NodeBroker) -> None:
        sites, chance = self.world.sites, self.world.chance
        assert sites is not None and self.site is not None
        site, client = self.site.name, self.session.client
        queue = chance.choice([name for name, one in sites.queues.items() if not one.has(site)])
        for name in (queue, called(queue)):
            found = broker.vhost.queues.seen(name, client)
            seen = "" if found is None else found.name
            assert not seen or sites.queues[seen].has(site), f"a client at {site} sees {seen} as {name}"
        key = chance.choice([queue, called(queue)])
        if broker.vhost.queues.seen(key, client) is None:
            self._count += 1
            send(broker, self, queue, f"s{site}.{self._count}/1", key=key)
        broker.end_turn()
