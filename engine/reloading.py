"""Other settings, options, policies or diverts for a broker that runs: they hold at once, for what is there, too."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import length_hint

from ..settings import Divert, LoggedTopic, Policies, Policy, SettingsRepository
from .context import BrokerContext
from .events import EventKind
from .object_events import PolicyEvent, SettingsEvent
from .options import BrokerOptions
from .queues.queue import Queue
from .queues.reconfigure import policy_changed, settings_changed
from .rules.diverts import Diverts

#: Queues that are asked whether a changed policy concerns them, and those that it concerns, in one slice (about 5 ms).
REVIEW_SLICE, CONCERNED_SLICE = 500, 50
#: Queues that follow reloaded settings in one slice (about 5 ms).
SETTINGS_SLICE = 150


class Reloading:
    """Of one broker. `pending`: some queues have not heard of changed policies, or of reloaded settings."""

    __slots__ = ("_context", "_waiting", "pending")

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._waiting: deque[tuple[Iterator[Queue], list[Policy] | None]] = deque()
        self.pending = False

    def replace_settings(self, settings: SettingsRepository, options: BrokerOptions | None = None) -> None:
        """The operator's settings are these from now on (address-settings page 3.8).

        What is published, declared or created finds them at once; queues that exist follow a slice now and one at the
        end of each turn, where there are many. O(queues).
        """
        context = self._context
        context.settings = settings
        if options is not None:
            before, context.options = context.options, options
            context.congestion.ready_max = options.busy_queue_ready_max
            context.flow.follow_options()
            if options.address_queue_scan_period_ms != before.address_queue_scan_period_ms:
                context.reaper.period_changed()
            if options.consumer_timeout_ms != before.consumer_timeout_ms:
                context.acknowledgements.default_changed()
        if settings.deletes_declared_queues:
            context.reaper.watch()
        for vhost in context.virtual_hosts.values():
            vhost.router.routes_changed()  # they know what the address of a message does with it
            if context.listeners:
                context.emit(SettingsEvent(vhost.name, ""))
        queues: list[Queue] = []
        for vhost in context.virtual_hosts.values():
            queues.extend(vhost.queues.values())  # not one by one: they may be very many
        self._review(queues, None)
        self.work()

    def replace_policies(self, policies: Policies) -> None:
        """The policies are these from now on; what they say of queues and exchanges that exist holds at once.

        "At once" is a slice now and one at the end of each turn, where there are many queues: O(queues, times changed
        policies).
        """
        context = self._context
        before, context.policies = context.policies, policies
        changed = policies.changed_since(before)
        for policy in changed:
            if context.listeners:
                now = policies.find(policy.vhost, policy.name, is_operator=policy.is_operator)
                kind = EventKind.UNDECLARED if now is None else EventKind.DECLARED
                context.emit(PolicyEvent(kind, policy.vhost, policy.name, now or policy))
        for name in {policy.vhost for policy in changed} & context.virtual_hosts.keys():
            vhost = context.virtual_hosts[name]
            steps = vhost.policies_changed()
            for _ in steps:
                context.background.run(steps)
                break
            theirs = [policy for policy in changed if policy.vhost == name]
            self._review(list(vhost.queues.values()), theirs)
        if self.pending:
            self.work()

    def replace_diverts(self, diverts: Iterable[Divert]) -> None:
        """The operator's diverts are these from now on; virtual hosts that they name and are not there are not made."""
        by_vhost: dict[str, list[Divert]] = {}
        for divert in diverts:
            by_vhost.setdefault(divert.vhost, []).append(divert)
        for name, vhost in self._context.virtual_hosts.items():
            vhost.router.diverts = Diverts(by_vhost.get(name, ()))
            vhost.router.routes_changed()

    def replace_logged_topics(self, topics: Sequence[LoggedTopic]) -> None:
        """These are listed as logged from now on. Where none is, a topic is logged as a leased queue captures it."""
        context = self._context
        if list(topics) == list(context.logged_topics):
            return
        context.logged_topics = topics
        for vhost in context.virtual_hosts.values():
            vhost.router.log_topics(topics)
        if context.storage.durability is not None:
            context.storage.durability.retain(max((topic.kept_ms for topic in topics), default=0))

    # -- queues, in slices --------------------------------------------------------------------------------------------

    def _review(self, queues: list[Queue], changed: list[Policy] | None) -> None:
        """These policies changed, and may concern some of these queues; None: the settings of all were reloaded."""
        self._waiting.append((iter(queues), changed))
        self.pending = self._context.background.pending = True

    def work(self) -> None:
        """A slice."""
        queues, changed = self._waiting[0]
        if changed is None:
            for queue in islice(queues, SETTINGS_SLICE):
                if not queue.deleted:
                    settings_changed(queue)
        else:
            self._follow_policies(queues, changed)
        if not length_hint(queues):
            self._waiting.popleft()
            self.pending = bool(self._waiting)

    def _follow_policies(self, queues: Iterator[Queue], changed: list[Policy]) -> None:
        policies = self._context.policies
        concerned, until = 0, policies.spent + REVIEW_SLICE
        for queue in islice(queues, max(1, REVIEW_SLICE // len(changed))):
            if not queue.deleted and policies.may_concern(queue.name, queue.type, queue.policy, changed):
                policy_changed(queue)
                concerned += 1
                if concerned >= CONCERNED_SLICE:
                    break
            if policies.spent >= until:
                break
