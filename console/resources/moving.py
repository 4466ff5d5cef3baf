"""Changes of many messages, as jobs: move, replay, discard; lists of dead letters; pause and resume.

Each is a command, as `leveret ctl` has it. Source: management page 16.
"""

from collections.abc import Mapping
from typing import Any

from ..api import Api
from ..bodies import boolean, integer, json_object, require
from ..dispatcher import Action, Level, Route
from ..http_messages import Answer, Request, bad_request, not_authorised
from ..permissions import is_administrator, is_monitor, missing_tag
from ..steps import Steps

#: Keys of a body that several commands share. "count" is called "limit" in management page 16.
_SHARED = ("filter", "header", "routing_key", "text", "cause", "origin", "positions", "limit", "count", "rate", "dry")
_NO_CONTENT = 204


def _checked(given: Mapping[str, Any], *own: str) -> dict[str, Any]:
    """The arguments of a command. Raises: Refusal (ignoring an unknown word would select too many messages)."""
    unknown = next((name for name in given if name not in (*_SHARED, *own)), None)
    if unknown is not None:
        raise bad_request(f"{unknown[:80]}: unknown, expected some of {', '.join((*own, *_SHARED))}")
    if "count" in given and "limit" in given:
        raise bad_request("count and limit are the same")
    names = {"count": "limit", "dry": "dry_run"}
    return {names.get(name, name): value for name, value in given.items()}


def _before_moving(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _checked(given, "to")
    require(found, "to")
    return {**found, **_place(found.pop("to"))}


def _before_replaying(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _checked(given, "to", "strip")
    place = _place(found.pop("to")) if isinstance(found.get("to"), dict) and found["to"] else {}
    return {**found, **place}


def _place(to: object) -> dict[str, Any]:
    """The destination of messages, for the command. Raises: Refusal."""
    if not isinstance(to, dict) or not to.keys() <= {"queue", "exchange", "routing_key"}:
        raise bad_request('to: expected {"queue"} or {"exchange", "routing_key"}')
    return {"to_queue": to.get("queue"), "to_exchange": to.get("exchange"), "to_key": to.get("routing_key")}


def _before_discarding(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    return _checked(given, "bookmark", "option")


def _started(api: Api, request: Request, found: dict[str, Any]) -> dict[str, Any]:
    """The job's id, or the result of a dry run."""
    return {"job": found["id"]} if "id" in found else found


def _dead_letters(api: Api, request: Request) -> Steps:
    """Dead letters of the virtual hosts that the user may see, and that the page's menu chose."""
    items: list[dict[str, Any]] = []
    count = 0
    for vhost in api.vhosts_to_list(request):
        found = yield from api.run("dead-letters", vhost=vhost.name, all=request.flag("all"))
        items += found["items"]
        count += found["queues"]
    items.sort(key=lambda row: (-row["messages"], row["vhost"], row["queue"]))
    return {"queues": count, "items": items}


def _jobs(api: Api, request: Request) -> list[dict[str, Any]]:
    """The jobs, newest first; other users' jobs only for users who may see all."""
    return [row for row in reversed(api.ask("jobs list")) if _may_see(request, row)]


def _job(api: Api, request: Request) -> dict[str, Any]:
    row: dict[str, Any] = api.ask("jobs show", id=integer(request.names["ID"]))
    if not _may_see(request, row):
        raise not_authorised("Not monitor user", missing_tag(request.user, "monitoring"))
    return row


def _may_see(request: Request, row: dict[str, Any]) -> bool:
    return is_monitor(request.user) or row["by"] == request.user.name


def _cancel(api: Api, request: Request) -> Steps:
    row = _job(api, request)
    if not is_administrator(request.user) and row["by"] != request.user.name:
        raise not_authorised("Not administrator user", missing_tag(request.user, "administrator"))
    return (yield from api.run("jobs cancel", id=row["id"]))


def _set_state(api: Api, request: Request) -> Steps:
    queue = api.queue(request)
    (paused,) = require(json_object(request), "paused")
    command = "pause" if boolean(paused) else "resume"
    yield from api.run(command, queue=queue.name, vhost=queue.vhost_name)
    return Answer(_NO_CONTENT)


BEFORE = {"move": _before_moving, "replay": _before_replaying, "discard": _before_discarding}
VIEWS = {"move": _started, "replay": _started, "discard": _started}
ROUTES = [
    Route("leveret/queues/V/Q/state", {"PUT": Action(Level.ADMINISTRATOR, _set_state)}),
    Route("leveret/dead-letters", {"GET": Action(Level.MONITORING, _dead_letters)}),
    Route("leveret/jobs", {"GET": Action(Level.ANY, _jobs)}),
    Route("leveret/jobs/ID", {"GET": Action(Level.ANY, _job), "DELETE": Action(Level.ANY, _cancel)}),
]
