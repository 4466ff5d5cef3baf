"""The broker: virtual hosts, users, the deadlines, and the turn.

A frontend does its work in turns: it calls into sessions and virtual hosts as often as one socket read asks for, and
then `end_turn` once. Nothing here waits, reads a clock of its own, or knows what a socket is.
Source: docs/architecture.md; rulings 3 to 6.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import length_hint
from types import MappingProxyType

from ..settings import NO_POLICIES, NO_SETTINGS, Divert, Policies, Policy, SettingsRepository
from .clock import Clock
from .deadlines import Deadlines
from .departures import Departures
from .durability import Durability
from .errors import ConnectionsMaxReached, UserConnectionsMaxReached, UserDeleted, VirtualHostNotFound
from .events import Counters, EventKind
from .messages.deaths import EXPIRED, dead_letter
from .messages.event import Event, Listener
from .messages.field_table import FieldTable
from .messages.message import Envelope, Message
from .options import DEFAULT_OPTIONS, BrokerOptions, VirtualHostLimits
from .peers.acknowledgement_timeout import AcknowledgementWatch
from .peers.client import Client
from .peers.commit import Commit
from .publishing.auto_created import Reaper, targets_of
from .publishing.firehose import Firehose
from .publishing.publish import publish_dead
from .publishing.service import Handler
from .queues.limits import enforce
from .queues.memory_budget import MemoryBudget
from .queues.queue import Queue
from .rules.diverts import Diverts
from .stores.ready import Ready
from .stores.tail import Pager
from .users.access import User, Users
from .virtual_host import VirtualHost

#: Rounds of dispatch and flush in one turn; what is left is for the next, so that no peer keeps the others waiting.
ROUNDS_MAX = 4
#: Messages given back to the allocator in one slice of a purge or delete (about 2 ms).
FREE_SLICE = 20_000
#: Messages times queues that a commit publishes in one slice (2 to 5 ms); one with less is applied at once.
COMMIT_SLICE = 2_000
#: What the end of a turn does before others have theirs, by the measure of `Broker.spread` (5 to 10 ms), and how much
#: of that is for dead letters.
TURN_SPREAD, DEAD_SPREAD = 4_000, 2_000
#: What a dead letter costs by that measure: it, each queue that it goes to, and so many octets of it.
LETTER_COST, LETTER_QUEUE_COST, LETTER_OCTETS = 40, 20, 1_000
#: While so many dead letters are on their way, or are out since there were none, they cause no more (`is_crowded`).
LETTERS_MAX = 500
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
        self.spread = 0  # what was done that costs much, in messages times queues (about 1.2 us each): rises only
        self.turn_spread_max = sys.maxsize  # while a turn ends: where it is long enough
        self.clients: dict[Client, None] = {}
        self.touched: dict[Client, None] = {}  # have effects in their outbox
        self.alarm: str | None = None  # why clients may not publish, while an operator says so
        self.firehose: Firehose | None = None  # once somebody asked for it
        self._marked: dict[Queue | Firehose, None] = {}  # may have something to hand out
        self._turns: list[Queue | Firehose] = []  # of those that were marked, the next one last
        self._takes_turns = False
        self.round = 0  # of turns, since the broker started
        self.round_width = 1  # how many queues have a turn in it
        self._dead: deque[tuple[Queue, Message, str]] = deque()  # on their way to dead-letter exchanges
        self._dead_count = 0  # of those, published since there were none on their way
        self._late: dict[Queue, None] = {}  # where messages have expired, and have to wait for that
        self._commits: deque[Commit] = deque()  # that are too much for one turn; only the first is under way
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
        if vhost.firehose is not None:
            self.trace(vhost, on=False)
        self.emit_object(EventKind.UNDECLARED, name, name, {"what": "vhost", "is_going": True})
        self.departures.condemn(vhost, [client for client in self.clients if client.vhost is vhost])

    def limit_virtual_host(self, vhost: VirtualHost, limits: VirtualHostLimits) -> None:
        """What may be in it from now on; what is there stays."""
        vhost.limits = limits
        self.emit_object(EventKind.DECLARED, vhost.name, vhost.name, {"what": "vhost"})

    def trace(self, vhost: VirtualHost, *, on: bool) -> None:
        """The firehose of a virtual host: copies of what clients publish and get go to amq.rabbitmq.trace, or no more.

        Not kept over a restart, as in RabbitMQ.
        """
        if self.firehose is None:
            self.firehose = Firehose(self)
        self.firehose.switch(vhost.name, on=on)
        vhost.firehose = self.firehose if on else None
        vhost.routes_changed()

    def raise_alarm(self, reason: str) -> None:
        """Nobody may publish until `end_alarm`; frontends notice when they look up a route."""
        self.alarm = reason
        for vhost in self.virtual_hosts.values():
            vhost.routes_changed()

    def end_alarm(self) -> None:
        """Who waited goes on with the end of the turn."""
        self.alarm = None
        self.touched.update(self.awaiting)

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
        for vhost in dict.fromkeys(client.vhost for client in clients):
            vhost.routes_changed()
        return clients

    def connect(
        self, vhost: str, user: User, *, name: str, flush: Callable[[], object], properties: FieldTable | None = None
    ) -> Client:
        """A client in a virtual host. `flush` is called when a turn left effects in its outbox.

        `properties`: what the client says of itself.

        Raises: VirtualHostNotFound, VirtualHostRefused, ConnectionsMaxReached, UserConnectionsMaxReached.
        """
        found = self.virtual_hosts.get(vhost)
        if found is None:
            raise VirtualHostNotFound(vhost=vhost)
        user = self.users.current(user, vhost)
        self._check_connections_max(found, user)
        user.check_vhost(vhost)
        client = Client(found, user, name, flush, self.unsent_max, properties or {})
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
        """In all virtual hosts. O(those)."""
        return sum(vhost.bindings_count for vhost in self.virtual_hosts.values())

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
            before, self.options = self.options, options
            if options.address_queue_scan_period_ms != before.address_queue_scan_period_ms:
                self.reaper.period_changed()
            if options.consumer_timeout_ms != before.consumer_timeout_ms:
                self.acknowledgements.default_changed()
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
        queue = next(iter(self.hungry))  # the one that has waited longest
        del self.hungry[queue]
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

    def mark(self, queue: Queue | Firehose) -> None:
        """Look at this queue again before the turn ends."""
        self._marked[queue] = None

    def is_marked(self, queue: Queue) -> bool:
        """Whether it will be looked at."""
        return queue in self._marked

    @property
    def waiting_count(self) -> int:
        """While the marked queues have their turns: how many of them wait for theirs."""
        return len(self._marked) if self._takes_turns else 0

    def dispatch_now(self, queue: Queue) -> None:
        """Hand out before somebody looks into the queue: what waiting consumers could take is theirs."""
        if self._dead:
            self._publish_dead()
        if queue.expiring:
            queue.expire_now()
        if queue in self._marked:
            del self._marked[queue]
            if not queue.deleted:
                queue.dispatch()

    def _dispatch_in_turns(self) -> None:
        """All marked queues in the order of the marks; those that are marked meanwhile come behind them."""
        marked, turns = self._marked, self._turns
        self._takes_turns = True
        try:
            while marked:
                if not turns:
                    turns.extend(reversed(marked))
                    self.round += 1
                    self.round_width = len(turns)
                queue = turns.pop()
                if queue in marked:
                    del marked[queue]
                    if not queue.deleted:
                        queue.dispatch()
                        if self.spread >= self.turn_spread_max:
                            break
        finally:
            self._takes_turns = False

    def end_turn(self) -> bool:
        """Dispatch marked queues, flush touched clients, free a slice. True: call again soon, there is more."""
        marked, touched = self._marked, self.touched
        until = self.turn_spread_max = self.spread + TURN_SPREAD
        dead_until = self.spread + DEAD_SPREAD
        was_crowded = self.is_crowded
        try:
            if self._late and not self._dead:
                self._expire_late()
            for _ in range(ROUNDS_MAX):
                if self._dead and self.spread < dead_until:
                    self._publish_dead(dead_until)
                while marked and self.spread < until:
                    if len(marked) > 1:
                        self._dispatch_in_turns()
                    else:
                        queue, _ = marked.popitem()
                        if not queue.deleted:
                            queue.dispatch()
                if not touched and (not self._dead or self.spread >= dead_until):
                    break
                for client in list(touched):
                    del touched[client]
                    if not client.closed:
                        client.flush()
                if self.spread >= until:
                    break
        finally:
            self.turn_spread_max = sys.maxsize
        if self._commits:
            self._commit_slice()
        if self._to_free:
            self._free_slice()
        if self._to_trim and not was_crowded:
            self._trim_slice()
        if self._to_review:
            self._review_slice()
        if self.departures.pending:
            self.departures.work()
        return bool(
            marked
            or touched
            or self._dead
            or self._late
            or self._may_commit
            or self._to_free
            or self._to_trim
            or self._to_review
            or self.departures.pending
        )

    def bury(self, queue: Queue, messages: list[Message], reason: str) -> None:
        """Messages died in a queue that has a dead-letter exchange: they are published there before the turn ends."""
        self._dead.extend((queue, message, reason) for message in messages)

    def apply(self, commit: Commit) -> None:
        """Apply a transaction: at once, or in slices if it is large, one such after the other."""
        if commit.cost <= COMMIT_SLICE:
            commit.work()
        else:
            self._commits.append(commit)

    def _commit_slice(self) -> None:
        commit = self._commits[0]
        if not commit.has_begun and (self._dead or not self._may_commit):
            return  # what was recorded before is written first
        commit.work(COMMIT_SLICE)
        if commit.is_done:
            self._commits.popleft()
            commit.session.committed()
            if not commit.session.client.closed:
                self.touched[commit.session.client] = None

    @property
    def _may_commit(self) -> bool:
        """Whether a large commit is to go on. None begins while the journal takes nothing."""
        commits, durability = self._commits, self.durability
        return bool(commits) and (commits[0].has_begun or durability is None or not durability.has_failed)

    @property
    def is_unfinished(self) -> bool:
        """Whether what was recorded last is whole only with what is still to come: for a journal the turn goes on.

        So with dead letters, whose deaths are recorded, and in the middle of a large commit.
        """
        return bool(self._dead) or (bool(self._commits) and self._commits[0].has_begun)

    @property
    def dead_count(self) -> int:
        """How many dead letters are still to be published."""
        return len(self._dead)

    @property
    def is_crowded(self) -> bool:
        """Whether dead letters cause no deaths for now: first those are to be out that are on their way.

        Else a chain of queues where nothing may wait would have no end before its own, and the journal none to commit.
        """
        return self._dead_count >= LETTERS_MAX or len(self._dead) >= LETTERS_MAX

    def expire_later(self, queue: Queue) -> None:
        """Messages have expired, and are to go when the dead letters are out that are on their way."""
        self._late[queue] = None

    def _expire_late(self) -> None:
        late, self._late = self._late, {}
        for queue in late:
            queue.expire_now()

    def _publish_dead(self, until: int | None = None) -> None:
        """A slice of the dead letters, until so much `spread`: their publication may cause more of them."""
        dead = self._dead
        if until is None:
            until = self.spread + DEAD_SPREAD
        while dead and self.spread < until:
            queue, message, reason = dead.popleft()
            self._dead_count += 1
            self._publish_letter(queue, message, reason)
        if not dead:
            self._dead_count = 0

    def _publish_letter(self, queue: Queue, message: Message, reason: str) -> None:
        self.spread += LETTER_COST + len(message.blob) // LETTER_OCTETS
        target = queue.dead_letter_target(reason)
        if target is None:
            return
        rules, vhost = queue.rules, queue.vhost
        if rules.dead_letter_exchange is not None:
            targets = [(target, rules.dead_letter_routing_key)]
        else:
            resources = rules.expiry_resources if reason == EXPIRED else rules.dead_letter_resources
            targets = [*targets_of(vhost, target, queue.address, resources)]
        for exchange, key in targets:
            width = publish_dead(
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
            self.spread += width * LETTER_QUEUE_COST

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
        queue = next(iter(self._to_trim))
        del self._to_trim[queue]
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

        O(those + what its sessions got since this was asked last).
        """
        if not queue.unacked:
            return []
        return [message for session in queue.sessions for message in session.outstanding.of(session, queue)]

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
