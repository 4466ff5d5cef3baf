"""The broker: its parts, the end of a turn, and time.

A frontend works in turns: it makes the calls into sessions and virtual hosts that one socket read requires, and then
calls `end_turn` once. The engine never waits, has no clock of its own, and knows no sockets.
Source: docs/architecture.md; rulings 3 to 6.
"""

import sys
from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType

from ..settings import NO_SETTINGS, SettingsRepository
from ..settings.frozen import frozen
from .background import Background
from .clients.acknowledgement_timeout import AcknowledgementWatch
from .clients.session_counts import PastSessions
from .clients.slow_consumers import SlowConsumers
from .clients.transaction import Commits
from .clock import Clock
from .connections import Connections
from .context import BrokerContext
from .dead_letters import DEAD_LETTERS_EFFORT, DeadLetters, UnroutableLetters
from .disconnects import Disconnects
from .events import Counters
from .flow.control import FlowControl
from .messages.sizes import Sizes
from .options import DEFAULT_OPTIONS, BrokerOptions
from .parameters import Parameters
from .publishing.auto_created import Reaper
from .reloading import Reloading
from .scheduler import Scheduler
from .turn import Turn
from .users.access import Users
from .virtual_host import Service
from .virtual_hosts import VirtualHosts

#: Maximum rounds of dispatch and flush in one turn. The next turn does the rest, after other peers were served.
ROUNDS_MAX = 4
#: Units of effort at the end of a turn, before the turns of other connections (5 to 10 ms).
TURN_END_EFFORT = 4_000
#: Units of effort at the end of a short turn (`end_turn`).
SHORT_TURN_END_EFFORT = 500
#: Queues counted in one step of a snapshot (about 1 ms).
QUEUES_A_STEP = 500

UNSENT_MAX_DEFAULT = 1024 * 1024
NO_GROUPS: Mapping[str, str] = MappingProxyType({})


