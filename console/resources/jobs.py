"""Jobs, which change many messages: the bodies of `move`, `replay` and `discard`; listing and cancelling jobs.

Source: management page 16.
"""

from collections.abc import Mapping
from typing import Any

from ..api import Api
from ..bodies import integer, require
from ..commands import Adapter
from ..dispatcher import Action, Level, Route
from ..http_messages import Request, bad_request, existing, not_authorised
from ..permissions import is_administrator, is_monitor, may_see, missing_tag, missing_vhost
from ..steps import Steps

#: Keys in the bodies of all jobs. `count` means the same as `limit`.
_KEYS = ("filter", "header", "routing_key", "text", "cause", "origin", "positions", "limit", "count", "rate", "dry")


def _arguments(given: Mapping[str, Any], *own: str) -> dict[str, Any]:
    """The arguments of a job's command. `own`: keys that only this command has.

    Raises: Refusal, also for unknown keys: ignoring a filter would select too many messages.
    """
    unknown = next((name for name in given if name not in (*_KEYS, *own)), None)
    if unknown is not None:
        raise bad_request(f"{unknown[:80]}: unknown, expected some of {', '.join((*own, *_KEYS))}")
    if "count" in given and "limit" in given:
        raise bad_request("count and limit mean the same: expected one of them")
    names = {"count": "limit", "dry": "dry_run"}
    return {names.get(name, name): value for name, value in given.items()}


def _arguments_of_move(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _arguments(given, "to")
    require(found, "to")
    return {**found, **_destination(found.pop("to"))}


def _arguments_of_replay(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _arguments(given, "to", "strip")
    if not isinstance(found.get("to"), dict) or not found["to"]:  # each message goes back to where it died
        return found
    return {**found, **_destination(found.pop("to"))}


def _destination(to: object) -> dict[str, Any]:
    """The arguments for the destination of messages. Raises: Refusal."""
    if not isinstance(to, dict) or not to.keys() <= {"queue", "exchange", "routing_key"}:
        raise bad_request('to: expected {"queue"} or {"exchange", "routing_key"}')
    return {"to_queue": to.get("queue"), "to_exchange": to.get("exchange"), "to_key": to.get("routing_key")}


def _arguments_of_discard(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    return _arguments(given, "bookmark", "option")


def _job_id(api: Api, request: Request, result: dict[str, Any]) -> dict[str, Any]:
    """The id of the job that has begun, or the result of a dry run."""
    return {"job": result["id"]} if "id" in result else result


def _list(api: Api, request: Request) -> list[dict[str, Any]]:
    """The jobs, newest first. Of other users only monitors see some: in virtual hosts whose objects they may see."""
    return [row for row in reversed(api.ask("jobs list")) if _may_see(request, row)]


def _show(api: Api, request: Request) -> dict[str, Any]:
    id_ = integer(request.names["ID"])
    row: dict[str, Any] = existing(next((one for one in api.ask("jobs list") if one["id"] == id_), None))
    if not _may_see(request, row):
        if is_monitor(request.user):
            raise not_authorised(
                "User not authorised to access virtual host", missing_vhost(request.user, row["vhost"])
            )
        raise not_authorised("Not monitor user", missing_tag(request.user, "monitoring"))
    return row


def _may_see(request: Request, row: dict[str, Any]) -> bool:
    user = request.user
    return row["by"] == user.name or (is_monitor(user) and may_see(user, row["vhost"]))


def _cancel(api: Api, request: Request) -> Steps:
    row = _show(api, request)
    if not is_administrator(request.user) and row["by"] != request.user.name:
        raise not_authorised("Not administrator user", missing_tag(request.user, "administrator"))
    return (yield from api.run("jobs cancel", id=row["id"]))


ADAPTERS = {
    "move": Adapter(_arguments_of_move, _job_id),
    "replay": Adapter(_arguments_of_replay, _job_id),
    "discard": Adapter(_arguments_of_discard, _job_id),
}
ROUTES = [
    Route("leveret/jobs", {"GET": Action(Level.ANY, _list)}),
    Route("leveret/jobs/ID", {"GET": Action(Level.ANY, _show), "DELETE": Action(Level.ANY, _cancel)}),
]
