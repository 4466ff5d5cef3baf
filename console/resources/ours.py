"""Resources that only Leveret has: explanations of settings, blocked clients, schedules, searches.

Everything is a command, as `leveret ctl` has it. Source: management page 16, 20.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from ...engine import Queue, dead_letter_queues
from ..api import Api
from ..bodies import boolean, integer, json_object, require, text
from ..dispatcher import Action, Level, Route
from ..http_messages import Request, access_refused, bad_request
from ..permissions import is_administrator, is_monitor, may_see, missing_access
from ..steps import Steps

#: Maximum names of each kind in the result of a search.
FOUND_MAX = 50
#: Maximum queues, and messages of each, in a list over all virtual hosts.
QUEUES_MAX, MESSAGES_MAX = 200, 100
PAGE_MAX = 500
#: Messages a minute from which a queue counts as growing; such queues in one answer; queues looked at in one step.
GROWTH_MIN, GROWING_MAX, QUEUES_A_STEP = 60, 20, 500
#: Arguments of commands that select messages.
_FILTERS = ("filter", "routing_key", "text", "cause", "origin")
_ACTIONS = ("fire", "cancel", "reschedule")


def _blocked(api: Api, request: Request) -> Steps:
    status = yield from api.run("status")
    return {key: status[key] for key in ("alarm", "usage", "blocked", "held", "slow_consumers")}


def _growing(api: Api, request: Request) -> Steps:
    """The queues that grew over the last minute, most first; streams, rings and dead-letter queues are meant to."""
    letters: set[Queue] = set()
    rows: list[dict[str, Any]] = []
    unknown = 0
    for vhost in api.vhosts_to_list(request):
        for some in dead_letter_queues(vhost.context):
            letters.update(some)
            yield
        for count, queue in enumerate(list(vhost.queues.values()), 1):
            if count % QUEUES_A_STEP == 0:
                yield
            if queue.deleted or queue.keeps or queue.rules.ring_size is not None or queue in letters:
                continue
            growth = api.sampler.growth(queue)
            unknown += growth is None
            if growth is not None and growth >= GROWTH_MIN:
                place = {"vhost": vhost.name, "name": queue.name}
                rows.append({**place, "messages": queue.ready_count + queue.unacked, "growth": growth})
    rows.sort(key=lambda row: -row["growth"])
    return {"total": len(rows), "items": rows[:GROWING_MAX], "unknown": unknown}


def _draft(api: Api, request: Request) -> Steps:
    """The effect of settings that are not in force: TOML (or XML) in `text`, or `files`; and `policies`."""
    given = json_object(request)
    files = [["draft", text(given["text"], "text")]] if "text" in given else given.get("files")
    return (
        yield from api.run(
            "draft",
            name=text(given.get("name", ""), "name") or None,
            files=files,
            included=given.get("included"),
            adds=boolean(given.get("adds", True)),
            policies=given.get("policies"),
            vhost=api.vhost(request).name if "V" in request.names else None,
        )
    )


def visible_queues(api: Api, request: Request) -> list[Queue]:
    """The queues that the user may see, with the text of `?queue=` in their names, ignoring case."""
    part = request.query.get("queue", "").lower()
    queues = (queue for vhost in api.vhosts_to_list(request) for queue in vhost.queues.values())
    return [queue for queue in queues if part in queue.name.lower()]


def _scheduled(api: Api, request: Request) -> Steps:
    """Scheduled messages of the queues with the most, soonest first in each. `?routing_key=`: only these of the listed
    ones.
    """
    key = request.query.get("routing_key") or None
    found = [queue for queue in visible_queues(api, request) if len(queue.scheduled)]
    found.sort(key=lambda queue: (-len(queue.scheduled), queue.vhost_name, queue.name))
    rows = []
    for queue in found[:QUEUES_MAX]:
        messages = yield from api.run("scheduled list", queue=queue.name, vhost=queue.vhost_name, count=MESSAGES_MAX)
        place = {"vhost": queue.vhost_name, "queue": queue.name}
        rows += [{**place, **one} for one in messages if key in (None, one["routing_key"])]
        yield
    rows.sort(key=lambda row: row["due_ms"])
    return {"total": sum(len(queue.scheduled) for queue in found), "queues": len(found), "items": rows}


def _act_on_scheduled(api: Api, request: Request) -> Steps:
    queue = api.queue(request)
    given = json_object(request)
    (action,) = require(given, "action")
    if action not in _ACTIONS:
        raise bad_request(f"action: expected one of {', '.join(_ACTIONS)}")
    if not request.user.may("write", "queue", queue.name, queue.vhost_name):
        raise access_refused(missing_access(request.user, "write", "queue", queue.name, queue.vhost_name))
    delay = integer(require(given, "delay")[0]) if action == "reschedule" else None
    if delay is not None and delay < 0:
        raise bad_request("delay: expected milliseconds")
    ids = [integer(request.names["ID"])] if "ID" in request.names else require(given, "ids")[0]
    if not isinstance(ids, list) or not ids:
        raise bad_request("ids: expected a list of numbers")
    place = {"queue": queue.name, "vhost": queue.vhost_name}
    return (yield from api.run(f"scheduled {action}", **place, id=ids, delay=delay))


def _before_browsing(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    numbers = _numbers(given, "count", "after", "truncate")
    texts = {name: text(given[name], name) for name in ("state", "encoding") if name in given}
    return {**texts, **numbers, **_filters(given)}


def _numbers(given: Mapping[str, Any], *names: str) -> dict[str, int]:
    """Raises: Refusal."""
    numbers = {name: integer(given[name]) for name in names if name in given}
    if any(number < 0 for number in numbers.values()):
        raise bad_request(f"{', '.join(names)}: expected numbers from 0 on")
    return numbers


def _filters(given: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """The selection of messages. Raises: Refusal."""
    found = {name: text(given[name], name) for name in (*_FILTERS, *more) if given.get(name) not in (None, "")}
    header = given.get("header")
    if header is not None and not isinstance(header, dict):
        raise bad_request("header: expected an object")
    return {**found, "header": header} if header else found


def _find(api: Api, request: Request) -> Steps:
    """The location of a message. Only monitors see events."""
    given = json_object(request)
    filters = _filters(given, "message_id", "correlation_id", "vhost", "queue")
    numbers = _numbers(given, "id", "count")
    journal = boolean(given.get("journal", False))
    return (yield from api.run("search", as_user=request.user.name, journal=journal, **filters, **numbers))


def readable(api: Api, request: Request) -> Queue:
    """The queue in the path, if the user may read from it. Raises: Refusal."""
    queue = api.queue(request)
    if not request.user.may("read", "queue", queue.name, queue.vhost_name):
        raise access_refused(missing_access(request.user, "read", "queue", queue.name, queue.vhost_name))
    return queue


def _scheduled_of(api: Api, request: Request) -> Steps:
    queue, page = readable(api, request), page_of(request)
    rows = yield from api.run("scheduled list", queue=queue.name, vhost=queue.vhost_name, **page)
    return paged(rows, page, len(queue.scheduled))


def page_of(request: Request) -> dict[str, int]:
    """Raises: Refusal."""
    after, count = integer(request.query.get("after", 0)), integer(request.query.get("count", MESSAGES_MAX))
    if after < 0 or not 1 <= count <= PAGE_MAX:
        raise bad_request(f"after, count: expected numbers from 0 on, and from 1 to {PAGE_MAX}")
    return {"after": after, "count": count}


def paged(rows: list[Any], page: dict[str, int], total: int) -> dict[str, Any]:
    behind = page["after"] + len(rows)
    return {"items": rows, "next": behind if len(rows) == page["count"] and behind < total else None, "total": total}


def _before_routing(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body is as for publish, with `exchange`; no key is required. Raises: Refusal."""
    texts = {name: text(given[name], name) for name in ("exchange", "routing_key", "payload") if name in given}
    properties = given.get("properties", {})
    if not isinstance(properties, dict):
        raise bad_request("properties: expected an object")
    if "headers" in given:
        properties = {**properties, "headers": given["headers"]}
    encoding = text(given.get("payload_encoding", "string"), "payload_encoding")
    return {"exchange": "", **texts, "payload_encoding": encoding, "properties": properties}


