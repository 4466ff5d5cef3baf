"""Connections, channels, consumers. Source: management page 1.5, 2, 4."""

from collections.abc import Mapping
from typing import Any

from ...engine import Client, Session
from ..api import Api
from ..commands import Adapter
from ..dispatcher import Action, Level, Route
from ..http_messages import Answer, Request, bad_request, existing, not_authorised
from ..listing import Columns, listed
from ..permissions import is_administrator, is_monitor, missing_tag
from ..ranges import ranges_of
from ..steps import Steps
from ..views.clients import channel_name
from ..views.connections import channel_details, channel_view, connection_view, plain_connection_view
from ..views.consumers import consumer_view
from ..views.overview import clients_of

#: Maximum octets of a reason: a reply text has at most 255, with the text that the broker puts before the reason.
REASON_MAX = 255 - 64
_NOT_AUTHORISED = "User not authorised to access object"


def _clients(api: Api, request: Request) -> list[Client]:
    """The connections that the user may see: of the virtual host in the path or in `x-vhost`, else of each one."""
    vhost = api.vhost(request).name if "V" in request.names else request.headers.get("x-vhost", "")
    return [client for client in clients_of(api.broker, request.user) if vhost in ("", client.vhost.name)]


def _list(api: Api, request: Request) -> Steps:
    node, ranges = api.options.node, ranges_of(request, "invalid_range_parameters")
    has_statistics = "V" in request.names or not request.flag("disable_stats")

    def row(client: Client) -> dict[str, Any]:
        if not has_statistics:
            return plain_connection_view(client, node)
        return {**connection_view(client, api.broker, node), **api.sampler.client(client, ranges)}

    return listed(
        request,
        _clients(api, request),
        row,
        name=lambda client: (client.name, client.given_name or ""),
        order=lambda client: client.name,
        has_pages=True,
    )


def _client(api: Api, request: Request, *, to_close: bool = False) -> Client:
    """The connection in the path. Raises: Refusal."""
    name, user = request.names["NAME"], request.user
    found = existing(next((client for client in api.broker.connections if client.name == name), None))
    may_use_all = is_administrator(user) if to_close else is_monitor(user)
    if not may_use_all and found.user.name != user.name:
        raise not_authorised(_NOT_AUTHORISED, missing_tag(user, "administrator" if to_close else "monitoring"))
    return found


def _show(api: Api, request: Request) -> Any:
    client = _client(api, request)
    if request.flag("disable_stats"):
        return Columns(request).selected({"name": client.name})
    view = connection_view(client, api.broker, api.options.node, is_alone=True)
    ranges = ranges_of(request)
    return Columns(request).selected(
        {**view, **api.sampler.client(client, ranges), **api.sampled_since(client, ranges)}
    )


def _reason(request: Request) -> str:
    """The reason that the request gives for closing, cut so that it fits into connection.close."""
    text = request.headers.get("x-reason", "Closed via management plugin")
    clean = "".join(character if character.isprintable() else "?" for character in text)
    return clean.encode()[:REASON_MAX].decode(errors="ignore")


