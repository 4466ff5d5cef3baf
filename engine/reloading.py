"""Reloads settings, options, policies, diverts and logged topics in a running broker, also for existing objects.

Declared objects: src/leveret/configured/configured.py.
"""

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

#: Queues checked for changed policies, and queues that apply them, in one slice (about 5 ms).
POLICIES_SLICE, CONCERNED_SLICE = 500, 50
#: Queues, or addresses with an id cache, that apply reloaded settings in one slice (about 5 ms).
SETTINGS_SLICE = 150


class Reloading:
    """The reloading of one broker. `pending`: queues have to apply changed policies or settings."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._waiting: deque[tuple[Iterator[Queue], list[Policy] | None]] = deque()
        self.pending = False

    def replace_settings(self, settings: SettingsRepository, options: BrokerOptions | None = None) -> None:
        """Replace the operator's settings (address-settings page 3.8).

        They apply at once to publishes and new objects. Existing queues apply them in slices: now, and at the ends of
        turns. O(queues).
        """
        context = self._context
        context.settings = settings
        if options is not None:
            before, context.options = context.options, options
            context.flow.follow_options()
            context.sites.set_transfer_after(options.transfer_after_ms)
            if options.address_queue_scan_period_ms != before.address_queue_scan_period_ms:
                context.reaper.period_changed()
            if options.consumer_timeout_ms != before.consumer_timeout_ms:
                context.acknowledgements.default_changed()
            if options.unacked_per_session_max > before.unacked_per_session_max:
                for client in context.connections:
                    for session in client.sessions:
                        session.subscriptions.mark_queues()
        if settings.deletes_declared_queues:
            context.reaper.watch()
        for vhost in context.virtual_hosts.values():
            vhost.router.routes_changed()  # routes contain the settings of the message's address
            retained = vhost.context.retained
            for address, kept in list(retained.items()):
                count = settings.resolve(address, vhost.name).retroactive_message_count
                if count <= 0:
                    del retained[address]
                elif count < len(kept):
                    retained[address] = deque(kept, maxlen=count)
            if context.listeners:
                context.emit(SettingsEvent(vhost.name, ""))
        steps = self._resize_id_caches()
        for _ in steps:  # the first step now, the others in the background
            context.background.run(steps)
            break
        queues: list[Queue] = []
        for vhost in context.virtual_hosts.values():
            queues.extend(vhost.queues.values())  # faster than a loop: a virtual host may have many
        self._apply_later(queues, None)
        self.work()

    def _resize_id_caches(self) -> Iterator[None]:
        """Give each address an id cache of the size in its settings, or none. A cache may have very many ids."""
        for vhost in list(self._context.virtual_hosts.values()):
            caches = vhost.context.id_caches
            for number, (address, cache) in enumerate(list(caches.items())):
                size = self._context.settings.resolve(address, vhost.name).id_cache_size
                is_changed = size != cache.size and caches.get(address) is cache
                if is_changed and size:
                    cache.resize(size)
                elif is_changed:
                    del caches[address]
                if is_changed or number % SETTINGS_SLICE == 0:
                    yield

    def replace_policies(self, policies: Policies) -> None:
        """Replace the policies. They apply at once to new objects. Existing queues apply them in slices: now, and at
        the ends of turns. O(queues x changed policies).
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
            for _ in steps:  # the first step now, the others in the background
                context.background.run(steps)
                break
            of_vhost = [policy for policy in changed if policy.vhost == name]
            self._apply_later(list(vhost.queues.values()), of_vhost)
        if self.pending:
            self.work()

    def replace_diverts(self, diverts: Iterable[Divert]) -> None:
        """Replace the operator's diverts. Those of virtual hosts that do not exist apply when these are made."""
        context = self._context
        context.diverts = tuple(diverts)
        for vhost in context.virtual_hosts.values():
            vhost.router.replace_diverts(context.diverts)

    def replace_logged_topics(self, topics: Sequence[LoggedTopic]) -> None:
        """Replace the list of logged topics. If it is empty, the topics that queues capture are logged."""
        context = self._context
        if list(topics) == list(context.logged_topics):
            return
        context.logged_topics = topics
        for vhost in context.virtual_hosts.values():
            vhost.router.log_topics(topics)
        if context.storage.durability is not None:
            context.storage.durability.retain(max((topic.kept_ms for topic in topics), default=0))

    # -- queues, in slices --------------------------------------------------------------------------------------------

    def _apply_later(self, queues: list[Queue], changed: list[Policy] | None) -> None:
        """Add queues that must apply changed policies; None: reloaded settings."""
        self._waiting.append((iter(queues), changed))
        self.pending = self._context.background.pending = True

    def work(self) -> None:
        """Do a slice."""
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
        concerned, until = 0, policies.spent + POLICIES_SLICE
        for queue in islice(queues, max(1, POLICIES_SLICE // len(changed))):
            if not queue.deleted and policies.may_concern(queue.name, queue.type, queue.policy, changed):
                policy_changed(queue)
                concerned += 1
                if concerned >= CONCERNED_SLICE:
                    break
            if policies.spent >= until:
                break
