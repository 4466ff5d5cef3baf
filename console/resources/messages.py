"""Messages: get, browse, trace a route, and the aliveness test.

Source: management page 6, 9, 16.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from ..api import Api
from ..bodies import integer, json_object, require, text
from ..commands import Adapter
from ..dispatcher import Action, Level, Route
from ..http_messages import Answer, Refusal, Request, access_refused, bad_request, not_authorised
from ..options import CommandRefused
from ..steps import Steps

ACKMODES = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
NOT_IMPLEMENTED, NOT_FOUND, ACCESS_REFUSED = 540, 404, 403
#: Keys of texts that select messages.
_SELECTORS = ("filter", "routing_key", "text", "cause", "origin")
#: The queue of the aliveness test. It is not deleted after the test.
TEST_QUEUE = "aliveness-test"


def _get(api: Api, request: Request) -> Steps:
    ackmode, count, encoding = require(given := json_object(request), "ackmode", "count", "encoding")
    vhost = api.broker.virtual_hosts.get(request.names["V"])
    if vhost is None:
        raise access_refused("no such virtual host")
    truncate = integer(_whole(given["truncate"])) if "truncate" in given else None
    wanted = integer(_whole(count))
    if wanted < 0:  # it means all messages that are ready now
        queue = vhost.queues.get(request.names["Q"])
        wanted = 0 if queue is None else queue.ready_count
    if ackmode not in ACKMODES:
        raise bad_request(f"Unknown ackmode. Please use one of {', '.join(ACKMODES)}.")
    if encoding not in ("auto", "base64"):
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    try:
        return (
            yield from api.run(
                "get",
                queue=request.names["Q"],
                vhost=request.names["V"],
                count=wanted,
                ackmode=ackmode,
                encoding=encoding,
                truncate=None if truncate is None else max(0, truncate),
                as_user=request.user.name,
            )
        )
    except CommandRefused as refused:
        raise _refusal(refused) from None


def _whole(value: Any) -> Any:
    """A number without its fraction, which RabbitMQ drops."""
    return int(value) if isinstance(value, float) and isfinite(value) else value


def _refusal(refused: CommandRefused) -> Exception:
    """RabbitMQ's answer to a refused `get`."""
    if not refused.code:
        return refused
    if refused.code == ACCESS_REFUSED:
        return not_authorised(refused.reason)
    if refused.code == NOT_FOUND:
        return Refusal(404, "not_found", refused.reason)
    # In RabbitMQ the text of this code does not begin with its name.
    reason = refused.reason.partition(" - ")[2] if refused.code == NOT_IMPLEMENTED else refused.reason
    return bad_request(f"{refused.code} {reason}")


def _is_alive(api: Api, request: Request) -> Steps:
    """The aliveness test: declare a queue, publish a message to it, and get it.

    Returns: the result; an Answer with status 503, if publishers are blocked or the queue is empty.
    """
    vhost = api.vhost(request).name
    if api.broker.flow.replication.is_full:  # the commands would wait for other nodes
        return Answer(503, {"status": "failed", "reason": "publishers are blocked: too few nodes are in sync"})
    as_user = request.user.name
    try:
        yield from api.run("declare-queue", queue=TEST_QUEUE, vhost=vhost, as_user=as_user)
        yield from api.run(
            "publish", exchange="", routing_key=TEST_QUEUE, payload="test_message", vhost=vhost, as_user=as_user
        )
        got: list[Any] = yield from api.run(
            "get", queue=TEST_QUEUE, vhost=vhost, count=1, ackmode="ack_requeue_false", as_user=as_user
        )
    except CommandRefused as refused:
        raise _refusal(refused) from None
    if not got:
        return Answer(503, {"status": "failed", "reason": "aliveness-test queue is empty"})
    return {"status": "ok"}


def _arguments_of_browse(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    texts = {name: text(given[name], name) for name in ("state", "encoding") if name in given}
    return {**texts, **whole_numbers(given, "count", "after", "truncate"), **selection(given)}


def _arguments_of_route(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of `route`. The body is `publish`'s, with `exchange`; each key is optional. Raises: Refusal."""
    texts = {name: text(given[name], name) for name in ("exchange", "routing_key", "payload") if name in given}
    properties = given.get("properties", {})
    if not isinstance(properties, dict):
        raise bad_request("properties: expected an object")
    if "headers" in given:
        properties = {**properties, "headers": given["headers"]}
    encoding = text(given.get("payload_encoding", "string"), "payload_encoding")
    return {"exchange": "", **texts, "payload_encoding": encoding, "properties": properties}


def selection(given: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """The arguments in a body that select messages. `more`: keys of further texts. Raises: Refusal."""
    found = {name: text(given[name], name) for name in (*_SELECTORS, *more) if given.get(name) not in (None, "")}
    header = given.get("header")
    if header is not None and not isinstance(header, dict):
        raise bad_request("header: expected an object")
    return {**found, "header": header} if header else found


def whole_numbers(given: Mapping[str, Any], *names: str) -> dict[str, int]:
    """The numbers under these keys of a body. Raises: Refusal, also for negative ones."""
    numbers = {name: integer(given[name]) for name in names if name in given}
    if any(number < 0 for number in numbers.values()):
        raise bad_request(f"{', '.join(names)}: expected numbers from 0 on")
    return numbers


ADAPTERS = {"browse": Adapter(_arguments_of_browse), "route": Adapter(_arguments_of_route)}
ROUTES = [
    Route("queues/V/Q/get", {"POST": Action(Level.VHOST, _get)}),
    Route("aliveness-test/V", {"GET": Action(Level.VHOST, _is_alive)}),
]
