"""The control command `events`: what happened lately, as far as a filter takes it. Source: management page 16."""

from collections.abc import Callable
from typing import Any

from ..engine import Broker, EventKind
from ..settings.faults import nearest
from .acting import Handlers
from .command_error import CommandError
from .event_log import Entry, EventLog
from .operator import Operator

#: Events that are answered by default, and at most.
SHOWN, SHOWN_MAX = 100, 1000
_KINDS = frozenset(kind.value for kind in EventKind)


class EventCommands:
    """`handlers` by the words of the command, for the control table. `broker` is called each time: it may be set
    later."""

    def __init__(self, broker: Callable[[], Broker], operator: Operator) -> None:
        self._broker = broker
        self._operator = operator
        self.handlers: Handlers = {"events": self._events}

    @property
    def log(self) -> EventLog:
        """What happened since somebody looked first."""
        return self._operator.events

    def _events(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`next`: what to go on with as `since`. `dropped`: of those that `since` asks for so many are not kept."""
        wanted = _filter_of(arguments)
        log = self.log
        log.look()
        since = arguments.get("since")
        count = min(arguments.get("count", SHOWN), SHOWN_MAX)
        found: list[dict[str, Any]] = []
        if since is None:  # the latest
            for entry in log.newest():
                if len(found) == count:
                    break
                if wanted(entry):
                    found.append(shown(entry))
            found.reverse()
            following = log.next - 1
        else:
            following = max(since, log.first - 1)
            for entry in log.behind(since):
                if len(found) == count:
                    break
                following = entry.number
                if wanted(entry):
                    found.append(shown(entry))
        dropped = 0 if since is None else max(0, log.first - 1 - since)
        return {"items": found, "next": following, "dropped": dropped, "listening_since_ms": log.since_ms}


def shown(entry: Entry) -> dict[str, Any]:
    """An event in JSON. `messages`: the first ids of `count`."""
    row = {"number": entry.number, "at_ms": entry.wall_ms, "kind": entry.kind, "vhost": entry.vhost}
    return {**row, "subject": entry.subject, "messages": list(entry.ids), "count": entry.count, "detail": entry.detail}


def _filter_of(arguments: dict[str, Any]) -> Callable[[Entry], bool]:
    """Raises: CommandError."""
    kind, vhost, queue = (arguments.get(name) for name in ("kind", "vhost", "queue"))
    message = arguments.get("message")
    kinds = frozenset(kind.split(",")) if kind is not None else None
    for one in kinds or ():
        if one not in _KINDS:
            raise CommandError(f"events: unknown kind {one!r}{nearest(one, _KINDS)}")

    def wanted(entry: Entry) -> bool:
        return (
            (kinds is None or entry.kind in kinds)
            and vhost in (None, entry.vhost)
            and (queue in (None, entry.subject) or queue in entry.detail.get("queues", ()))
            and (message is None or message in entry.ids)
        )

    return wanted
