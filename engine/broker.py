"""The broker: virtual hosts, users, the deadlines, and the turn.

A frontend does its work in turns: it calls into sessions and virtual hosts as often as one socket read asks for, and
then `end_turn` once. Nothing here waits, reads a clock of its own, or knows what a socket is.
Source: architecture page; rulings 3 to 6.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import length_hint
from types import MappingProxyType

from ..settings import NO_POLICIES, NO_SETTINGS, Divert, Policies, Policy, SettingsRepository
from .access import User, Users
from .acknowledgement_timeout import AcknowledgementWatch
from .auto_created import Reaper, targets_of
from .client import Client
from .clock import Clock
from .deadlines import Deadlines
from .deaths import EXPIRED, dead_letter
from .departures import Departures
from .diverts import Diverts
from .durability import Durability
from .errors import ConnectionsMaxReached, UserConnectionsMaxReached, UserDeleted, VirtualHostNotFound
from .events import Counters, Event, EventKind, Listener
from .limits import enforce
from .memory_budget import MemoryBudget
from .message import Envelope, Message
from .options import DEFAULT_OPTIONS, BrokerOptions, VirtualHostLimits
from .publishing import publish_dead
from .queue import Queue
from .ready import Ready
from .service import Handler
from .tail import Pager
from .virtual_host import VirtualHost

#: Rounds of dispatch and flush in one turn; what is left is for the next, so that no peer keeps the others waiting.
ROUNDS_MAX = 4
#: Messages given back to the allocator in one slice of a purge or delete (about 2 ms).
FREE_SLICE = 20_000
#: Dead letters published in one slice (about 10 ms).
DEAD_SLICE = 500
#: Queues that are asked whether a changed policy concerns them, and those that it concerns, in one slice (about 5 ms).
REVIEW_SLICE, CONCERNED_SLICE = 500, 50

UNSENT_MAX_DEFAULT = 1024 * 1024


@dataclass(slots=True, frozen=True)
class BrokerStatistics:
    """What the broker holds now, and what has happened since it started (counters by event name)."""

    clients: int
    vhosts: int
    exchanges: int
    queues: int
    consumers: int
    ready: int
    unacked: int
    scheduled: int
    deadlines: int
    counters: dict[str, int]


class Broker:
    """Everything that one broker process serves, whatever its frontends.

    `services`: name -> handler of exchanges behind which the broker itself listens, in every virtual host.
    `chance`: a number in [0, 1), uniform in a real broker; 0.5 stands for "nothing happens by chance".
    """

    def __init__(
        self,
        clock: Clock,
        users: Users | None = None,
        *,
        services: dict[str, Handler] | None = None,
        settings: SettingsRepository = NO_SETTINGS,
        options: BrokerOptions = DEFAULT_OPTIONS,
        chance: Callable[[], float] = lambda: 0.5,
        unsent_max: int = UNSENT_MAX_DEFAULT,
    ) -> None:
        self.clock = clock
        self.users = users or Users()
        self.services = services or {}
        self.settings = settings
        self.policies = NO_POLICIES
        self.options = options
        self.reaper = Reaper(self)
        self.acknowledgements = AcknowledgementWatch(self)
        self.chance = chance
        self.unsent_max = unsent_max
        self.deadlines = Deadlines()
        self.durability: Durability | None = None
        self.pager: Pager | None = None
        self.memory = MemoryBudget()  # of the ready messages, where there is a pager
        self.hungry: dict[Queue, None] = {}  # deep queues that want more of their tails in memory
        self.awaiting: dict[Client, None] = {}  # hear more when more is safe
        self.departures = Departures()
        self.counters = Counters()
        self.listeners: list[Listener] = []
        self.next_id = 1
        self.clients: dict[Client, None] = {}
        self.touched: dict[Client, None] = {}  # have effects in their outbox
        self._marked: dict[Queue, None] = {}  # may have something to hand out
        self._dead: deque[tuple[Queue, Message, str]] = deque()  # on their way to dead-letter exchanges
        self._to_free: deque[Ready] = deque()
        self._to_trim: dict[Queue, None] = {}  # hold more than they may
        self._to_review: deque[tuple[Iterator[Queue], list[Policy]]] = deque()  # have not heard of changed policies
        self.virtual_hosts: dict[str, VirtualHost] = {}
        self.create_virtual_host("/")

    # -- clients ----------------------------------------------------------------------------------------------------

    def create_virtual_host(self, name: str) -> VirtualHost:
        """The virtual host of that name, new or as it is."""
        vhost = self.virtual_hosts.get(name)
        if vhost is None:
            self.departures.finish(name)
            vhost = self.virtual_hosts[name] = VirtualHost(self, name)
            self.emit_object(EventKind.DECLARED, name, name, {"what": "vhost"})
        return vhost

    def delete_virtual_host(self, name: str) -> None:
        """Nobody gets into it any more; its clients are sent away and its queues deleted at the ends of turns.

        Raises: VirtualHostNotFound.
        """
        vhost = self.virtual_hosts.pop(name, None)
        if vhost is None:
            raise VirtualHostNotFound(vhost=name)
        for user in self.users:
            if user.permissions is not None and name in user.permissions:
                rest = {other: granted for other, granted in user.permissions.items() if other != name}
                self.replace_user(replace(user, permissions=MappingProxyType(rest)))
        gone = [policy.identity for policy in self.policies if policy.vhost == name]
        if gone:
            self.replace_policies(self.policies.without(gone))
        # At once, and whole: one that was said to be gone does not come back with half of its queues.
        self.emit_object(EventKind.UNDECLARED, name, name, {"what": "vhost", "is_going": True})
        self.departures.condemn(vhost, [client for client in self.clients if client.vhost is vhost])

    def limit_virtual_host(self, vhost: VirtualHost, limits: VirtualHostLimits) -> None:
        """What may be in it from now on; what is there stays."""
        vhost.limits = limits
        self.emit_object(EventKind.DECLARED, vhost.name, vhost.name, {"what": "vhost"})

    def replace_user(self, user: User) -> None:
        """Add a user, or change one: what its clients may do changes now, with the next thing that they ask for.

        Subscriptions that they have go on. O(clients).
        """
        self.users.add(user)
        self.emit_object(EventKind.DECLARED, "", user.name, {"what": "user", "user": user})
        self._tell_clients(user)

    def delete_user(self, name: str) -> None:
        """Forget a user; its clients may do nothing any more and are sent away at the ends of turns. O(clients)."""
        self.users.remove(name)
        self.emit_object(EventKind.UNDECLARED, "", name, {"what": "user"})
        for client in self._tell_clients(User(name, permissions=MappingProxyType({}))):
            self.departures.expel(client, UserDeleted(user=name))

    def _tell_clients(self, user: User) -> list[Client]:
        """Clients of a user know that it is another one now, and look up their routes anew."""
        clients = [client for client in self.clients if client.user.name == user.name]
        for client in clients:
            client.user = user
            client.vhost.routes_changed()
        return clients

    def connect(self, vhost: str, user: User, *, name: str, flush: Callable[[], object]) -> Client:
        """A client in a virtual host. `flush` is called when a turn left effects in its outbox.

        Raises: VirtualHostNotFound, VirtualHostRefused, ConnectionsMaxReached, UserConnectionsMaxReached.
        """
        found = self.virtual_hosts.get(vhost)
        if found is None:
            raise VirtualHostNotFound(vhost=vhost)
        user = self.users.current(user, vhost)
        self._check_connections_max(found, user)
        user.check_vhost(vhost)
        client = Client(found, user, name, flush, self.unsent_max)
        self.clients[client] = None
        self.emit_object(EventKind.CONNECTION_OPENED, vhost, name, {"user": user.name})
        return client

    def _check_connections_max(self, vhost: VirtualHost, user: User) -> None:
        """O(clients), where there is a limit."""
        limit = vhost.limits.max_connections
        if limit is not None and sum(client.vhost is vhost for client in self.clients) >= limit:
            raise ConnectionsMaxReached(vhost=vhost.name, user=user.name, limit=limit)
        limit = user.max_connections
        if limit is not None and sum(client.user.name == user.name for client in self.clients) >= limit:
            raise UserConnectionsMaxReached(user=user.name, limit=limit)

    def sessions_of(self, user: str) -> int:
        """Open sessions of a user. O(clients)."""
        return sum(len(client.sessions) for client in self.clients if client.user.name == user)

    def bindings_count(self) -> int:
        """In all virtual hosts. O(exchanges)."""
        return sum(
            len(exchange.bindings) for vhost in self.virtual_hosts.values() for exchange in vhost.exchanges.values()
        )

    def forget(self, client: Client) -> None:
        """Part of `Client.close`."""
        self.clients.pop(client, None)
        self.awaiting.pop(client, None)
        self.touched.pop(client, None)
        if not self.clients:
            self.acknowledgements.end_if_idle()
        self.emit_object(EventKind.CONNECTION_CLOSED, client.vhost.name, client.name, {})

    def replace_settings(self, settings: SettingsRepository, options: BrokerOptions | None = None) -> None:
        """The operator's settings are these from now on, all at once (address-settings page 3.8). O(queues)."""
        self.settings = settings
        if options is not None:
            self.options = options
        for vhost in self.virtual_hosts.values():
            vhost.routes_changed()  # they know what the address of a message does with it
            for queue in vhost.queues.values():
                queue.settings_changed()
            self.emit_object(EventKind.SETTINGS_CHANGED, vhost.name, "", {})

    def replace_policies(self, policies: Policies) -> None:
        """The policies are these from now on; what they say of queues and exchanges that exist holds at once.

        "At once" is a slice now and one at the end of each turn, where there are many queues: O(queues, times changed
        policies).
        """
        before, self.policies = self.policies, policies
        changed = policies.changed_since(before)
        for policy in changed:
            now = policies.find(policy.vhost, policy.name, is_operator=policy.is_operator)
            kind = EventKind.UNDECLARED if now is None else EventKind.DECLARED
            self.emit_object(kind, policy.vhost, policy.name, {"what": "policy", "policy": now or policy})
        for name in {policy.vhost for policy in changed} & self.virtual_hosts.keys():
            vhost = self.virtual_hosts[name]
            vhost.policies_changed()
            theirs = [policy for policy in changed if policy.vhost == name]
            self._to_review.append((iter(list(vhost.queues.values())), theirs))
        if self._to_review:
            self._review_slice()

    def _review_slice(self) -> None:
        """Some of the queues learn of changed policies."""
        queues, changed = self._to_review[0]
        concerns = self.policies.may_concern
        concerned = 0
        for queue in islice(queues, max(1, REVIEW_SLICE // len(changed))):
            if not queue.deleted and concerns(queue.name, queue.type, queue.policy, changed):
                queue.policy_changed()
                concerned += 1
                if concerned >= CONCERNED_SLICE:
                    break
        if not length_hint(queues):
            self._to_review.popleft()

    def replace_diverts(self, diverts: Iterable[Divert]) -> None:
        """The operator's diverts are these from now on; virtual hosts that they name and are not there are not made."""
        by_vhost: dict[str, list[Divert]] = {}
        for divert in diverts:
            by_vhost.setdefault(divert.vhost, []).append(divert)
        for name, vhost in self.virtual_hosts.items():
            vhost.diverts = Diverts(by_vhost.get(name, ()))
            vhost.routes_changed()

    def feed(self) -> bool:
        """Between turns: bring a slice of some deep queue's tail into memory. True: there is more to do now."""
        if not self.hungry:
            return False
        queue, _ = self.hungry.popitem()
        if not queue.deleted and queue.is_hungry():
            queue.load()
            self.mark(queue)
            if queue.is_hungry():
                self.hungry[queue] = None
            return True
        return bool(self.hungry)

    def more_is_safe(self) -> None:
        """The journal got on, or failed: whoever waits for it is told."""
        for client in list(self.awaiting):
            del self.awaiting[client]
            client.flush()  # also one that is closed: its last words may be among what waits

    # -- the turn ---------------------------------------------------------------------------------------------------

    def mark(self, queue: Queue) -> None:
        """Look at this queue again before the turn ends."""
        self._marked[queue] = None

    def is_marked(self, queue: Queue) -> bool:
        """Whether it will be looked at."""
        return queue in self._marked

    def dispatch_now(self, queue: Queue) -> None:
        """Hand out before somebody looks into the queue: what waiting consumers could take is theirs."""
        if self._dead:
            self._publish_dead()
        if queue.expiring:
            queue.expire_due()
        if queue in self._marked:
            del self._marked[queue]
            if not queue.deleted:
                queue.dispatch()

    def end_turn(self) -> bool:
        """Dispatch marked queues, flush touched clients, free a slice. True: call again soon, there is more."""
        marked, touched = self._marked, self.touched
        for _ in range(ROUNDS_MAX):
            if self._dead:
                self._publish_dead()
            while marked:
                queue, _ = marked.popitem()
                if not queue.deleted:
                    queue.dispatch()
            if not touched and not self._dead:
                break
            for client in list(touched):
                del touched[client]
                if not client.closed:
                    client.flush()
        if self._to_free:
            self._free_slice()
        if self._to_trim:
            self._trim_slice()
        if self._to_review:
            self._review_slice()
        if self.departures.pending:
            self.departures.work()
        return bool(
            marked
            or touched
            or self._dead
            or self._to_free
            or self._to_trim
            or self._to_review
            or self.departures.pending
        )

    def bury(self, queue: Queue, messages: list[Message], reason: str) -> None:
        """Messages died in a queue that has a dead-letter exchange: they are published there before the turn ends."""
        self._dead.extend((queue, message, reason) for message in messages)

    @property
    def dead_count(self) -> int:
        """How many dead letters are still to be published: until then the turn is not over for a journal."""
        return len(self._dead)

    def _publish_dead(self) -> None:
        """A slice of the dead letters: their publication may cause more of them."""
        dead = self._dead
        for _ in range(min(DEAD_SLICE, len(dead))):
            queue, message, reason = dead.popleft()
            target = queue.dead_letter_target(reason)
            if target is None:
                continue
            rules, vhost = queue.rules, queue.vhost
            if rules.dead_letter_exchange is not None:
                targets = [(target, rules.dead_letter_routing_key)]
            else:
                resources = rules.expiry_resources if reason == EXPIRED else rules.dead_letter_resources
                targets = [*targets_of(vhost, target, queue.address, resources)]
            for exchange, key in targets:
                publish_dead(
                    vhost,
                    dead_letter(
                        message,
                        queue=queue.name,
                        reason=reason,
                        exchange=exchange,
                        routing_key=key,
                        wall_ms=self.clock.wall_ms(),
                        address=self._told_address(queue, message),
                        with_hornetq_names=self.options.legacy_hornetq_headers,
                        continues_deaths=self.options.continues_deaths,
                        tells_last_death=self.options.tells_last_death,
                    ),
                )

    def _told_address(self, queue: Queue, message: Message) -> str | None:
        """What a dead letter tells as the message's address; None where only a dead-letter exchange rules (6.7)."""
        if queue.rules.dead_letter_exchange is not None:
            settings = self.settings.resolve(queue.address, queue.vhost.name)
            if not settings.dead_letter_address and not settings.expiry_address:
                return None
        return self.options.address_of(message.envelope.exchange, message.envelope.routing_key)

    def trim_later(self, queue: Queue) -> None:
        """A queue holds more than it may: another slice goes at the end of each turn."""
        self._to_trim[queue] = None

    def _trim_slice(self) -> None:
        queue, _ = self._to_trim.popitem()
        if not queue.deleted:
            enforce(queue)

    def free(self, messages: Ready) -> None:
        """Give messages back to the allocator, in slices if there are many."""
        if len(messages) > FREE_SLICE:
            self._to_free.append(messages)

    def _free_slice(self) -> None:
        messages = self._to_free[0]
        pop = messages.pop
        for _ in range(min(FREE_SLICE, len(messages))):
            pop()
        if not messages:
            self._to_free.popleft()

    # -- time -------------------------------------------------------------------------------------------------------

    def next_deadline_ns(self) -> int | None:
        """When to call `advance` next, by the clock's monotonic reading."""
        return self.deadlines.next_ns()

    def advance(self) -> int:
        """Do what is due by now. Returns how many deadlines that were; end the turn afterwards."""
        return self.deadlines.advance(self.clock.monotonic_ns())

    # -- what happens -----------------------------------------------------------------------------------------------

    def emit(self, kind: EventKind, queue: Queue, messages: Sequence[Message] = (), **detail: object) -> None:
        """Tell the listeners about messages in a queue. Callers look for listeners first."""
        ids = [message.id for message in messages]
        event = Event(kind, queue.vhost.name, queue.name, ids, detail or None, messages)
        for listener in self.listeners:
            listener(event)

    def emit_run(self, kind: EventKind, queue: Queue, ids: Sequence[int], envelope: Envelope, **detail: object) -> None:
        """The same for messages of one run, of which only the ids are known."""
        event = Event(kind, queue.vhost.name, queue.name, ids, detail or None, envelope)
        for listener in self.listeners:
            listener(event)

    def emit_published(
        self,
        vhost: VirtualHost,
        envelope: Envelope,
        messages: Sequence[int],
        blobs: Sequence[bytes],
        queues: Iterable[Queue],
        **more: object,
    ) -> None:
        """Tell the listeners about a run of new messages, and to which queues they go."""
        detail: dict[str, object] = {"envelope": envelope, "blobs": blobs, "queues": queues, **more}
        event = Event(EventKind.PUBLISHED, vhost.name, envelope.exchange, messages, detail, envelope)
        for listener in self.listeners:
            listener(event)

    def emit_object(self, kind: EventKind, vhost: str, subject: str, detail: dict[str, object]) -> None:
        """Tell the listeners about a queue, an exchange, a client."""
        if self.listeners:
            event = Event(kind, vhost, subject, (), detail)
            for listener in self.listeners:
                listener(event)

    def unacked_of(self, queue: Queue) -> list[Message]:
        """Messages of `queue` that are out; also those whose settling waits for a commit.

        O(all unacknowledged messages).
        """
        return [
            message
            for client in self.clients
            for session in client.sessions
            for message in chain(
                session.unacked.values(), session.transaction.tags.values() if session.transaction else ()
            )
            if message.holder is not None and message.holder.queue is queue
        ]

    def statistics(self) -> BrokerStatistics:
        """A snapshot. O(queues)."""
        queues = [queue for vhost in self.virtual_hosts.values() for queue in vhost.queues.values()]
        counters = Counters()
        counters.add(self.counters)  # of exchanges, and of queues that are gone
        for queue in queues:
            counters.add(queue.counters)
        return BrokerStatistics(
            clients=len(self.clients),
            vhosts=len(self.virtual_hosts),
            exchanges=sum(len(vhost.exchanges) for vhost in self.virtual_hosts.values()),
            queues=len(queues),
            consumers=sum(len(queue.consumers) for queue in queues),
            ready=sum(queue.ready_count for queue in queues),
            unacked=sum(queue.unacked for queue in queues),
            scheduled=sum(len(queue.scheduled) for queue in queues),
            deadlines=len(self.deadlines),
            counters=counters.as_dict(),
        )
