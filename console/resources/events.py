"""The broker's events, as a list and as a stream of server-sent events. Source: management page 16.

A stream reads the events that the broker keeps, from a position on. If the client reads too slowly, its stream ends
with an event `cut`.
"""

from typing import Any

from ..api import EVENT_STREAM, Api, session_headers, wants_stream
from ..bodies import integer
from ..dispatcher import Action, Level, Route
from ..encoding import encoded
from ..http_messages import Answer, Request, bad_request
from ..options import CommandRefused
from ..permissions import is_monitor

#: Maximum events in one piece of a stream.
PIECE_MAX = 500
#: The reason of `cut` when the user has logged out or lost the tag.
LOGIN_ENDED = "the login is no longer valid"
#: Milliseconds between two totals.
TOTALS_MS = 1000
_TEXTS = ("vhost", "queue", "kind")
_NUMBERS = ("since", "count", "message")


def last_event_of(request: Request) -> int | None:
    """The number in the header `last-event-id`, with which browsers continue a stream; None: there is none."""
    last = request.headers.get("last-event-id", "")
    return int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None


def _events(api: Api, request: Request) -> Any:
    given: dict[str, Any] = {name: request.query[name] for name in _TEXTS if request.query.get(name)}
    given |= {name: integer(request.query[name]) for name in _NUMBERS if request.query.get(name)}
    given["as_user"] = request.user.name
    if any(given[name] < 0 for name in _NUMBERS if name in given):
        raise bad_request("since, count, message: expected numbers from 0 on")
    if not wants_stream(request):
        return api.ask("events", **given)
    if (last := last_event_of(request)) is not None:
        given["since"] = last
    given.pop("count", None)
    stream = EventStream(api, request, given)
    return Answer(200, headers=(("content-type", EVENT_STREAM),), stream=stream)


class EventStream:
    """A `Stream` of events for one client."""

    def __init__(self, api: Api, request: Request, given: dict[str, Any]) -> None:
        """`given`: arguments of the command `events`. Raises: CommandRefused."""
        self._api = api
        self._request = request
        self._given = given
        self._pieces = 0
        self._totals_ms = 0
        self._is_cut = False
        self.has_piece = False
        if "since" not in given:
            self._given["since"] = api.ask("events", **given, count=0)["next"]

    def piece(self) -> bytes | None:
        """The new events, and the totals once a second."""
        if self._is_cut:
            return None
        if not is_still_monitor(self._api, self._request):
            return self._cut(LOGIN_ENDED)
        parts: list[bytes] = []
        now_ms = self._api.broker.context.clock.wall_ms()
        if not 0 <= now_ms - self._totals_ms < TOTALS_MS:
            parts.append(server_sent_event("totals", self._totals()))
            self._totals_ms = now_ms
        self._pieces += 1
        try:
            found = self._api.ask("events", **self._given, count=PIECE_MAX)
        except CommandRefused as refused:
            return self._cut(refused.reason)
        parts += [server_sent_event("event", row, row["number"]) for row in found["items"]]
        self._given["since"] = found["next"]
        self.has_piece = len(found["items"]) == PIECE_MAX
        if not found["dropped"]:
            return b"".join(parts)
        if self._pieces == 1:  # the client asked for events that are no longer kept
            return b"".join([server_sent_event("gap", {"dropped": found["dropped"]}), *parts])
        return self._cut(f"read too slowly: {found['dropped']} events were not kept")

    def _cut(self, why: str) -> bytes:
        self._is_cut, self.has_piece = True, True
        return server_sent_event("cut", {"reason": why})

    def _totals(self) -> dict[str, Any]:
        broker = self._api.broker
        return {
            **self._api.sampler.totals_at_last_sample(),
            "alarm": broker.flow.alarm_reason,
            "blocked": len(broker.flow.blocked()),
            "connections": len(broker.connections),
        }


def is_still_monitor(api: Api, request: Request) -> bool:
    """Whether the user of a stream still exists, is a monitor, has the same password, and has not logged out."""
    if "authorization" in request.headers:
        user = api.broker.users.find(request.user.name)
        if user is not None and user.password != request.user.password:
            return False
    else:
        user = api.sessions.find(*session_headers(request), is_attended=False)
    return user is not None and is_monitor(user)


def server_sent_event(name: str, value: Any, number: int | None = None) -> bytes:
    """An event of a stream. JSON has no line ends, so one line of data is enough."""
    id_ = b"" if number is None else b"id: %d\n" % number
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), id_, encoded(value))


ROUTES = [Route("leveret/events", {"GET": Action(Level.MONITORING, _events, may_stream=True)})]
