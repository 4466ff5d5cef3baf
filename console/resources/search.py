"""Searching for names of objects, and for messages. Source: management page 16."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from ..api import Api
from ..bodies import boolean, json_object
from ..dispatcher import Action, Level, Route
from ..http_messages import Request, bad_request
from ..permissions import is_administrator, may_see
from ..steps import Steps
from ..views.overview import clients_of
from .messages import selection, whole_numbers

#: Maximum names of each kind of object in the result.
NAMES_MAX = 50


def _search_names(api: Api, request: Request) -> dict[str, Any]:
    """Find names that contain the text `?q=`, ignoring case, among the objects that the user may see.

    A connection is also found by the name that its client gave it. Raises: Refusal, without a text.
    """
    part, user = request.query.get("q", "").lower(), request.user
    if not part:
        raise bad_request("q: expected text")

    def matching(names: Iterable[str]) -> list[str]:
        return list(islice((name for name in names if part in name.lower()), NAMES_MAX))

    def in_vhosts(names: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
        found = ({"vhost": vhost, "name": name} for vhost, name in names if part in name.lower())
        return list(islice(found, NAMES_MAX))

    vhosts = api.vhosts_to_list(request)
    found = (client for client in clients_of(api.broker, user) if part in f"{client.label}\n{client.name}".lower())
    connections = {client.name: client.given_name for client in islice(found, NAMES_MAX)}
    return {
        "queues": in_vhosts((vhost.name, name) for vhost in vhosts for name in vhost.queues),
        "exchanges": in_vhosts((vhost.name, name) for vhost in vhosts for name in vhost.exchanges),
        "connections": list(connections),
        "connection_names": connections,
        "users": matching(one.name for one in api.broker.users) if is_administrator(user) else [],
        "vhosts": matching(name for name in api.broker.virtual_hosts if may_see(user, name)),
    }


def _search_messages(api: Api, request: Request) -> Steps:
    given = json_object(request)
    return (
        yield from api.run(
            "search",
            as_user=request.user.name,
            **selection(given, "message_id", "correlation_id", "vhost", "queue"),
            **whole_numbers(given, "id", "count"),
            journal=boolean(given.get("journal", False)),
        )
    )


ROUTES = [
    Route("leveret/search", {"GET": Action(Level.ANY, _search_names)}),
    Route("leveret/search/messages", {"POST": Action(Level.ANY, _search_messages, reads=True)}),
]
