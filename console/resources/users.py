"""Users, their permissions and limits. Source: management page 2, 8.3, 8.4, 10."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...engine import SHA256, User, read_password_hash
from ...expressions.patterns.pattern_syntax import PatternFault
from ...settings.policies.policy_keys import erlang
from ..api import Api
from ..bodies import boolean, check_base64, json_object, require
from ..commands import Adapter
from ..dispatcher import Action, Level, Route
from ..http_messages import JSON_MEDIA, Answer, Request, bad_request, existing
from ..listing import Columns, listed
from ..steps import Steps, map_in_steps
from ..views.access import permission_rows, topic_rows, user_limits, user_view

LIMITS = ("max-connections", "max-channels")
_PATTERNS = ("configure", "write", "read")
_TOPIC_KEYS = ("exchange", "write", "read")


def _user(api: Api, request: Request) -> User:
    return existing(api.broker.users.find(request.names["U"]))


def _by_name(user: User) -> str:
    return user.name


def _list(api: Api, request: Request) -> Steps:
    return listed(request, api.broker.users, user_view, order=_by_name)


def _without_permissions(api: Api, request: Request) -> Steps:
    found = [user for user in api.broker.users if user.permissions is not None and not user.permissions]
    return listed(request, found, user_view, order=_by_name)


def _show(api: Api, request: Request) -> Any:
    return Columns(request).selected(user_view(_user(api, request)))


def _arguments_of_replace(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    if "tags" in given:
        tags = given["tags"]
    elif "administrator" in given:  # of releases before 3.0
        tags = ["administrator"] if boolean(given["administrator"]) else []
    else:
        raise bad_request("tags_not_present")
    if not isinstance(tags, str) and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        raise bad_request("tags: expected text with commas, or a list of words")
    return {"tags": tags, **_password(given), **_limits_in(given), **_permissions_in(api, request, given)}


def _permissions_in(api: Api, request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """The argument for the permissions of a new user; those of an existing one stay. Raises: Refusal."""
    if "permissions" not in given or api.broker.users.find(request.names["U"]) is not None:
        return {}
    rows = given["permissions"]
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise bad_request("permissions: expected an object with an object for each virtual host")
    found = {}
    for vhost, row in rows.items():
        found[vhost] = dict(zip(_PATTERNS, require(row, *_PATTERNS)))
        if vhost not in api.broker.virtual_hosts:
            raise bad_request(["no_such_vhost", vhost])
        _check_patterns(found[vhost], _PATTERNS)
    return {"permissions": found}


def _limits_in(given: Mapping[str, Any]) -> dict[str, int]:
    """The arguments for the limits in a body; {}: they are not changed. Raises: Refusal."""
    limits = given.get("limits") or {}
    if not isinstance(limits, dict):
        raise bad_request(f"user-limits not a list {erlang(limits)}")
    for name, value in limits.items():
        _check_limit(name, value)
    return {name.replace("-", "_"): value for name, value in limits.items()}


def _password(given: Mapping[str, Any]) -> dict[str, str]:
    """The arguments for the password; {}: the user cannot log in by password. Raises: Refusal."""
    password, hashed = given.get("password", ""), given.get("password_hash", "")
    if "password" in given and "password_hash" in given:
        raise bad_request("both_password_and_password_hash_are_provided")
    if not isinstance(password, str):
        raise bad_request("password: expected text")
    if not isinstance(hashed, str):
        raise bad_request(["not_base64", hashed])
    if hashed:
        algorithm = given.get("hashing_algorithm") or SHA256
        if not isinstance(algorithm, str):
            raise bad_request("hashing_algorithm: expected text")
        check_base64(hashed)
        try:
            read_password_hash(hashed, algorithm)
        except ValueError as error:
            raise bad_request(f"password_hash: expected {error}") from None
        return {"password_hash": hashed, "hashing_algorithm": algorithm}
    return {"password": password} if password else {}


def _bulk_delete(api: Api, request: Request) -> Steps:
    (names,) = require(json_object(request), "users")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_request("users: expected a list of names")
    for name in names:
        if api.broker.users.find(name) is None:
            raise bad_request(["no_such_user", name])
        yield from api.run("users delete", name=name)
    return Answer(204)


# -- permissions ----------------------------------------------------------------------------------------------------


def _users_of(api: Api, request: Request) -> list[User]:
    """The user in the path, or all users by name."""
    return [_user(api, request)] if "U" in request.names else sorted(api.broker.users, key=_by_name)


def _list_permissions(api: Api, request: Request) -> Steps:
    return _listed_rows(api, request, lambda user: permission_rows(user, api.broker))


def _list_topics(api: Api, request: Request) -> Steps:
    return _listed_rows(api, request, topic_rows)


def _listed_rows(api: Api, request: Request, rows_of: Callable[[User], Iterable[dict[str, Any]]]) -> Steps:
    """List rows of the user and the virtual host in the path; without them, of all."""
    vhost = api.vhost(request).name if "V" in request.names else None
    by_user = yield from map_in_steps(rows_of, _users_of(api, request))
    rows = [row for rows in by_user for row in rows if vhost in (None, row["vhost"])]
    return (yield from listed(request, rows, lambda row: row))


def _permission(api: Api, request: Request) -> dict[str, Any]:
    """The permissions of the path's user in the path's virtual host. Raises: Refusal, if there are none."""
    api.vhost(request)
    return existing(_find_permission(api, request))


def _show_permission(api: Api, request: Request) -> Any:
    return Columns(request).selected(_permission(api, request))


def _find_permission(api: Api, request: Request) -> dict[str, Any] | None:
    user = api.broker.users.find(request.names["U"])
    rows = [] if user is None else permission_rows(user, api.broker)
    return next((row for row in rows if row["vhost"] == request.names["V"]), None)


def _set_permission(api: Api, request: Request) -> Steps:
    values = dict(zip(_PATTERNS, require(json_object(request), *_PATTERNS)))
    _check_vhost_and_user(api, request)
    _check_patterns(values, _PATTERNS)
    is_there = _find_permission(api, request) is not None
    yield from api.run("permissions set", user=request.names["U"], vhost=request.names["V"], **values)
    return Answer(204 if is_there else 201)


def _check_permission_exists(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    _permission(api, request)
    return given


def _check_vhost_and_user(api: Api, request: Request) -> None:
    """Check that the virtual host and the user in the path exist. Raises: Refusal."""
    is_there = request.names["V"] in api.broker.virtual_hosts
    if not is_there or api.broker.users.find(request.names["U"]) is None:
        raise bad_request("vhost_or_user_not_found")


def _check_patterns(values: dict[str, Any], names: tuple[str, ...]) -> None:
    """Check that the values under these names are regular expressions. Raises: Refusal."""
    from ...expressions.patterns.patterns import permission_pattern

    for name in names:
        value = values[name]
        if not isinstance(value, str):
            raise bad_request(["not_string", name])
        try:
            permission_pattern(value)
        except PatternFault as fault:
            raise bad_request(["invalid_regexp", value, str(fault)]) from None


def _topics_of(api: Api, request: Request) -> list[dict[str, Any]]:
    """The path's topic permissions: of a user in a virtual host, perhaps for one exchange. Raises: Refusal, if none."""
    vhost, exchange = api.vhost(request).name, request.names.get("X")
    rows = [row for row in topic_rows(_user(api, request)) if row["vhost"] == vhost]
    return existing([row for row in rows if exchange in (None, row["exchange"])] or None)