def _arguments_of_close(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    _client(api, request, to_close=True)
    return {"reason": _reason(request)}


def _channels_of(api: Api, request: Request) -> Steps:
    sessions = list(_client(api, request).sessions)
    return _listed_channels(api, request, sessions, has_pages=False)


def _sessions_of(api: Api, request: Request) -> list[Any]:
    """The connection's sessions of AMQP 1.0: it has none."""
    _client(api, request)
    return []


def _listed_channels(api: Api, request: Request, sessions: list[Session], *, has_pages: bool = True) -> Steps:
    node, ranges = api.options.node, ranges_of(request, "invalid_range_parameters")
    return listed(
        request,
        sessions,
        lambda session: {
            **channel_view(session, node),
            **api.sampler.session(session, ranges),
        },
        name=lambda session: (channel_name(session), session.client.given_name or ""),
        order=channel_name,
        has_pages=has_pages,
    )


def _list_channels(api: Api, request: Request) -> Steps:
    _check_statistics(request)
    return _listed_channels(api, request, [session for client in _clients(api, request) for session in client.sessions])


def _check_statistics(request: Request) -> None:
    """Refuse `disable_stats`: channels and consumers are nothing but statistics, as in RabbitMQ. Raises: Refusal."""
    if request.flag("disable_stats"):
        raise bad_request("Stats in management UI are disabled on this node")


def _show_channel(api: Api, request: Request) -> Steps:
    _check_statistics(request)
    name, user, node = request.names["NAME"], request.user, api.options.node
    sessions = (session for client in api.broker.connections for session in client.sessions)
    session = existing(next((session for session in sessions if channel_name(session) == name), None))
    if not is_monitor(user) and session.client.user.name != user.name:
        raise not_authorised(_NOT_AUTHORISED, missing_tag(user, "monitoring"))
    ranges = ranges_of(request)
    rates = api.sampler.session(session, ranges)
    view = {**channel_view(session, node), **rates, **api.sampled_since(session, ranges)}
    return Columns(request).selected({**view, **(yield from channel_details(session, node))})


def _list_of_user(api: Api, request: Request) -> Steps:
    name, node = request.names["U"], api.options.node
    clients = [client for client in clients_of(api.broker, request.user) if client.user.name == name]
    return listed(
        request,
        clients,
        lambda client: plain_connection_view(client, node),
        name=lambda client: client.name,
        order=lambda client: client.name,
        has_pages=True,
    )


def _arguments_of_preview(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    user = request.user
    if not is_monitor(user):
        called = api.broker.connections.called(request.names["CONNECTION"])
        if any(client.user.name != user.name for client in existing(called or None)):
            raise not_authorised(_NOT_AUTHORISED, missing_tag(user, "monitoring"))
    return given


def _close_of_user(api: Api, request: Request) -> Steps:
    name, user = request.names["U"], request.user
    if not is_administrator(user) and name != user.name:
        raise not_authorised(_NOT_AUTHORISED, missing_tag(user, "administrator"))
    for client in [client for client in api.broker.connections if client.user.name == name]:
        if client.closed:  # meanwhile
            continue
        yield from api.run("close-connection", name=client.name, reason=_reason(request))
    return Answer(204)


def _list_consumers(api: Api, request: Request) -> Steps:
    _check_statistics(request)
    node, user = api.options.node, request.user
    vhosts = {vhost.name for vhost in api.vhosts_to_list(request)}
    consumers = [
        consumer
        for client in api.broker.connections
        if client.vhost.name in vhosts and (is_monitor(user) or client.user.name == user.name)
        for session in client.sessions
        for consumer in session.consumers.values()
    ]
    return listed(request, consumers, lambda consumer: consumer_view(consumer, node))


ADAPTERS = {
    "close-connection": Adapter(_arguments_of_close),
    "preview connection": Adapter(_arguments_of_preview),
}
_OF_VHOST, _ANY = Level.VHOST, Level.ANY
ROUTES = [
    Route("connections", {"GET": Action(_ANY, _list)}),
    Route("vhosts/V/connections", {"GET": Action(_OF_VHOST, _list)}),
    Route("connections/NAME", {"GET": Action(_ANY, _show)}),
    Route("connections/NAME/channels", {"GET": Action(_ANY, _channels_of)}),
    Route("connections/NAME/sessions", {"GET": Action(_ANY, _sessions_of)}),
    Route("connections/username/U", {"GET": Action(_ANY, _list_of_user), "DELETE": Action(_ANY, _close_of_user)}),
    Route("channels", {"GET": Action(_ANY, _list_channels)}),
    Route("vhosts/V/channels", {"GET": Action(_OF_VHOST, _list_channels)}),
    Route("channels/NAME", {"GET": Action(_ANY, _show_channel)}),
    Route("consumers", {"GET": Action(_ANY, _list_consumers)}),
    Route("consumers/V", {"GET": Action(_OF_VHOST, _list_consumers)}),
]
