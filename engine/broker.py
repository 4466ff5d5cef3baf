"""The broker: virtual hosts, users, the deadlines, and the turn.

A frontend does its work in turns: it calls into sessions and virtual hosts as often as one socket read asks for, and
then `end_turn` once. Nothing here waits, reads a clock of its own, or knows what a socket is.
Source: docs/architecture.md; rulings 3 to 6.
"""

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from ..settings import NO_POLICIES, NO_SETTINGS, LoggedTopic, SettingsRepository
from .agenda import Agenda
from .announcer import Announcer
from .chores import Commits, Errands, Feeding, Freeing, Reviewing, Trimming
from .clock import MS, Clock
from .connections import Connections
from .dead_letters import DEAD_SPREAD, DeadLetters
from .deadlines import Deadlines
from .departures import Departures
from .durability import Durability
from .effort import Effort
from .emptying import Emptying
from .errors import VirtualHostNotFound
from .events import Activity, Counters, EventKind
from .flow.control import Blocked, FlowControl
from .flow.warnings import BlockedWarnings
from .messages.message import Envelope
from .messages.sizes import Sizes
from .object_events import BlockedEvent, VirtualHostEvent
from .options import DEFAULT_OPTIONS, BrokerOptions, VirtualHostLimits
from .parameters import Parameters
from .peers.acknowledgement_timeout import AcknowledgementWatch
from .peers.client import Client
from .peers.session_counts import PastSessions
from .peers.slow_consumers import SlowConsumers
from .pressure import Pressure
from .publishing.arrival import publish_by_name
from .publishing.auto_created import Reaper
from .publishing.firehose import Firehose
from .publishing.unroutable_letters import UnroutableLetters
from .queues.queue import Queue
from .reloading import Reloading
from .statistics import BrokerStatistics, statistics_in_steps, statistics_of
from .stores.surroundings import Storage
from .stores.tail import Pager
from .turns import Turns
from .users.access import Users
from .virtual_host import Service, VirtualHost

#: Rounds of dispatch and flush in one turn; what is left is for the next, so that no peer keeps the others waiting.
ROUNDS_MAX = 4
#: What the end of a turn does before others have theirs, by the measure of `Effort` (5 to 10 ms).
TURN_SPREAD = 4_000
#: The same where somebody else does what is left over, between the turns of all.
SHORT_SPREAD = 500

UNSENT_MAX_DEFAULT = 1024 * 1024