def _show_topics(api: Api, request: Request) -> Any:
    return Columns(request).selected(_topics_of(api, request))


def _set_topic(api: Api, request: Request) -> Steps:
    values = dict(zip(_TOPIC_KEYS, require(json_object(request), *_TOPIC_KEYS)))
    _check_vhost_and_user(api, request)
    if not isinstance(values["exchange"], str):
        raise bad_request(["not_string", "exchange"])
    _check_patterns(values, ("write", "read"))
    user = api.broker.users.find(request.names["U"])
    assert user is not None
    is_there = any(row["vhost"] == request.names["V"] for row in topic_rows(user))
    yield from api.run("topic-permissions set", user=user.name, vhost=request.names["V"], **values)
    return Answer(204 if is_there else 201)


def _clear_topics(api: Api, request: Request) -> Steps:
    """Clear those of the path. As in RabbitMQ, a user who has others in the virtual host may lack the named one."""
    user, vhost, exchange = _user(api, request), api.vhost(request).name, request.names.get("X")
    rows = existing([row for row in topic_rows(user) if row["vhost"] == vhost] or None)
    if any(exchange in (None, row["exchange"]) for row in rows):
        yield from api.run("topic-permissions clear", user=user.name, vhost=vhost, exchange=exchange)
    return Answer(204)


