"""The events of named objects, one class for each type of object, and those of a cluster's nodes."""

from dataclasses import field

from ..settings import Policy
from ..settings.slotted import slotted
from .events import EventKind
from .exchanges.exchange import Binding, Exchange
from .messages.event import ObjectEvent
from .queues.queue import Queue
from .users.access import User


@slotted
class QueueEvent(ObjectEvent):
    """A queue was declared or undeclared."""

    what = "queue"
    queue: Queue


@slotted
class ExchangeEvent(ObjectEvent):
    """An exchange was declared or undeclared."""

    what = "exchange"
    exchange: Exchange


@slotted
class BindingEvent(ObjectEvent):
    """A queue or an exchange, the subject, was bound or unbound."""

    binding: Binding


@slotted
class VirtualHostEvent(ObjectEvent):
    """A virtual host was declared, got new limits, or was undeclared. `has_objects`: its objects still exist."""

    what = "vhost"
    has_objects: bool = False


@slotted
class UserDeclaredEvent(ObjectEvent):
    """A user was added or changed."""

    what = "user"
    kind: EventKind = field(default=EventKind.DECLARED, init=False)
    user: User


@slotted
class UserUndeclaredEvent(ObjectEvent):
    """A user, the subject, was deleted."""

    what = "user"
    kind: EventKind = field(default=EventKind.UNDECLARED, init=False)


@slotted
class PolicyEvent(ObjectEvent):
    """A policy was added, changed or deleted. `policy`: the new one, or the deleted one."""

    what = "policy"
    policy: Policy


@slotted
class ParameterEvent(ObjectEvent):
    """A parameter, the subject, was set or deleted. `vhost`, `component`: empty: none. `value`: a JSON value."""

    what = "parameter"
    component: str
    value: object

    @property
    def is_own(self) -> bool:
        """Whether the broker set it and no operator: it has a component, and no virtual host."""
        return bool(self.component) and not self.vhost


@slotted
class SettingsEvent(ObjectEvent):
    """The settings of a virtual host were replaced."""

    kind: EventKind = field(default=EventKind.SETTINGS_CHANGED, init=False)


@slotted
class ConnectionEvent(ObjectEvent):
    """A client, the subject, connected or disconnected. `user`: the name of its user; None: it disconnected."""

    user: str | None = None


@slotted
class ClusterEvent(ObjectEvent):
    """A node of a cluster, the subject, leads, follows, blocks publishers or all clients; or the set of nodes that may
    lead has changed. `term`: the number of the leadership. `why`: the reason, as text.
    """

    term: int
    why: str
