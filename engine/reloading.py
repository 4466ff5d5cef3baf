"""Other settings, options, policies or diverts for a broker that runs: they hold at once, for what is there, too."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from ..settings import Divert, LoggedTopic, Policies, SettingsRepository
from .chores import Reviewing
from .events import EventKind
from .messages.event import Event, Listener
from .object_events import PolicyEvent, SettingsEvent
from .options import BrokerOptions
from .peers.acknowledgement_timeout import AcknowledgementWatch
from .pressure import Pressure
from .publishing.auto_created import Reaper
from .queues.queue import Queue
from .rules.diverts import Diverts
from .stores.surroundings import Storage
from .virtual_host import VirtualHost


class ReloadedBroker(Protocol):
    """The broker that they are for."""

    acknowledgements: AcknowledgementWatch
    listeners: list[Listener]
    logged_topics: Sequence[LoggedTopic]
    options: BrokerOptions
    policies: Policies
    pressure: Pressure
    reaper: Reaper
    settings: SettingsRepository
    storage: Storage
    virtual_hosts: dict[str, VirtualHost]

    def announce(self, event: Event) -> None:
        """Call each listener with what happened."""

    def configure_flow(self) -> None:
        """The options may have other limits."""

    @property
    def run_errand(self) -> Callable[[Iterator[None]], None]:
        """Takes steps, one at the end of each turn."""


class Reloading:
    """Of one broker. Its methods are the broker's."""

    __slots__ = ("_broker", "_reviewing")

    def __init__(self, broker: ReloadedBroker, reviewing: Reviewing) -> None:
        self._broker = broker
        self._reviewing = reviewing

    def replace_settings(self, settings: SettingsRepository, options: BrokerOptions | None = None) -> None:
        """The operator's settings are these from now on (address-settings page 3.8).

        What is published, declared or created finds them at once; queues that exist follow a slice now and one at the
        end of each turn, where there are many. O(queues).
        """
        broker = self._broker
        broker.settings = settings
        if options is not None:
            before, broker.options = broker.options, options
            broker.pressure.ready_max = options.busy_queue_ready_max
            broker.configure_flow()
            if options.address_queue_scan_period_ms != before.address_queue_scan_period_ms:
                broker.reaper.period_changed()
            if options.consumer_timeout_ms != before.consumer_timeout_ms:
                broker.acknowledgements.default_changed(options.consumer_timeout_ms)
        if settings.deletes_declared_queues:
            broker.reaper.watch()
        for vhost in broker.virtual_hosts.values():
            vhost.routes_changed()  # they know what the address of a message does with it
            if broker.listeners:
                broker.announce(SettingsEvent(vhost.name, ""))
        queues: list[Queue] = []
        for vhost in broker.virtual_hosts.values():
            queues.extend(vhost.queues.values())  # not one by one: they may be very many
        self._reviewing.follow_settings(queues)
        self._reviewing.work()

    def replace_policies(self, policies: Policies) -> None:
        """The policies are these from now on; what they say of queues and exchanges that exist holds at once.

        "At once" is a slice now and one at the end of each turn, where there are many queues: O(queues, times changed
        policies).
        """
        broker = self._broker
        before, broker.policies = broker.policies, policies
        self._reviewing.policies = policies
        changed = policies.changed_since(before)
        for policy in changed:
            if broker.listeners:
                now = policies.find(policy.vhost, policy.name, is_operator=policy.is_operator)
                kind = EventKind.UNDECLARED if now is None else EventKind.DECLARED
                broker.announce(PolicyEvent(kind, policy.vhost, policy.name, now or policy))
        for name in {policy.vhost for policy in changed} & broker.virtual_hosts.keys():
            vhost = broker.virtual_hosts[name]
            steps = vhost.policies_changed()
            for _ in steps:
                broker.run_errand(steps)
                break
            theirs = [policy for policy in changed if policy.vhost == name]
            self._reviewing.review(vhost.queues.values(), theirs)
        if self._reviewing.pending:
            self._reviewing.work()

    def replace_diverts(self, diverts: Iterable[Divert]) -> None:
        """The operator's diverts are these from now on; virtual hosts that they name and are not there are not made."""
        by_vhost: dict[str, list[Divert]] = {}
        for divert in diverts:
            by_vhost.setdefault(divert.vhost, []).append(divert)
        for name, vhost in self._broker.virtual_hosts.items():
            vhost.set_diverts(Diverts(by_vhost.get(name, ())))

    def replace_logged_topics(self, topics: Sequence[LoggedTopic]) -> None:
        """These are listed as logged from now on. Where none is, a topic is logged as a leased queue captures it."""
        broker = self._broker
        if list(topics) == list(broker.logged_topics):
            return
        broker.logged_topics = topics
        for vhost in broker.virtual_hosts.values():
            vhost.set_logged_topics(topics)
        if broker.storage.durability is not None:
            broker.storage.durability.retain(max((topic.kept_ms for topic in topics), default=0))
