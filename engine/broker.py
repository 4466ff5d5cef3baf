"""The broker: virtual hosts, users, the deadlines, and the turn.

A frontend does its work in turns: it calls into sessions and virtual hosts as often as one socket read asks for, and
then `end_turn` once. Nothing here waits, reads a clock of its own, or knows what a socket is.
Source: docs/architecture.md; rulings 3 to 6.
"""

import sys
from collections.abc import Callable, Generator

from ..settings import NO_SETTINGS, SettingsRepository
from .background import Background
from .clients.acknowledgement_timeout import AcknowledgementWatch
from .clients.session_counts import PastSessions
from .clients.slow_consumers import SlowConsumers
from .clock import Clock
from .commits import Commits
from .connections import Connections
from .context import BrokerContext
from .dead_letters import DEAD_SPREAD, DeadLetters
from .disconnects import Disconnects
from .flow.control import FlowControl
from .messages.sizes import Sizes
from .options import DEFAULT_OPTIONS, BrokerOptions
from .parameters import Parameters
from .publishing.auto_created import Reaper
from .publishing.unroutable_letters import UnroutableLetters
from .reloading import Reloading
from .scheduler import Scheduler
from .statistics import BrokerStatistics, statistics_in_steps, statistics_of
from .users.access import Users
from .virtual_host import Service
from .virtual_hosts import VirtualHosts

#: Rounds of dispatch and flush in one turn; what is left is for the next, so that no peer keeps the others waiting.
ROUNDS_MAX = 4
#: What the end of a turn does before others have theirs, by the measure of `Effort` (5 to 10 ms).
TURN_SPREAD = 4_000
#: The same where somebody else does what is left over, between the turns of all.
SHORT_SPREAD = 500

UNSENT_MAX_DEFAULT = 1024 * 1024


class Broker:
    """Everything that one broker process serves, whatever its frontends: its parts, by name, and the turn.

    `context`: its state. `parameters`: what operators give it to keep.
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
        self.users = users or Users()
        context = self.context = BrokerContext(clock, self.users, chance, settings, options, unsent_max, services or {})
        context.past_sessions = PastSessions()
        context.unroutable_letters = UnroutableLetters()
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

    def more_is_safe(self) -> None:
        """The journal got on, or failed: clients that wait for it are flushed, queues have a turn, publishers that wait
        for the disk may go on.
        """
        context = self.context
        durability, disk = context.storage.durability, self.flow.disk
        if disk.is_full and (durability is None or not durability.has_failed):
            disk.switch(None)
            context.deadlines.set(context.clock.monotonic_ns(), _nothing)  # a turn ends soon, whoever is flushed now
        if self.scheduler.more_is_safe():
            context.deadlines.set(context.clock.monotonic_ns(), _nothing)
        for client in list(context.awaiting):
            del context.awaiting[client]
            client.flush()  # also one that is closed: its last words may be among what waits

    # -- the turn ---------------------------------------------------------------------------------------------------

    @property
    def is_unfinished(self) -> bool:
        """Whether what was recorded last is whole only with what is still to come: for a journal the turn goes on.

        So with dead letters, whose deaths are recorded, and in the middle of a large commit, purge or deletion.
        """
        return bool(self.dead_letters.waiting) or self.commits.is_under_way or bool(self.context.bulk_deletes)

    def end_turn(self, *, is_short: bool = False) -> bool:
        """Dispatch marked queues, flush touched clients, do a slice of each background task. True: call again soon.

        is_short: somebody calls again in any case, and others' turns end before that; so little is dispatched, and no
        background task done.
        """
        marked, touched, letters = self.scheduler.marked, self.context.touched, self.dead_letters
        if marked or touched or letters.waiting or letters.late or letters.were_waiting:
            self._hand_out(SHORT_SPREAD if is_short else TURN_SPREAD)
        if is_short:
            return True
        commits, background = self.commits, self.background
        if commits.waiting:
            commits.work()
        if background.pending:
            background.work()
        if marked or touched or letters.waiting or letters.late or background.pending:
            return True
        return bool(commits.waiting) and commits.pending

    def _hand_out(self, spread: int) -> None:
        """Rounds of dispatch and flush, until nothing is left or the turn has become long enough."""
        marked, touched, letters = self.scheduler.marked, self.context.touched, self.dead_letters
        dead = letters.waiting
        effort = self.context.effort
        until = effort.turn_max = effort.spent + spread
        dead_until = effort.spent + min(spread, DEAD_SPREAD)
        try:
            if dead or letters.late or letters.were_waiting:
                letters.begin()
            for _ in range(ROUNDS_MAX):
                if dead and effort.spent < dead_until:
                    letters.publish(dead_until)
                while marked and effort.spent < until:
                    self.scheduler.dispatch()
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
        return self.context.deadlines.next_ns()

    def advance(self) -> int:
        """Do what is due by now. Returns how many deadlines that were; end the turn afterwards."""
        return self.context.deadlines.advance(self.context.clock.monotonic_ns())

    # -- what is there ------------------------------------------------------------------------------------------------

    def count_sizes(self) -> Sizes:
        """Sizes of what clients publish, since this was called first."""
        context = self.context
        if context.sizes is None:
            context.sizes = Sizes()
        return context.sizes

    def statistics(self) -> BrokerStatistics:
        """A snapshot. O(queues)."""
        return statistics_of(self.statistics_in_steps())

    def statistics_in_steps(self) -> Generator[None, None, BrokerStatistics]:
        """The same; each step is about a millisecond, and queues may change between two."""
        return statistics_in_steps(
            list(self.virtual_hosts.values()),
            clients=len(self.connections),
            deadlines=len(self.context.deadlines),
            past=self.context.counters,
        )


def _nothing() -> None:
    """Only for the turn that ends behind it."""