# -- limits ---------------------------------------------------------------------------------------------------------


def _limits(api: Api, request: Request) -> Steps:
    rows = [{"user": user.name, "value": limits} for user in _users_of(api, request) if (limits := user_limits(user))]
    return listed(request, rows, lambda row: row)


def _set_limit(api: Api, request: Request) -> Steps:
    user, name = request.names["U"], request.names["NAME"]
    (value,) = require(json_object(request), "value")
    if api.broker.users.find(user) is None:
        raise bad_request(["no_such_user", user])
    _check_limit(name, value)
    yield from api.run("users limits", name=user, **{name.replace("-", "_"): value})
    return Answer(204)


def _check_limit(name: str, value: object) -> None:
    """Check a limit of a user. Raises: Refusal, with RabbitMQ's text."""
    if name not in LIMITS:
        raise bad_request(f'Unrecognised terms [{{<<"{name}">>,{erlang(value)}}}] in user-limits')
    if isinstance(value, bool) or not isinstance(value, int):
        raise bad_request(f"{name} should be a number, actually was {erlang(value)}")


def _clear_limit(api: Api, request: Request) -> Steps:
    user, name = _user(api, request), request.names["NAME"]
    if name not in LIMITS:  # RabbitMQ does not refuse unknown limits here
        return Answer(204)
    yield from api.run("users limits", name=user.name, **{name.replace("-", "_"): -1})
    return Answer(204)


_ADMINISTRATOR = Level.ADMINISTRATOR
_PERMISSIONS = {"GET": Action(_ADMINISTRATOR, _list_permissions)}
_TOPIC_PERMISSIONS = {"GET": Action(_ADMINISTRATOR, _list_topics)}
_TOPICS = {
    "GET": Action(_ADMINISTRATOR, _show_topics),
    "PUT": Action(_ADMINISTRATOR, _set_topic),
    "DELETE": Action(_ADMINISTRATOR, _clear_topics),
}
ADAPTERS = {
    "users replace": Adapter(_arguments_of_replace),
    "permissions clear": Adapter(_check_permission_exists),
}
ROUTES = [
    Route("users", {"GET": Action(_ADMINISTRATOR, _list)}),
    Route("users/without-permissions", {"GET": Action(_ADMINISTRATOR, _without_permissions)}),
    Route("users/bulk-delete", {"POST": Action(_ADMINISTRATOR, _bulk_delete)}),
    Route("users/U", {"GET": Action(_ADMINISTRATOR, _show)}),
    Route("users/U/permissions", _PERMISSIONS),
    Route("vhosts/V/permissions", _PERMISSIONS),
    Route("permissions", _PERMISSIONS),
    Route(
        "permissions/V/U",
        {"GET": Action(_ADMINISTRATOR, _show_permission), "PUT": Action(_ADMINISTRATOR, _set_permission)},
    ),
    Route("users/U/topic-permissions", _TOPIC_PERMISSIONS),
    Route("vhosts/V/topic-permissions", _TOPIC_PERMISSIONS),
    Route("topic-permissions", _TOPIC_PERMISSIONS),
    Route("topic-permissions/V/U", _TOPICS),
    Route("topic-permissions/V/U/X", _TOPICS),
    Route("user-limits", {"GET": Action(Level.ANY, _limits)}, has_head=False),
    Route("user-limits/U", {"GET": Action(Level.ANY, _limits)}, has_head=False),
    Route(
        "user-limits/U/NAME",
        {"PUT": Action(_ADMINISTRATOR, _set_limit, JSON_MEDIA), "DELETE": Action(_ADMINISTRATOR, _clear_limit)},
    ),
]
