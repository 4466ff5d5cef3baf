"""What a broker and a virtual host lend to the queues in it: see `queues/surroundings.py`."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ..settings import AddressSettings, EffectivePolicy, Policies, ResolvedSettings, SettingsRepository
from .clock import Clock
from .dead_letters import DeadLetters
from .deadlines import Deadlines
from .effort import Effort
from .exchanges.routed import Routed
from .flow.control import FlowControl
from .messages.event import Listener
from .options import BrokerOptions
from .peers.slow_consumers import SlowConsumers
from .pressure import Pressure
from .publishing.host import Host
from .publishing.router import Router
from .publishing.topology import Topology
from .queues.queue import Queue
from .queues.surroundings import Surroundings
from .stores.store import Ready
from .stores.surroundings import Storage
from .turns import Turns


class Lender(Protocol):
    """The broker. Settings, policies and options may be replaced while it runs."""

    clock: Clock
    deadlines: Deadlines
    chance: Callable[[], float]
    storage: Storage
    effort: Effort
    pressure: Pressure
    flow: FlowControl
    listeners: list[Listener]
    options: BrokerOptions
    settings: SettingsRepository
    policies: Policies
    dead_letters: DeadLetters
    hungry: dict[Queue, None]
    slow_consumers: SlowConsumers

    @property
    def turns(self) -> Turns:
        """Whose turn it is."""

    @property
    def trim_later(self) -> Callable[[Queue], None]:
        """Another slice of a queue goes at the end of each turn."""

    @property
    def free(self) -> Callable[[Ready], None]:
        """Give memory back."""


def surroundings_of(
    broker: Lender, vhost: Host, topology: Topology, router: Router, remove: Callable[[Queue], int]
) -> Surroundings[Queue]:
    """Of all queues of a virtual host."""
    letters, name = broker.dead_letters, topology.name

    def resolve(queue: str, address: str, own: AddressSettings, policy: AddressSettings) -> ResolvedSettings:
        return broker.settings.resolve_queue(address, name, own, policy, queue)

    def topic_layer(topic: str) -> AddressSettings:
        return broker.settings.topic_layer(topic, name)

    def policy_of(queue: str, queue_type: str) -> EffectivePolicy:
        return broker.policies.of_queue(queue, queue_type, name)

    def feed_later(queue: Queue) -> None:
        broker.hungry[queue] = None

    def queues_behind(dead_letter_address: str, address: str) -> list[Queue]:
        exchange_name, key = topology.resolve_address(dead_letter_address, address)
        exchange = topology.exchanges.get(exchange_name)
        return [] if exchange is None else router.reach(exchange, Routed((key,)))

    return Surroundings(
        vhost=name,
        clock=broker.clock,
        deadlines=broker.deadlines,
        chance=lambda: broker.chance(),
        storage=broker.storage,
        effort=broker.effort,
        pressure=broker.pressure,
        flow=broker.flow,
        listeners=broker.listeners,
        options=lambda: broker.options,
        resolve=resolve,
        topic_layer=topic_layer,
        policy_of=policy_of,
        mark=broker.turns.mark,
        is_marked=broker.turns.is_marked,
        waiting_count=broker.turns.waiting_count,
        feed_later=feed_later,
        trim_later=broker.trim_later,
        expire_later=letters.expire_later,
        free=broker.free,
        bury=partial(letters.bury, vhost),
        dead_count=lambda: len(letters.waiting),
        is_crowded=letters.is_crowded,
        queues_behind=queues_behind,
        watch_consumers=broker.slow_consumers.watch,
        forget_routes_to=router.forget_routes_to,
        remove=remove,
        queues_at=router.queues_at,
        is_delaying=topology.is_delaying,
    )
