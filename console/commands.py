"""The routes of commands: what a command says of its arguments is how a request is read.

What RabbitMQ's API has of its own stands beside the other routes of the resource: a `Before` looks at the body or query
first, and gives what is to be read; a `View` makes the answer.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from .api import Api
from .bodies import arguments, boolean, integer, json_object
from .dispatcher import Action, CommandRoute, Handler, Route
from .messages import Answer, Request, not_found
from .options import Steps

Before = Callable[[Api, Request, Mapping[str, Any]], Mapping[str, Any]]
View = Callable[[Api, Request, Any], Any]

#: Word of a path -> argument, where the command has one of that name.
_PLACES = {
    "V": "vhost",
    "Q": "queue",
    "X": "exchange",
    "U": "user",
    "NAME": "name",
    "ID": "id",
    "COMPONENT": "component",
}
#: Arguments that only a path, or the login, says: they decide what the user may do.
_NEVER_GIVEN = frozenset({"vhost", "as-user"})
_HAVE_BODIES = frozenset({"PUT", "POST"})


def with_commands(
    routes: Iterable[Route],
    commands: Iterable[CommandRoute],
    before: Mapping[str, Before],
    views: Mapping[str, View],
) -> list[Route]:
    """All routes, those of commands among the others. `before`, `views`: by the words of the command."""
    found = {route.pattern: route for route in routes}
    for one in commands:
        http = one.http
        action = Action(http.level, _handler(one, before.get(one.words), views.get(one.words)))
        route = found.get(http.path, Route(http.path, {}))
        found[http.path] = replace(route, actions={**route.actions, http.method: action})
    return list(found.values())


def _handler(command: CommandRoute, before: Before | None, view: View | None) -> Handler:
    status = command.http.status

    def handle(api: Api, request: Request) -> Steps:
        places = _places(api, request, command)
        given: Mapping[str, Any] = json_object(request) if request.method in _HAVE_BODIES else request.query
        if before is not None:
            given = before(api, request, given)
        if "as-user" in command.arguments:
            places["as-user"] = request.user.name
        result = yield from api.options.control.steps(command.words, {**_read(command, request, given), **places})
        if view is not None:
            return view(api, request, result)
        code = status if isinstance(status, int) else status(result)
        return Answer(code, result if code == 200 else None)

    return handle


def _places(api: Api, request: Request, command: CommandRoute) -> dict[str, Any]:
    """Arguments that the path says. Raises: Refusal, where what is not to be made is not there."""
    names = request.names
    is_made = request.method == "PUT" and command.http.path.rpartition("/")[2].isupper()
    if "V" in names:
        vhost = api.vhost_to_change(request) if is_made else api.vhost(request)
        for word, known in () if is_made else (("Q", vhost.queues), ("X", vhost.exchanges)):
            if word in names and names[word] not in known:
                raise not_found()
    places = {_PLACES.get(word, word.lower()): value for word, value in names.items()}
    return {name: value for name, value in places.items() if name in command.arguments}


def _read(command: CommandRoute, request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in a body or query; whatever else is there has no meaning. Raises: Refusal."""
    is_body = request.method in _HAVE_BODIES
    values: dict[str, Any] = {}
    for name, kind in command.arguments.items():
        key = name.replace("-", "_") if is_body else name
        if name in _NEVER_GIVEN or key not in given:
            continue
        value = given[key]
        if kind == "BOOLEAN":
            value = boolean(value) if is_body else value == "true"
        elif kind == "NUMBER":
            value = integer(value)
        elif name == "arguments":
            value = arguments(dict(given))
        elif kind == "JSON" and is_body and isinstance(value, str):
            value = json.dumps(value)  # text is JSON for a command
        values[name] = value
    return values
