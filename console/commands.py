"""Makes routes from commands: the arguments of a command define how a request is read.

Where RabbitMQ's API differs from a command, an `Adapter` in the file of the resource makes up for it. A value of the
wrong type is refused in RabbitMQ's words at RabbitMQ's paths, and in the command's words at ours (leveret/...).
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .api import Api
from .bodies import arguments, boolean, integer, json_object
from .dispatcher import Action, CommandRoute, Handler, Route
from .http_messages import Answer, Request, existing
from .options import CommandRefused
from .steps import Steps

#: Arguments that are never read from a body or query, because permissions depend on them.
_FROM_PATH_OR_LOGIN = frozenset({"vhost", "as-user"})
_HAVE_BODIES = frozenset({"PUT", "POST"})
_WITHOUT_BODIES = frozenset({201, 204})


@dataclass(slots=True, frozen=True)
class Adapter:
    """Adapts a command to RabbitMQ's API.

    `arguments`: makes the command's arguments from the body or query, and may refuse these. `view`: makes the body of
    the answer from the command's result.
    """

    arguments: Callable[[Api, Request, Mapping[str, Any]], Mapping[str, Any]]
    view: Callable[[Api, Request, Any], Any] = lambda api, request, result: result


_UNCHANGED = Adapter(lambda api, request, given: given)


def with_commands(
    routes: Iterable[Route], commands: Iterable[CommandRoute], adapters: Mapping[str, Adapter]
) -> list[Route]:
    """The routes, with those of commands inserted. `adapters`: words of a command -> adapter."""
    found = {route.pattern: route for route in routes}
    for one in commands:
        http = one.http
        action = Action(http.level, _handler(one, adapters.get(one.words, _UNCHANGED)), reads=one.reads)
        route = found.get(http.path, Route(http.path, {}))
        found[http.path] = replace(route, actions={**route.actions, http.method: action})
    return list(found.values())


def _handler(command: CommandRoute, adapter: Adapter) -> Handler:
    status = command.http.status

    def handle(api: Api, request: Request) -> Steps:
        from_path = _path_arguments(api, request, command)
        given: Mapping[str, Any] = json_object(request) if request.method in _HAVE_BODIES else request.query
        values = _given_arguments(command, request, adapter.arguments(api, request, given)) | from_path
        if "as-user" in command.arguments:
            values["as-user"] = request.user.name
        try:
            result = yield from api.options.control.steps(command.words, values)
        except CommandRefused:
            _path_arguments(api, request, command)  # an object in the path that has gone meanwhile is a 404
            raise
        code = status if isinstance(status, int) else status(result)
        if code in _WITHOUT_BODIES:
            return Answer(code)
        return Answer(code, adapter.view(api, request, result))

    return handle


def _path_arguments(api: Api, request: Request, command: CommandRoute) -> dict[str, Any]:
    """The arguments in the path. Raises: Refusal, for an object that does not exist and is not created."""
    names = request.names
    # PUT to a path that ends in a variable creates the object of that name, so it need not exist yet.
    creates = request.method == "PUT" and command.http.path.rpartition("/")[2].isupper()
    if "V" in names:
        vhost = api.vhost_to_change(request) if creates else api.vhost(request)
    if not creates:
        if "Q" in names:
            existing(vhost.queues.get(names["Q"]))
        if "X" in names:
            existing(vhost.exchanges.get(names["X"]))
        if "U" in names:
            existing(api.broker.users.find(names["U"]))
        if "N" in names:
            api.node(request)
    return {argument: names[word] for word, argument in command.http.path_arguments(command.arguments).items()}


def _given_arguments(command: CommandRoute, request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in a body or query; unknown keys are ignored. Raises: Refusal."""
    is_body, is_ours = request.method in _HAVE_BODIES, command.http.path.startswith("leveret/")
    values: dict[str, Any] = {}
    for name, kind in command.arguments.items():
        key = name.replace("-", "_") if is_body else name
        value = given.get(key)
        if key not in given or name in _FROM_PATH_OR_LOGIN:
            continue
        if (value is None and is_ours) or (value == "" and not is_body):
            continue  # null at our paths, and an empty value in a query, count as not given
        if kind == "JSON" and name == "arguments":
            value = arguments(dict(given))
        elif kind == "JSON" and is_body and (value is None or isinstance(value, str)):
            value = json.dumps(value)  # commands parse a text as JSON, and take None as not given
        elif kind == "BOOLEAN" and not is_body:
            value = value == "true"
        elif kind == "BOOLEAN" and not is_ours:
            value = boolean(value)
        elif kind == "NUMBER" and not is_ours:
            value = integer(value)
        values[name] = value
    return values