def _search(api: Api, request: Request) -> dict[str, Any]:
    """Names that contain the text, ignoring case."""
    part = request.query.get("q", "").lower()
    if not part:
        raise bad_request("q: expected text")
    vhosts = api.vhosts_to_list(request)
    clients = [client for client in api.broker.connections if is_monitor(request.user) or client.user is request.user]
    users = [user.name for user in api.broker.users] if is_administrator(request.user) else []
    found = (one for one in clients if part in f"{one.label}\n{one.name}".lower())
    connections = {one.name: one.given_name for one in islice(found, FOUND_MAX)}
    return {
        "queues": _of_vhosts(part, ((vhost.name, name) for vhost in vhosts for name in vhost.queues)),
        "exchanges": _of_vhosts(part, ((vhost.name, name) for vhost in vhosts for name in vhost.exchanges)),
        "connections": list(connections),
        "connection_names": connections,
        "users": list(islice((name for name in users if part in name.lower()), FOUND_MAX)),
        "vhosts": [name for name in api.broker.virtual_hosts if part in name.lower() and may_see(request.user, name)][
            :FOUND_MAX
        ],
    }


def _of_vhosts(part: str, names: Any) -> list[dict[str, str]]:
    found = ({"vhost": vhost, "name": name} for vhost, name in names if part in name.lower())
    return list(islice(found, FOUND_MAX))


BEFORE = {"browse": _before_browsing, "route": _before_routing}
ROUTES = [
    Route("leveret/blocked", {"GET": Action(Level.MONITORING, _blocked)}),
    Route("leveret/growing", {"GET": Action(Level.MONITORING, _growing)}),
    Route("leveret/scheduled", {"GET": Action(Level.MONITORING, _scheduled)}),
    Route(
        "leveret/scheduled/V/Q",
        {"GET": Action(Level.VHOST, _scheduled_of), "POST": Action(Level.VHOST, _act_on_scheduled)},
    ),
    Route("leveret/scheduled/V/Q/ID", {"POST": Action(Level.VHOST, _act_on_scheduled)}),
    Route("leveret/draft", {"POST": Action(Level.ADMINISTRATOR, _draft)}),
    Route("leveret/draft/V", {"POST": Action(Level.ADMINISTRATOR, _draft)}),
    Route("leveret/search", {"GET": Action(Level.ANY, _search)}),
    Route("leveret/search/messages", {"POST": Action(Level.ANY, _find, reads=True)}),
]