@frozen
class BrokerStatistics:
    """The numbers of the broker's objects and messages, and the counters since its start by name of event."""

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
    """One broker. `context`: its state. `parameters`: values that operators, or the broker itself, store in it."""

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
        site: str = "",
        groups: Mapping[str, str] = NO_GROUPS,
    ) -> None:
        """`site`: the broker's own site; `groups`: the group of each present site (`Sites`)."""
        self.users = users or Users()
        context = self.context = BrokerContext(clock, self.users, chance, settings, options, unsent_max, services or {})
        self.sites = context.sites
        self.sites.set_transfer_after(options.transfer_after_ms)
        if site:
            self.sites.begin(site, groups)
        context.past_sessions = PastSessions()
        context.unroutable_letters, context.cycling_letters = UnroutableLetters(), UnroutableLetters()
        self.parameters = Parameters(context)
        self.scheduler = context.scheduler = Scheduler(context)
        self.background = context.background = Background(context)
        self.dead_letters = context.dead_letters = DeadLetters(context)
        self.commits = context.commits = Commits(context)
        self.reloading = context.reloading = Reloading(context)
        self.connections = context.connections = Connections(context)
        self.virtual_hosts = context.virtual_hosts = VirtualHosts(context, self.parameters)
        self.flow = context.flow = FlowControl(context)
        context.disconnects = Disconnects(context)
        context.reaper = Reaper(context)
        context.slow_consumers = SlowConsumers(context)
        context.acknowledgements = AcknowledgementWatch(context)
        self.flow.follow_options()
        self.virtual_hosts.create("/")

    def release_awaiting(self) -> None:
        """Flush the clients and mark the queues that wait for the journal, which has written more or has failed.

        If the disk is no longer full, its blocked publishers continue.
        """
        context = self.context
        durability, disk = context.storage.durability, self.flow.disk
        if disk.is_full and (durability is None or not durability.has_failed):
            disk.switch(None)
            context.deadlines.set(context.clock.monotonic_ns(), _nothing)  # the runtime ends a turn soon
        if self.scheduler.release_awaiting():
            context.deadlines.set(context.clock.monotonic_ns(), _nothing)
        for client in list(context.awaiting):
            del context.awaiting[client]
            client.flush()  # even of a closed client, which may have unsent output
        if self.scheduler.marked:  # a client that was paused has room again
            context.deadlines.set(context.clock.monotonic_ns(), _nothing)

    # -- the turn ---------------------------------------------------------------------------------------------------

    @property
    def is_unfinished(self) -> bool:
        """Whether the journal must not commit, because the latest records and later ones belong together.

        True while dead letters of recorded deaths are not published, and during a large commit, purge or deletion.
        """
        return bool(self.dead_letters.waiting) or self.commits.is_under_way or bool(self.context.bulk_deletes)

    def begin_turn(self, turn: Turn) -> None:
        """Begin a turn of a client."""
        self.context.turn = turn

    def end_turn(self, *, is_short: bool = False) -> bool:
        """Dispatch marked queues, flush touched clients, do a slice of a commit and of background work.

        Returns whether it should be called again soon.

        `is_short`: dispatch a little, and do no background work; then it returns True.
        """
        marked, touched, letters = self.scheduler.marked, self.context.touched, self.dead_letters
        self.context.turn.effort_max = sys.maxsize  # the parts below have other limits
        if marked or touched or letters.waiting or letters.late or letters.were_waiting:
            self._hand_out(SHORT_TURN_END_EFFORT if is_short else TURN_END_EFFORT)
        if is_short:
            return True
        commits, background = self.commits, self.background
        if commits.waiting:
            commits.work()
        if background.pending:
            background.work()
        if marked or touched or letters.waiting or letters.late or background.pending:
            return True
        return commits.pending

    def _hand_out(self, effort: int) -> None:
        """Dispatch and flush, up to `ROUNDS_MAX` times, until no work is left or the effort has risen by `effort`."""
        marked, touched, letters = self.scheduler.marked, self.context.touched, self.dead_letters
        dead = letters.waiting
        turn = self.context.turn
        until = turn.effort_max = turn.effort + effort
        dead_until = turn.effort + min(effort, DEAD_LETTERS_EFFORT)
        try:
            if dead or letters.late or letters.were_waiting:
                letters.begin()
            for _ in range(ROUNDS_MAX):
                if dead and turn.effort < dead_until:
                    letters.publish(dead_until)
                while marked and turn.effort < until:
                    self.scheduler.dispatch()
                if not touched and (not dead or turn.effort >= dead_until):
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
                if turn.effort >= until:
                    break
        finally:
            turn.effort_max = sys.maxsize

    # -- time -------------------------------------------------------------------------------------------------------

    def next_deadline_ns(self) -> int | None:
        """The time of the next deadline, at which `advance` is due (monotonic ns); None: there is none."""
        return self.context.deadlines.next_ns()

    def advance(self) -> int:
        """Run the actions that are due. Returns their number. The caller ends the turn afterwards."""
        return self.context.deadlines.advance(self.context.clock.monotonic_ns())

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def published_sizes(self) -> Sizes:
        """The sizes of bodies published since the first call, which begins to count."""
        context = self.context
        if context.sizes is None:
            context.sizes = Sizes()
        return context.sizes

    def statistics(self) -> BrokerStatistics:
        """A snapshot. O(queues)."""
        steps = self.statistics_in_steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: BrokerStatistics = end.value
                return found

    def statistics_in_steps(self) -> Generator[None, None, BrokerStatistics]:
        """A snapshot in steps of about a millisecond. Queues may change in between."""
        context, vhosts = self.context, list(self.virtual_hosts.values())
        queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
        counters = Counters()
        counters.add(context.counters)  # of exchanges and deleted queues
        consumers = ready = unacked = scheduled = 0
        for count, queue in enumerate(queues, 1):
            counters.add(queue.counters)
            consumers += len(queue.consumers)
            ready += queue.ready_count
            unacked += queue.unacked
            scheduled += len(queue.scheduled)
            if count % QUEUES_A_STEP == 0:
                yield
        return BrokerStatistics(
            clients=len(self.connections),
            vhosts=len(vhosts),
            exchanges=sum(len(vhost.exchanges) for vhost in vhosts),
            queues=len(queues),
            consumers=consumers,
            ready=ready,
            unacked=unacked,
            scheduled=scheduled,
            deadlines=len(context.deadlines),
            counters=counters.as_dict(),
        )


def _nothing() -> None:
    """The action of a deadline that only makes the runtime end a turn."""
