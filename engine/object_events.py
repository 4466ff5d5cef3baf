"""The events of named objects, one class for each type of object, and those of a cluster's nodes."""

from dataclasses import dataclass, field

from ..settings import Policy
from .events import EventKind
from .exchanges.exchange import Binding, Exchange
from .messages.event import ObjectEvent
from .queues.queue import Queue
from .users.access import User


@dataclass(slots=True, eq=False, repr=False)
class QueueEvent(ObjectEvent):
    """A queue was declared or undeclared."""

    queue: Queue

    @property
    def detail(self) -> dict[str, object]:
        return {"what": "queue", "queue": self.queue}


@dataclass(slots=True, eq=False, repr=False)
class ExchangeEvent(ObjectEvent):
    """An exchange was declared or undeclared."""

    exchange: Exchange

    @property
    def detail(self) -> dict[str, object]:
        return {"what": "exchange", "exchange": self.exchange}


@dataclass(slots=True, eq=False, repr=False)
class BindingEvent(ObjectEvent):
    """A queue or an exchange, the subject, was bound or unbound."""

    binding: Binding

    @property
    def detail(self) -> dict[str, object]:
        return {"binding": self.binding}


@dataclass(slots=True, eq=False, repr=False)
class VirtualHostEvent(ObjectEvent):
    """A virtual host was declared, got new limits, or was undeclared. `is_going`: its objects still exist."""

    is_going: bool = False

    @property
    def detail(self) -> dict[str, object]:
        return {"what": "vhost", "is_going": True} if self.is_going else {"what": "vhost"}


@dataclass(slots=True, eq=False, repr=False)
class UserDeclaredEvent(ObjectEvent):
    """A user was added or changed."""

    kind: EventKind = field(default=EventKind.DECLARED, init=False)
    user: User

    @property
    def detail(self) -> dict[str, object]:
        return {"what": "user", "user": self.user}


@dataclass(slots=True, eq=False, repr=False)
class UserUndeclaredEvent(ObjectEvent):
    """A user, the subject, was deleted."""

    kind: EventKind = field(default=EventKind.UNDECLARED, init=False)

    @property
    def detail(self) -> dict[str, object]:
        return {"what": "user"}


@dataclass(slots=True, eq=False, repr=False)
class PolicyEvent(ObjectEvent):
    """A policy was added, changed or deleted. `policy`: the new one, or the deleted one."""

    policy: Policy

    @property
    def detail(self) -> dict[str, object]:
        return {"what": "policy", "policy": self.policy}


@dataclass(slots=True, eq=False, repr=False)
class ParameterEvent(ObjectEvent):
    """A parameter, the subject, was set or deleted. `vhost`, `component`: empty: of none. `value`: a JSON value."""

    component: str
    value: object

    @property
    def is_own(self) -> bool:
        """Whether it is the broker's own, which no operator has set: of a component, but of no virtual host."""
        return bool(self.component) and not self.vhost

    @property
    def detail(self) -> dict[str, object]:
        return {"what": "parameter", "component": self.component, "value": self.value}


@dataclass(slots=True, eq=False, repr=False)
class SettingsEvent(ObjectEvent):
    """The settings of a virtual host were replaced."""

    kind: EventKind = field(default=EventKind.SETTINGS_CHANGED, init=False)


@dataclass(slots=True, eq=False, repr=False)
class ConnectionEvent(ObjectEvent):
    """A client, the subject, connected or disconnected. `user`: its user's name if it connected, else None."""

    user: str | None = None

    @property
    def detail(self) -> dict[str, object] | None:
        return None if self.user is None else {"user": self.user}


@dataclass(slots=True, eq=False, repr=False)
class ClusterEvent(ObjectEvent):
    """A node of a cluster, the subject, leads (led), follows, or holds publishers or all clients back, or the set of
    nodes that may lead has changed. `term`: the number of the leadership. `why`: the reason, for people.
    """

    term: int
    why: str

    @property
    def detail(self) -> dict[str, object]:
        return {"term": self.term, "why": self.why}
