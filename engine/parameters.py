"""Parameters: values that operators, and the broker itself, store under a name. No rule of the engine depends on them.

Source: management page 8.2; behaviour page 5.3.
"""

from collections.abc import Iterator

from .context import BrokerContext
from .events import EventKind
from .object_events import ParameterEvent

#: (virtual host, component, name); empty: no virtual host, no component.
Identity = tuple[str, str, str]


class Parameters:
    """The parameters of one broker: any JSON values, in the order in which they were set."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._values: dict[Identity, object] = {}

    def __contains__(self, identity: object) -> bool:
        return identity in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[tuple[Identity, object]]:
        return iter(list(self._values.items()))

    def get(self, identity: Identity) -> object:
        """The value of a parameter; None: there is none."""
        return self._values.get(identity)

    def set(self, identity: Identity, value: object) -> None:
        """Set or replace a parameter. Callers must not change `value` afterwards."""
        self._values[identity] = value
        self._emit(EventKind.DECLARED, identity, value)

    def remove(self, identity: Identity) -> bool:
        """Remove a parameter. Returns whether there was one."""
        if identity not in self._values:
            return False
        del self._values[identity]
        self._emit(EventKind.UNDECLARED, identity, None)
        return True

    def forget(self, vhost: str) -> None:
        for identity in [identity for identity in self._values if identity[0] == vhost]:
            self.remove(identity)

    def _emit(self, kind: EventKind, identity: Identity, value: object) -> None:
        if self._context.listeners:
            vhost, component, name = identity
            self._context.emit(ParameterEvent(kind, vhost, name, component, value))
