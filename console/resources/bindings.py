"""Bindings: all, those between two, and one by its key. Source: management page 1.8, 2, 10."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus

from ...engine import Binding, Queue, VirtualHost, json_of_table
from ..api import Api
from ..bodies import arguments, json_object
from ..dispatcher import Action, Level, Route
from ..listing import Columns, listed
from ..messages import Answer, Refusal, Request, bad_request, not_found
from ..options import CommandRefused, Steps
from ..views.bindings import binding_view, default_binding_view, location_of, properties_key

_ORDER = ("vhost", "source", "destination_type", "destination", "routing_key", "properties_key")


def _order(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in _ORDER)


def _rows_of(vhost: VirtualHost) -> Iterator[dict[str, Any]]:
    for queue in vhost.queues.values():
        yield default_binding_view(queue)
    for exchange in vhost.exchanges.values():
        for binding in exchange.bindings.values():
            yield binding_view(binding, vhost.name)


def _list(api: Api, request: Request) -> Steps:
    rows: list[dict[str, Any]] = []
    for vhost in api.vhosts_to_list(request):
        for count, row in enumerate(_rows_of(vhost), 1):
            rows.append(row)
            if count % 200 == 0:
                yield
    return (yield from listed(request, rows, lambda row: row, order=_order))


def _between(api: Api, request: Request, *, to_queue: bool) -> list[Binding]:
    """Raises: Refusal, where one of the two ends is not there."""
    vhost, names = api.vhost(request), request.names
    source = vhost.exchanges.get(names["SOURCE"])
    target = vhost.queues.get(names["D"]) if to_queue else vhost.exchanges.get(names["TARGET"])
    if source is None or target is None:
        raise not_found()
    return [binding for binding in target.incoming if binding.source is source]


def _list_between(api: Api, request: Request, *, to_queue: bool) -> Steps:
    vhost = api.vhost(request)
    rows = [binding_view(one, vhost.name) for one in _between(api, request, to_queue=to_queue)]
    if to_queue and not request.names["SOURCE"]:
        rows.insert(0, default_binding_view(vhost.queues[request.names["D"]]))
    return listed(request, rows, lambda row: row, order=_order)


def _find(api: Api, request: Request, *, to_queue: bool) -> Binding:
    """By its key as it is in paths, and also quoted once less, as RabbitMQ finds it. Raises: Refusal."""
    key = request.names["KEY"]
    found = _between(api, request, to_queue=to_queue)
    for binding in found:
        if properties_key(binding) == key:
            return binding
    for binding in found:
        if not binding.arguments and unquote_plus(properties_key(binding)) == key:
            return binding
    raise not_found()


def _is_default(api: Api, request: Request) -> Queue | None:
    """The queue whose binding to the default exchange is meant."""
    queue = api.vhost(request).queues.get(request.names.get("D", ""))
    if queue is None or request.names["SOURCE"]:
        return None
    key = default_binding_view(queue)["properties_key"]
    return queue if request.names["KEY"] in (key, queue.name) else None


def _show(api: Api, request: Request, *, to_queue: bool) -> Any:
    queue = _is_default(api, request) if to_queue else None
    if queue is not None:
        return Columns(request).of(default_binding_view(queue))
    return Columns(request).of(binding_view(_find(api, request, to_queue=to_queue), request.names["V"]))


def _bind(api: Api, request: Request, *, to_queue: bool) -> Steps:
    vhost, names = api.vhost_to_change(request), request.names
    given = json_object(request)
    routing_key = given.get("routing_key")
    if routing_key is not None and not isinstance(routing_key, str):
        raise bad_request(["not_string", "routing_key"])
    _refuse_default(names["SOURCE"])
    destination = names["D"] if to_queue else names["TARGET"]
    before = set(_incoming(vhost, destination, to_queue=to_queue))
    table = arguments(given)
    yield from api.run(
        "bind",
        source=names["SOURCE"],
        destination=destination,
        destination_type="queue" if to_queue else "exchange",
        routing_key=routing_key or "",
        arguments=table,
        vhost=vhost.name,
        as_user=request.user.name,
    )
    after = _incoming(vhost, destination, to_queue=to_queue)
    new = [one for one in after if one not in before]
    if not new:
        new = [
            one
            for one in after
            if one.source.name == names["SOURCE"]
            and one.routing_key == (routing_key or "")
            and json_of_table(one.arguments) == table
        ]
    if not new:
        raise Refusal(404, "not_found", "the binding is gone already")
    return Answer(201, headers=(("location", location_of(new[0])),))


def _incoming(vhost: VirtualHost, name: str, *, to_queue: bool) -> list[Binding]:
    target = vhost.queues.get(name) if to_queue else vhost.exchanges.get(name)
    return [] if target is None else list(target.incoming)


def _refuse_default(source: str) -> None:
    if not source:
        raise CommandRefused("ACCESS_REFUSED - operation not permitted on the default exchange", 403)


def _unbind(api: Api, request: Request, *, to_queue: bool) -> Steps:
    if to_queue and _is_default(api, request) is not None:
        _refuse_default("")
    binding = _find(api, request, to_queue=to_queue)
    yield from api.run(
        "unbind",
        source=binding.source.name,
        destination=binding.destination.name,
        destination_type="queue" if to_queue else "exchange",
        routing_key=binding.routing_key,
        arguments=json_of_table(binding.arguments),
        vhost=request.names["V"],
        as_user=request.user.name,
    )
    return Answer(204)


def _list_to_queue(api: Api, request: Request) -> Steps:
    return _list_between(api, request, to_queue=True)


def _list_to_exchange(api: Api, request: Request) -> Steps:
    return _list_between(api, request, to_queue=False)


def _bind_queue(api: Api, request: Request) -> Steps:
    return _bind(api, request, to_queue=True)


def _bind_exchange(api: Api, request: Request) -> Steps:
    return _bind(api, request, to_queue=False)


def _show_to_queue(api: Api, request: Request) -> Any:
    return _show(api, request, to_queue=True)


def _show_to_exchange(api: Api, request: Request) -> Any:
    return _show(api, request, to_queue=False)


def _unbind_queue(api: Api, request: Request) -> Steps:
    return _unbind(api, request, to_queue=True)


def _unbind_exchange(api: Api, request: Request) -> Steps:
    return _unbind(api, request, to_queue=False)


ROUTES = [
    Route("bindings", {"GET": Action(Level.ANY, _list)}),
    Route("bindings/V", {"GET": Action(Level.VHOST, _list)}),
    Route(
        "bindings/V/e/SOURCE/q/D",
        {"GET": Action(Level.VHOST, _list_to_queue), "POST": Action(Level.VHOST, _bind_queue)},
    ),
    Route(
        "bindings/V/e/SOURCE/e/TARGET",
        {"GET": Action(Level.VHOST, _list_to_exchange), "POST": Action(Level.VHOST, _bind_exchange)},
    ),
    Route(
        "bindings/V/e/SOURCE/q/D/KEY",
        {"GET": Action(Level.VHOST, _show_to_queue), "DELETE": Action(Level.VHOST, _unbind_queue)},
    ),
    Route(
        "bindings/V/e/SOURCE/e/TARGET/KEY",
        {"GET": Action(Level.VHOST, _show_to_exchange), "DELETE": Action(Level.VHOST, _unbind_exchange)},
    ),
]
