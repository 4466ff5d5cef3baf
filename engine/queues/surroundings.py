"""What the broker and a virtual host lend to each of their queues. A queue asks for nothing else of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...settings import AddressSettings, EffectivePolicy, ResolvedSettings
from ..clock import Clock
from ..deadlines import Deadlines
from ..effort import Effort
from ..flow.control import FlowControl
from ..messages.event import Listener
from ..messages.message import Message
from ..options import BrokerOptions
from ..pressure import Pressure
from ..stores.store import Ready
from ..stores.surroundings import Storage

Q = TypeVar("Q")


@dataclass(slots=True, frozen=True)
class Surroundings(Generic[Q]):
    """`vhost`: the virtual host's name. `Q`: a queue. What may change while the broker runs is asked for by a call."""

    vhost: str
    clock: Clock
    deadlines: Deadlines
    chance: Callable[[], float]
    storage: Storage
    effort: Effort
    pressure: Pressure
    flow: FlowControl
    listeners: list[Listener]
    options: Callable[[], BrokerOptions]
    #: (name, address, what the queue says itself, what its policy says) -> what holds.
    resolve: Callable[[str, str, AddressSettings, AddressSettings], ResolvedSettings]
    #: (topic) -> what it sets for the queues of its transient subscribers.
    topic_layer: Callable[[str], AddressSettings]
    #: (name, type) -> the policy that holds for a queue.
    policy_of: Callable[[str, str], EffectivePolicy]

    # -- turns
    mark: Callable[[Q], None]  # dispatch it before the turn ends
    is_marked: Callable[[Q], bool]
    waiting_count: Callable[[], int]  # while marked queues have their turns: how many wait for theirs
    feed_later: Callable[[Q], None]  # bring some of what is paged out into memory between turns
    trim_later: Callable[[Q], None]  # it holds more than it may: a slice at the end of each turn
    expire_later: Callable[[Q], None]  # what has expired goes when the dead letters under way are out
    free: Callable[[Ready], None]  # give the memory of messages back in slices

    # -- dead letters
    bury: Callable[[Q, Sequence[Message], str], None]  # publish them as dead letters before the turn ends
    dead_count: Callable[[], int]  # how many dead letters are still to be published
    is_crowded: Callable[[], bool]  # so many are under way that no more deaths are caused for now
    queues_behind: Callable[[str, str], list[Q]]  # (dead-letter address, the queue's address) -> where they would go

    # -- the virtual host
    watch_consumers: Callable[[Q], None]  # its rules say when they are too slow
    forget_routes_to: Callable[[Q], None]  # it takes messages from now on, or no more
    remove: Callable[[Q], int]  # delete it
    queues_at: Callable[[str], list[Q]]  # all queues of an address
    is_delaying: Callable[[str], bool]  # whether an exchange of that name delays messages
