"""The last lines of the broker's log, as a list and as a stream of server-sent events. Source: management page 15, 16.

A stream reads the lines that the broker keeps, from a position on. A client that reads too slowly is told how many
lines it has missed.
"""

from typing import Any

from ..api import EVENT_STREAM, Api, wants_stream
from ..dispatcher import Action, Level, Route
from ..http_messages import Answer, Request
from .events import LOGIN_ENDED, is_still_monitor, last_event_of, server_sent_event


def _log(api: Api, request: Request) -> Any:
    level = request.query.get("level") or "debug"
    lines = api.ask("log", level=level)
    if not wants_stream(request):
        return lines
    stream = LogStream(api, request, level, last_event_of(request) or 0)
    return Answer(200, headers=(("content-type", EVENT_STREAM),), stream=stream)


class LogStream:
    """A `Stream` of lines for one client. `since`: the number of the line before the first one; 0: all kept lines."""

    def __init__(self, api: Api, request: Request, level: str, since: int) -> None:
        self._api = api
        self._request = request
        self._is_cut = False
        self._level = level
        self._since = since
        self.has_piece = False

    def piece(self) -> bytes | None:
        if self._is_cut:
            return None
        if not is_still_monitor(self._api, self._request):
            self._is_cut, self.has_piece = True, True
            return server_sent_event("cut", {"reason": LOGIN_ENDED})
        kept = self._api.ask("log")
        newest = kept[-1]["number"] if kept else 0
        if self._since > newest:  # the number comes from before a restart
            self._since = 0
        if self._since == newest:
            return b""
        missed = kept[0]["number"] - self._since - 1 if kept and self._since else 0
        parts = [server_sent_event("gap", {"dropped": missed})] if missed > 0 else []
        lines = self._api.ask("log", level=self._level, since=self._since)
        self._since = newest
        return b"".join([*parts, *(server_sent_event("line", line, line["number"]) for line in lines)])


ROUTES = [Route("leveret/log", {"GET": Action(Level.MONITORING, _log, may_stream=True)})]