class Broker:
    """Everything that one broker process serves, whatever its frontends. Its parts do the work, under names of its own.

    `services`: name -> handler of exchanges behind which the broker itself listens, in every virtual host.
    `chance`: a number in [0, 1), uniform in a real broker; 0.5 stands for "nothing happens by chance".
    """

    def __init__(
        self,
        clock: Clock,
        users: Users | None = None,
        *,
        services: dict[str, Service] | None = None,
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
        self.logged_topics: Sequence[LoggedTopic] = ()
        #: Called when a leased queue selects a topic that is not logged, where logged topics are listed.
        self.on_unlogged: Callable[[Queue, str], object] = lambda queue, topic: None
        #: Called when something has arguments that nobody knows: what, its name, virtual host, `unknown_arguments`.
        self.on_unknown_arguments: Callable[[str, str, str, dict[str, str]], object] = lambda *of: None
        self.options = options
        self.chance = chance
        self.unsent_max = unsent_max
        self.deadlines = Deadlines()
        self.storage = Storage()
        self.effort = Effort()
        self.pressure = Pressure(options.busy_queue_ready_max)
        self.awaiting: dict[Client, None] = {}  # hear more when more is safe
        self.awaiting_queues: dict[Queue, None] = {}  # hand out more when more is safe
        self.counters = Counters()
        self.activity = Activity()
        self.past_sessions = PastSessions()
        self.sizes: Sizes | None = None  # see `count_sizes`
        self.next_id = 1
        self.clients: dict[Client, None] = {}
        self.touched: dict[Client, None] = {}  # have effects in their outbox
        self.virtual_hosts: dict[str, VirtualHost] = {}
        self.emptyings: set[Emptying] = set()  # those that are under way

        announcer = Announcer()
        self.listeners = announcer.listeners
        self.announce = announcer.announce
        self.parameters = Parameters(self.listeners, self.announce)

        self.turns = Turns(self.effort)
        self.mark = self.turns.mark
        self.is_marked = self.turns.is_marked

        self.unroutable_letters = UnroutableLetters()
        letters = self.dead_letters = DeadLetters(self)
        self.bury = letters.bury
        self.expire_later = letters.expire_later

        self._commits = Commits(self, letters)
        self.apply = self._commits.apply
        agenda = self._agenda = Agenda()
        self.blocked_warnings = BlockedWarnings(clock, self.deadlines)
        self.flow = FlowControl(clock, self.effort, agenda, self._announce_blocked, self.blocked_warnings.blocked)
        self.configure_flow()
        self.free = Freeing(agenda).free
        self.trim_later = Trimming(agenda, letters).trim_later
        reviewing = Reviewing(agenda, self.policies)
        self.departures = Departures(agenda)
        self.run_errand = Errands(agenda).run_errand
        feeding = Feeding(self.mark)
        self.hungry = feeding.hungry
        self.feed = feeding.feed

        self.firehose = Firehose(self.listeners, self.mark, self._publish_copies)
        self.reaper = Reaper(self)
        self.slow_consumers = SlowConsumers(clock, self.deadlines, self.departures.expel, self.run_errand)
        self.acknowledgements = AcknowledgementWatch(clock, self.deadlines, self.clients, options.consumer_timeout_ms)
        reloading = Reloading(self, reviewing)
        self.replace_settings = reloading.replace_settings
        self.replace_policies = reloading.replace_policies
        self.replace_diverts = reloading.replace_diverts
        self.replace_logged_topics = reloading.replace_logged_topics
        connections = Connections(self)
        self.connect = connections.connect
        self.forget = connections.forget
        self.sessions_of = connections.sessions_of
        self.replace_user = connections.replace_user
        self.delete_user = connections.delete_user
        self.create_virtual_host("/")

    # -- virtual hosts ------------------------------------------------------------------------------------------------

    def create_virtual_host(self, name: str) -> VirtualHost:
        """The virtual host of that name, new or as it is."""
        vhost = self.virtual_hosts.get(name)
        if vhost is None:
            self.departures.finish(name)
            vhost = self.virtual_hosts[name] = VirtualHost(self, name)
            if self.listeners:
                self.announce(VirtualHostEvent(EventKind.DECLARED, name, name))
        return vhost

    def delete_virtual_host(self, name: str) -> None:
        """Nobody gets into it any more; its clients are sent away and its queues deleted at the ends of turns.

        Raises: VirtualHostNotFound.
        """
        vhost = self.virtual_hosts.pop(name, None)
        if vhost is None:
            raise VirtualHostNotFound(vhost=name)
        for user in self.users:
            if user.permissions is not None and (name in user.permissions or name in user.waiting_topics):
                rest = {other: granted for other, granted in user.permissions.items() if other != name}
                waiting = {other: topics for other, topics in user.waiting_topics.items() if other != name}
                self.replace_user(
                    replace(user, permissions=MappingProxyType(rest), waiting_topics=MappingProxyType(waiting))
                )
        gone = [policy.identity for policy in self.policies if policy.vhost == name]
        if gone:
            self.replace_policies(self.policies.without(gone))
        self.parameters.forget(name)
        vhost.is_condemned = True
        # At once, and whole: one that was said to be gone does not come back with half of its queues.
        if vhost.firehose is not None:
            self.trace(vhost, on=False)
        if self.listeners:
            self.announce(VirtualHostEvent(EventKind.UNDECLARED, name, name, is_going=True))
        self.departures.condemn(vhost, [client for client in self.clients if client.vhost is vhost])

    def limit_virtual_host(self, vhost: VirtualHost, limits: VirtualHostLimits) -> None:
        """What may be in it from now on; what is there stays."""
        vhost.limits = limits
        if self.listeners:
            self.announce(VirtualHostEvent(EventKind.DECLARED, vhost.name, vhost.name))

    def trace(self, vhost: VirtualHost, *, on: bool) -> None:
        """The firehose of a virtual host: copies of what clients publish and get go to amq.rabbitmq.trace, or no more.

        Not kept over a restart, as in RabbitMQ.
        """
        self.firehose.switch(vhost.name, on=on)
        vhost.firehose = self.firehose if on else None
        vhost.routes_changed()

    def _publish_copies(self, vhost: str, envelope: Envelope, blobs: Sequence[bytes]) -> None:
        found = self.virtual_hosts.get(vhost)
        if found is not None:
            publish_by_name(found, envelope, blobs)

    def queues(self) -> Iterator[Queue]:
        """Those of all virtual hosts."""
        return (queue for vhost in self.virtual_hosts.values() for queue in vhost.queues.values())

    def review_queues(self, *, all_of_them: bool = False) -> None:
        """After a start: leased queues that were not built from the recovery point that they have, or all of them, are.

        Source: queues page C.5.
        """
        for queue in list(self.queues()):
            leased = queue.rules.leased
            if leased is None or queue.is_reviewed:
                continue
            if all_of_them or queue.recovery != leased.settings.recovery_point:
                self.virtual_hosts[queue.vhost_name].review_queue(queue)

    def queues_count(self) -> int:
        """In all virtual hosts. O(those)."""
        return sum(len(vhost.queues) for vhost in self.virtual_hosts.values())

    def bindings_count(self) -> int:
        """In all virtual hosts. O(those)."""
        return sum(vhost.bindings.count for vhost in self.virtual_hosts.values())

    @property
    def alarm(self) -> str | None:
        """Why clients may not publish, while an operator says so."""
        alarm = self.flow.alarm
        return alarm.reason if alarm.is_full else None

    def raise_alarm(self, reason: str) -> None:
        """Nobody may publish until `end_alarm`; frontends notice when they look up a route."""
        self.flow.alarm.switch(reason)
        for vhost in self.virtual_hosts.values():
            vhost.routes_changed()

    def end_alarm(self) -> None:
        """Who waited goes on with the end of the turn."""
        self.flow.alarm.switch(None)

    def more_is_safe(self) -> None:
        """The journal got on, or failed: clients that wait for it are flushed, queues have a turn, publishers that wait
        for the disk may go on.
        """
        durability, disk = self.storage.durability, self.flow.disk
        if disk.is_full and (durability is None or not durability.has_failed):
            disk.switch(None)
            self.deadlines.set(self.clock.monotonic_ns(), _nothing)  # a turn ends soon, whoever is flushed now
        if self.awaiting_queues:
            for queue in self.awaiting_queues:
                queue.mark()
            self.awaiting_queues.clear()
            self.deadlines.set(self.clock.monotonic_ns(), _nothing)
        for client in list(self.awaiting):
            del self.awaiting[client]
            client.flush()  # also one that is closed: its last words may be among what waits

    def configure_flow(self) -> None:
        """The options may have other limits."""
        system = self.options.system_usage
        self.flow.configure(system, self.options.flow, self.options.whole_limits)
        self.storage.watch_temp(0 if system is None else system.temp, self.flow.temp_changed)

    def _announce_blocked(self, blocked: Blocked, waits: bool) -> None:
        if self.listeners:
            kind = EventKind.BLOCKED if waits else EventKind.UNBLOCKED
            now_ns = self.clock.monotonic_ns()
            self.announce(
                BlockedEvent(
                    kind,
                    blocked.client.vhost.name,
                    blocked.client.name,
                    blocked.client,
                    blocked.destination,
                    blocked.limit,
                    (now_ns - blocked.since_ns) // MS,
                )
            )

    # -- where messages are kept --------------------------------------------------------------------------------------

    @property
    def durability(self) -> Durability | None:
        """What says how far the journal is; None: there is none."""
        return self.storage.durability

    @durability.setter
    def durability(self, durability: Durability | None) -> None:
        self.storage.durability = durability

    @property
    def pager(self) -> Pager | None:
        """What gives paged-out messages back; None: nothing is paged out."""
        return self.storage.pager

    @pager.setter
    def pager(self, pager: Pager | None) -> None:
        self.storage.pager = pager

    # -- the turn ---------------------------------------------------------------------------------------------------

    @property
    def waiting_count(self) -> int:
        """While the marked queues have their turns: how many of them wait for theirs."""
        return self.turns.waiting_count()

    @property
    def is_crowded(self) -> bool:
        """Whether dead letters cause no deaths for now."""
        return self.dead_letters.is_crowded()

    @property
    def dead_count(self) -> int:
        """How many dead letters are still to be published."""
        return len(self.dead_letters.waiting)

    @property
    def is_unfinished(self) -> bool:
        """Whether what was recorded last is whole only with what is still to come: for a journal the turn goes on.

        So with dead letters, whose deaths are recorded, and in the middle of a large commit, purge or deletion.
        """
        return bool(self.dead_letters.waiting) or self._commits.is_under_way or bool(self.emptyings)

    def dispatch_now(self, queue: Queue) -> None:
        """Hand out before somebody looks into the queue: what waiting consumers could take is theirs."""
        if self.dead_letters.waiting:
            crowded = self.pressure.queue
            self.dead_letters.publish()
            self.pressure.queue = crowded
        if queue.store.expiring:
            queue.expire_now()
        self.turns.dispatch_now(queue)

    def end_turn(self, *, is_short: bool = False) -> bool:
        """Dispatch marked queues, flush touched clients, do a slice of each chore. True: call again soon.

        is_short: somebody calls again in any case, and others' turns end before that; so little is dispatched, and no
        chore done.
        """
        marked, touched, letters = self.turns.marked, self.touched, self.dead_letters
        if marked or touched or letters.waiting or letters.late or letters.were_waiting:
            self._hand_out(SHORT_SPREAD if is_short else TURN_SPREAD)
        if is_short:
            return True
        commits, agenda = self._commits, self._agenda
        if commits.waiting:
            commits.work()
        if agenda.pending:
            agenda.work()
        if marked or touched or letters.waiting or letters.late or agenda.pending:
            return True
        return bool(commits.waiting) and commits.pending

    def _hand_out(self, spread: int) -> None:
        """Rounds of dispatch and flush, until nothing is left or the turn has become long enough."""
        marked, touched, letters = self.turns.marked, self.touched, self.dead_letters
        dead = letters.waiting
        effort = self.effort
        until = effort.turn_max = effort.spent + spread
        dead_until = effort.spent + min(spread, DEAD_SPREAD)
        try:
            if dead or letters.late or letters.were_waiting:
                letters.begin()
            for _ in range(ROUNDS_MAX):
                if dead and effort.spent < dead_until:
                    letters.publish(dead_until)
                while marked and effort.spent < until:
                    self.turns.dispatch()
                if not touched and (not dead or effort.spent >= dead_until):
                    break
                if len(touched) == 1:
                    client, _ = touched.popitem()
                    if not client.closed:
                        client.flush()
                else:
                    for client in list(touched):
                        del touched[client]
                        if not client.closed:
                            client.flush()
                if effort.spent >= until:
                    break
        finally:
            effort.turn_max = sys.maxsize

    # -- time -------------------------------------------------------------------------------------------------------

    def next_deadline_ns(self) -> int | None:
        """When to call `advance` next, by the clock's monotonic reading."""
        return self.deadlines.next_ns()

    def advance(self) -> int:
        """Do what is due by now. Returns how many deadlines that were; end the turn afterwards."""
        return self.deadlines.advance(self.clock.monotonic_ns())

    # -- what is there ------------------------------------------------------------------------------------------------

    def count_sizes(self) -> Sizes:
        """Sizes of what clients publish, since this was called first."""
        if self.sizes is None:
            self.sizes = Sizes()
        return self.sizes

    def statistics(self) -> BrokerStatistics:
        """A snapshot. O(queues)."""
        return statistics_of(self.statistics_in_steps())

    def statistics_in_steps(self) -> Generator[None, None, BrokerStatistics]:
        """The same; each step is about a millisecond, and queues may change between two."""
        return statistics_in_steps(
            list(self.virtual_hosts.values()),
            clients=len(self.clients),
            deadlines=len(self.deadlines),
            past=self.counters,
        )


def _nothing() -> None:
    """Only for the turn that ends behind it."""
