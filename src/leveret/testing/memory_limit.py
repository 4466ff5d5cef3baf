"""A fault that limits the memory of a broker or an address: publishes are blocked or refused as in production.

It changes the configuration in force. At its end it undoes the change, which releases blocked publishes.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..engine import BlockedEvent, Event, EventKind
from ..settings import Configuration, SystemUsage, entry, layer_of
from .fault import Fault, FaultScope

if TYPE_CHECKING:
    from .runtime import WatchedRuntime


class MemoryLimit(Fault):
    """A limit of memory. `size`: octets. `address`: the match of an address-setting; None: the whole broker.

    `fails`, `fails_after_ms`: messages without room are refused, at once or after this wait; None: as configured.
    """

    uses_hooks = False

    def __init__(
        self, scope: FaultScope, size: int, address: str | None, fails: bool | None, fails_after_ms: int | None
    ) -> None:
        super().__init__(scope)
        self._size = size
        self._address = address
        self._fails: dict[str, Any] = {
            name: value
            for name, value in (("send_fail_if_no_space", fails), ("send_fail_if_no_space_after_ms", fails_after_ms))
            if value is not None
        }

    def begin(self, runtime: "WatchedRuntime") -> None:
        runtime.change_configuration(self, self._limited)
        runtime.broker.context.listeners.append(self._listen)

    def end(self, runtime: "WatchedRuntime") -> None:
        if self._listen in runtime.broker.context.listeners:  # not if the broker was restarted meanwhile
            runtime.broker.context.listeners.remove(self._listen)
        runtime.change_configuration(self, None)

    def _listen(self, event: Event) -> None:
        if isinstance(event, BlockedEvent) and event.kind is EventKind.BLOCKED:
            self.hit(f"held a publish of {event.subject} for {event.destination}: {event.limit} limit")

    def _limited(self, configuration: Configuration) -> Configuration:
        """The configuration with this limit, for which all messages in memory count, whatever the cursor.

        Raises: MatchFault.
        """
        settings = layer_of(cursor="vm", producer_flow_control=True, **self._fails)
        usage = configuration.system_usage
        if self._address is None:
            usage = replace(usage or SystemUsage(store=0, temp=0), memory=self._size, memory_percent=0, **self._fails)
            match, vhost = configuration.repository.wildcards.any_words, None
        else:
            settings = layer_of(**settings, memory_limit=self._size)
            match, vhost = self._address, self.scope.vhost
        repository = configuration.repository
        configured = (one.settings for one in repository.entries if (one.match.text, one.vhost) == (match, vhost))
        limited = entry(match, vhost, repository.wildcards, **{**next(configured, {}), **settings})
        repository = repository.with_entries([limited], usage=usage)
        return replace(configuration, system_usage=usage, repository=repository)
