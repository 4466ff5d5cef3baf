"""Everything comes to rest: nobody does anything, all that was asked is answered, and nothing is on its way.

Then what clients hold, what the broker says, and what the books know must be the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from leveret.amqp_frontend.wire.states import ConnectionState

from .accounts import check_accounts, check_consumers, check_journal
from .books import Books
from .books.whereabouts import Place
from .clients.client import CLOSING, RUNNING, Client, Mood
from .growth import check_gone, check_growth
from .host import Host
from .ledger import Broken, Ledger, QueueName
from .lives import Lives
from .loop import SECOND, now_ns, pass_time
from .plan import Plan

#: After that the world is at rest, and within this every question is answered.
TIMEOUT_S = 120
ANSWER_S = 90
#: So long nothing happens at all.
QUIET_S = 0.5
#: So many looks in a row at a client that waits while nobody does anything: it was forgotten.
LOOKS_MAX = 3


class Resting(Protocol):
    """A world, as far as it comes to rest."""

    clients: list[Client]
    books: Books
    ledger: Ledger
    lives: Lives
    host: Host | None
    plan: Plan


class Rest:
    """`is_on`: no faults are to come meanwhile."""

    def __init__(self, world: Resting) -> None:
        self._world = world
        self._since_ns = 0
        self._forgotten: dict[int, int] = {}  # client -> how often in a row nothing was on its way, but its answer due
        self.is_on = False

    async def come(self, mood: Mood) -> None:
        """Wait for it, and look at everything. Raises: Broken."""
        world = self._world
        self.is_on = True
        self._since_ns = now_ns()
        self._forgotten.clear()
        for client in world.clients:
            client.mood = mood
        events = -1
        while (why := self._restless(mood)) or events != world.books.events:
            if now_ns() - self._since_ns > TIMEOUT_S * SECOND:
                raise Broken(f"not at rest after {TIMEOUT_S} s: {why}")
            events = world.books.events
            await pass_time(QUIET_S)
        self._check()
        if mood is Mood.ENDING:
            self._check_growth()

    def end(self) -> None:
        """Everybody goes on."""
        self.is_on = False
        for client in self._world.clients:
            client.mood = Mood.BUSY

    def _restless(self, mood: Mood) -> list[str]:
        world = self._world
        host = world.host
        if host is None or not host.is_alive:
            return ["no broker"]
        restless = []
        held = _held_by(host)  # until others make room, which they do not in a pause
        for client in world.clients:
            is_held = client.product in held
            question = None if is_held and mood is not Mood.ENDING else client.unanswered()
            if question is None:
                self._forgotten.pop(client.number, None)
            if question is not None:
                waited_s = (now_ns() - max(question.asked_ns, self._since_ns)) / SECOND
                if waited_s > ANSWER_S:
                    raise Broken(f"client {client.number} waits for {question.answer} since {waited_s} s")
                if not is_held:
                    self._look_at_waiting(client, host, question.answer)
                restless.append(f"client {client.number}: {question.answer}")
            elif client.state is not RUNNING:
                if client.comes_and_goes or (is_held and client.state is CLOSING):
                    continue
                restless.append(f"client {client.number}: not connected")
            elif client.link is not None and not client.link.is_whole:
                restless.append(f"client {client.number}: its connection is dead, and it does not know")
            elif client.link is not None and client.link.is_under_way:
                restless.append(f"client {client.number}: octets are under way")
            elif world.books.deliveries.owed(client.product):
                restless.append(f"client {client.number}: deliveries")
            elif mood is Mood.ENDING and any(channel.held() for channel in client.channels.values()):
                restless.append(f"client {client.number}: not settled")
        there = sum(
            client.state is RUNNING or (client.state is CLOSING and client.product in held) for client in world.clients
        )
        if (
            host.supervisor.recorder.has_failed
            and not host.has_failed
            and not (host.disk.is_full or host.disk.troubles)
        ):
            restless.append("the journal refuses, and the disk is well")
        if host.broker.is_unfinished:
            restless.append("the broker has work left")
        connected = host.broker.statistics().clients
        if connected != there:
            restless.append(f"{connected} connections of {there}")
        restless += [f"{queue.name} is paused" for queue in host.broker.virtual_hosts.queues() if queue.paused]
        if mood is Mood.ENDING:
            restless += [f"{one.client.name} waits for {one.destination}" for one in host.broker.flow.blocked()]
            drained = {
                name for client in world.clients for channel in client.channels.values() for name in channel.drains
            }
            for name, ids in world.ledger.present.items():
                if ids and name[1] in drained:
                    restless.append(f"{name[1]}: {len(ids)} messages")
        return restless

    def _look_at_waiting(self, client: Client, host: Host, answer: str) -> None:
        """All was read, all is safe, and nothing comes: somebody forgot to wake. A heartbeat would hide it soon."""
        journal = host.supervisor.journal
        is_still = (
            client.state is RUNNING
            and client.link is not None
            and client.link.is_idle
            and not host.disk.is_troubled
            and not host.broker.is_unfinished
            and host.broker.flow.alarm_reason is None  # else publishes are read and put aside
            and not host.supervisor.recorder.is_behind
            and journal.committed_lsn >= journal.next_lsn
        )
        looks = self._forgotten[client.number] = self._forgotten.get(client.number, 0) + 1 if is_still else 0
        if looks >= LOOKS_MAX:
            raise Broken(f"client {client.number} waits for {answer}, and nothing else is to come")

    # -- what is the same ---------------------------------------------------------------------------------------------

    def _check(self) -> None:
        world = self._world
        world.ledger.check_contents()
        world.books.check()
        check_held(world.clients, world.books.whereabouts.places)
        assert world.host is not None
        check_accounts(world.host, world.clients)
        if 'scope = "durable"' in world.plan.configuration:
            check_journal(world.host, world.ledger)
        if not any(client.waiting for client in world.clients):
            check_consumers(world.clients, world.books.whereabouts.places)
        world.lives.invariants.check_all(world.host.broker)
        has_alarm = check_alarms(world.host.broker.flow, refuses=world.host.supervisor.recorder.has_failed)
        check_lost(world.clients, _held_by(world.host), has_alarm=has_alarm)
        check_credit(world.clients, world.books.whereabouts.places)

    def _check_growth(self) -> None:
        host = self._world.host
        assert host is not None
        roots = {"broker": host.broker, "supervisor": host.supervisor, "server": host.server, "built": host.built}
        there = sum(map(len, self._world.books.whereabouts.places.values()))
        check_growth(roots, there, retains="\nretain = " in self._world.plan.configuration)
        states = {endpoint.session.connection.state for endpoint in host.server.endpoints}
        if ConnectionState.CLOSED not in states:  # such a connection keeps all that is its own until its peer hangs up
            check_gone(roots, host.server.endpoints)


def check_held(clients: Iterable[Client], places: Mapping[QueueName, Place]) -> None:
    """An acknowledgement that was lost on its way shows here, as does one too many. Raises: Broken."""
    held: Counter[QueueName] = Counter()
    unread: set[QueueName] = set()  # of connections that publish so much that they are not read
    for client in clients:
        for channel in client.channels.values():
            held.update(channel.held())
            if channel.consumed is not None and client.link is not None and client.link.unread_by_broker:
                unread.add((client.vhost, channel.consumed))
    for name, place in places.items():
        is_less = place.is_leased and held[name] > place.queue.unacked  # tags of leases that have ended
        if name not in unread and not is_less and held[name] != place.queue.unacked:
            raise Broken(f"{name} has {place.queue.unacked} out, its clients hold {held[name]}")


def _held_by(host: Host) -> set[str]:
    """The products of connections that wait for room."""
    waiting: Iterable[Any] = host.broker.flow.blocked()
    return {one.client.properties["product"].text for one in waiting}


def check_alarms(flow: Any, *, refuses: bool) -> bool:
    """Whether an alarm is up, or a limit of the whole broker reached: a peer that was told so is told the end of it.

    `refuses`: the journal takes nothing now, or not much. Raises: Broken.
    """
    if flow.disk.is_full and not refuses:
        raise Broken("the disk's alarm is up, and the journal takes everything")
    return not flow.is_calm


def check_lost(clients: Iterable[Client], held: Collection[str], *, has_alarm: bool) -> None:
    """A publish that nobody answers to is neither lost nor forgotten while it is held, and whoever is not held any more
    knows it. Raises: Broken.
    """
    for client in clients:
        if client.state is not RUNNING or client.product in held or has_alarm:
            continue
        if client.blocked:
            raise Broken(f"client {client.number} still believes that it is blocked")
        assert client.link is not None
        lost = [key for channel in client.channels.values() for key in channel.lost_publishes()]
        if lost and client.link.is_idle:
            raise Broken(f"client {client.number} published {[key.hex() for key in lost[:5]]}, which never came")


def check_credit(clients: Iterable[Client], places: Mapping[QueueName, Place]) -> None:
    """What is ready and who would take it are not there at the same time: somebody forgot to wake. Raises: Broken."""
    for client in clients:
        for channel in client.channels.values():
            if client.link is not None and client.link.unread_by_broker:
                continue  # it publishes so much that it is not read
            queue = channel.credit()
            place = None if queue is None else places.get((client.vhost, queue))
            if place is None or place.keeps:
                continue
            if any(channel.takes(id_) for id_ in place.ready):
                raise Broken(f"client {client.number} would take more of {queue}, which has {len(place.ready)} ready")
