"""The command `events`: recent events, filtered. Source: management page 16."""

from collections.abc import Callable
from typing import Any

from ..console.permissions import is_administrator
from ..engine import EventKind
from ..settings.faults import nearest
from .command import command
from .command_error import CommandError
from .event_log import Entry
from .kinds import AsUser, Name, OnlyVhost, Word
from .operator import Operator

#: Default and maximum number of events in an answer.
SHOWN, SHOWN_MAX = 100, 1000
#: Objects outside virtual hosts that only administrators see; events of connections, which all monitors see.
_OF_ADMINISTRATORS = frozenset({"user", "parameter"})
_OF_CONNECTIONS = frozenset({EventKind.CONNECTION_OPENED.value, EventKind.CONNECTION_CLOSED.value})
_KINDS = frozenset(kind.value for kind in EventKind)


@command("events", reads=True)
def events(
    operator: Operator,
    *,
    count: int = SHOWN,
    since: int | None = None,
    kind: Word | None = None,
    queue: Name | None = None,
    message: int | None = None,
    vhost: OnlyVhost | None = None,
    as_user: AsUser | None = None,
) -> dict[str, Any]:
    """List recent events; none is kept before the first request, or a minute after the last.

    count: at most this many (default 100, at most 1000)
    since: those with a higher number, oldest first; without it: the latest
    kind: only of these kinds: enqueued,delivered,acked,...
    queue: only of this queue (or exchange, connection, ...)
    message: only of the message with this id

    The answer has `next`, the value of `since` for the next request, and `dropped`, the number of events after `since`
    that are no longer kept.
    """
    matches, sees, log = _filter_of(kind, vhost, queue, message), _sight_of(operator, as_user), operator.events

    def wanted(entry: Entry) -> bool:
        return matches(entry) and sees(entry)

    log.keep_listening()
    count = min(count, SHOWN_MAX)
    if since is not None and since >= log.next:  # the number comes from before a restart
        since = 0
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
        for entry in log.after(since):
            if len(found) == count:
                break
            following = entry.number
            if wanted(entry):
                found.append(shown(entry))
    dropped = 0 if since is None else max(0, log.first - 1 - since)
    return {"items": found, "next": following, "dropped": dropped, "listening_since_ms": log.since_ms}


def shown(entry: Entry) -> dict[str, Any]:
    """An event in JSON. `messages`: the first ids of its `count` messages."""
    row = {"number": entry.number, "at_ms": entry.wall_ms, "kind": entry.kind, "vhost": entry.vhost}
    return {**row, "subject": entry.subject, "messages": list(entry.ids), "count": entry.count, "detail": entry.detail}


def _sight_of(operator: Operator, as_user: str | None) -> Callable[[Entry], bool]:
    """Whether an event is about what a user may see elsewhere. Raises: CommandError."""
    sees = operator.sight_of(as_user)
    if as_user is None or is_administrator(operator.user(as_user)):
        return lambda entry: True

    def may_see(entry: Entry) -> bool:
        if not entry.vhost:
            return entry.detail.get("what") not in _OF_ADMINISTRATORS
        return entry.kind in _OF_CONNECTIONS or sees(entry.vhost)

    return may_see


def _filter_of(kind: str | None, vhost: str | None, queue: str | None, message: int | None) -> Callable[[Entry], bool]:
    """Raises: CommandError."""
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
