"""Exchanges, and publishing to one. Source: management page 2, 6, 10."""

import base64
import binascii
from typing import Any

from ...engine import Exchange
from ..api import Api
from ..bodies import any_in, arguments, boolean, json_object, require
from ..dispatcher import Action, Level, Route
from ..listing import Columns, listed
from ..messages import Answer, Request, bad_request, not_found
from ..options import CommandRefused, Steps
from ..ranges import ranges_of
from ..views.bindings import binding_view
from ..views.exchanges import exchange_view

OCTETS_MAX = 255
#: Properties by the kind of their value, in the order in which RabbitMQ looks at them.
_NUMBERS = ("delivery_mode", "priority", "timestamp")
_TEXTS = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)


def _list(api: Api, request: Request) -> Steps:
    ranges = ranges_of(request, "invalid_range_parameters")
    found = [(exchange, vhost.name) for vhost in api.vhosts_to_list(request) for exchange in vhost.exchanges.values()]
    return listed(
        request,
        found,
        lambda one: {**exchange_view(*one), **api.sampler.exchange(one[0], ranges)},
        name=lambda one: one[0].name,
        order=lambda one: (one[1], one[0].name),
        has_pages=True,
    )


def _exchange(api: Api, request: Request) -> Exchange:
    found = api.vhost(request).exchanges.get(request.names["X"])
    if found is None:
        raise not_found()
    return found


def _show(api: Api, request: Request) -> Any:
    exchange = _exchange(api, request)
    view = {**exchange_view(exchange, request.names["V"]), **api.sampler.exchange(exchange, ranges_of(request))}
    return Columns(request).of({**view, "incoming": [], "outgoing": []})


def _declare(api: Api, request: Request) -> Steps:
    vhost = api.vhost_to_change(request)
    given, name = json_object(request), request.names["X"]
    size = len(name.encode())
    if size > OCTETS_MAX:
        raise bad_request(f"exchange should be less than 255 bytes, actually was {size}\n")
    kind = given.get("type", "direct")
    if not isinstance(kind, str) or not kind:
        raise bad_request("type: expected text")
    if not name:
        raise CommandRefused("ACCESS_REFUSED - operation not permitted on the default exchange", 403)
    is_there = name in vhost.exchanges
    yield from api.run(
        "declare-exchange",
        exchange=name,
        type=kind,
        vhost=vhost.name,
        durable=boolean(given.get("durable", False)),
        auto_delete=boolean(given.get("auto_delete", False)),
        internal=boolean(given.get("internal", False)),
        arguments=arguments(given),
        as_user=request.user.name,
    )
    return Answer(204 if is_there else 201)


def _delete(api: Api, request: Request) -> Steps:
    exchange = _exchange(api, request)
    if not exchange.name:
        raise CommandRefused("ACCESS_REFUSED - operation not permitted on the default exchange", 403)
    yield from api.run(
        "delete-exchange",
        exchange=exchange.name,
        vhost=request.names["V"],
        if_unused=request.flag("if-unused"),
        as_user=request.user.name,
    )
    return Answer(204)


def _from(api: Api, request: Request) -> Steps:
    """Bindings of which it is the source."""
    vhost = api.vhost(request)
    exchange = vhost.exchanges.get(request.names["X"])
    found = [] if exchange is None else list(exchange.bindings.values())
    return listed(request, found, lambda one: binding_view(one, vhost.name))


def _to(api: Api, request: Request) -> Steps:
    """Bindings of which it is the destination."""
    vhost = api.vhost(request)
    exchange = vhost.exchanges.get(request.names["X"])
    found = [] if exchange is None else list(exchange.incoming)
    return listed(request, found, lambda one: binding_view(one, vhost.name))


def _publish(api: Api, request: Request) -> Steps:
    given = json_object(request)
    if request.names["V"] not in api.broker.virtual_hosts:
        raise CommandRefused("ACCESS_REFUSED - no such virtual host", 403)
    routing_key, properties, payload, encoding = require(
        given, "routing_key", "properties", "payload", "payload_encoding"
    )
    if encoding not in ("string", "base64"):
        raise bad_request(["unsupported_encoding", encoding])
    if not isinstance(payload, str):
        raise bad_request("payload_not_string")
    if encoding == "base64":
        try:
            base64.b64decode(payload, validate=True)
        except (binascii.Error, ValueError):
            raise bad_request(["not_base64", payload]) from None
    if not isinstance(routing_key, str):
        raise bad_request(["not_string", "routing_key"])
    try:
        return (
            yield from api.run(
                "publish",
                exchange=request.names["X"],
                routing_key=routing_key,
                payload=payload,
                payload_encoding=encoding,
                properties=_properties(properties),
                vhost=request.names["V"],
                as_user=request.user.name,
            )
        )
    except CommandRefused as refused:
        if refused.code in (0, 403):
            raise
        raise bad_request(f"{refused.code} {refused.reason}") from None


def _properties(given: Any) -> dict[str, Any]:
    if given in ([], None):
        return {}
    if not isinstance(given, dict):
        raise bad_request("properties: expected an object")
    for name in _NUMBERS:
        if name in given and (isinstance(given[name], bool) or not isinstance(given[name], int)):
            raise bad_request(["not_int", name])
    for name in _TEXTS:
        if name in given and not isinstance(given[name], str):
            raise bad_request(["not_string", name])
    if any_in(given.get("headers", {}), lambda one: one is None):
        raise bad_request("null_not_allowed")
    return given


ROUTES = [
    Route("exchanges", {"GET": Action(Level.ANY, _list)}),
    Route("exchanges/V", {"GET": Action(Level.VHOST, _list)}),
    Route(
        "exchanges/V/X",
        {
            "GET": Action(Level.VHOST, _show),
            "PUT": Action(Level.VHOST, _declare),
            "DELETE": Action(Level.VHOST, _delete),
        },
    ),
    Route("exchanges/V/X/publish", {"POST": Action(Level.VHOST, _publish)}),
    Route("exchanges/V/X/bindings/source", {"GET": Action(Level.VHOST, _from)}),
    Route("exchanges/V/X/bindings/destination", {"GET": Action(Level.VHOST, _to)}),
]
