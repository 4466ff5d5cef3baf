"""The page's login, logout and session, and its user's permissions, which the page shows.

Source: management page 15, 20.
"""

from typing import Any
from urllib.parse import parse_qsl

from ...engine import User
from ..api import Api, is_attended, session_headers
from ..bodies import content_type
from ..dispatcher import Action, Level, Route
from ..http_messages import Answer, Request, bad_request
from ..login import login_failed
from ..permissions import may_see
from ..plugins import PLUGINS

_FIELDS_MAX = 10
ACTIONS = ("configure", "write", "read")


def _log_in(api: Api, request: Request) -> Answer:
    """Log in by a form. Another content type is a failed login, as in RabbitMQ."""
    form: dict[str, str] = {}
    challenges = "x-requested-with" not in request.headers  # the page itself must not open the browser's dialogue
    if content_type(request) == "application/x-www-form-urlencoded":
        try:
            form = dict(parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX))
        except ValueError:
            raise login_failed(challenges=challenges) from None
    name = form.get("username", "")
    user = api.logins.check(name, form.get("password", ""), request.peer)
    if user is None:
        raise login_failed(challenges=challenges)
    admitted = api.logins.check_admitted(user, request.peer)
    host = request.headers.get("host", "")
    cookie = api.sessions.open(admitted, cookie_path(api), host=host, is_secure=request.peer.is_secure)
    return Answer(200, "ok", (("set-cookie", cookie),))


def _log_out(api: Api, request: Request) -> Answer:
    cookie, host = session_headers(request)
    return Answer(204, headers=(("set-cookie", api.sessions.close(cookie, cookie_path(api), host)),))


def cookie_path(api: Api) -> str:
    """The path that is the scope of cookies."""
    return f"{api.options.path_prefix}/api"


def _session(api: Api, request: Request) -> Any:
    """Show the session's user, and plug-ins that have a page; {}: there is no session, so the page shows a login.

    The page asks for this regularly. The cookie is renewed while a user is at the page.
    """
    (cookie, host), attended = session_headers(request), is_attended(request)
    user = api.sessions.find(cookie, host, is_attended=attended)
    if user is None:
        return {}
    path, is_secure = cookie_path(api), request.peer.is_secure
    renewed = api.sessions.renewed(cookie, path, host, is_secure=is_secure) if attended else None
    headers = () if renewed is None else (("set-cookie", renewed),)
    return Answer(200, {"name": user.name, "tags": list(user.tags), "packages": list(PLUGINS)}, headers)


def _hidden(api: Api, request: Request) -> dict[str, int]:
    """Show how many virtual hosts the user may not see."""
    return {"hidden_vhosts": sum(not may_see(request.user, name) for name in api.broker.virtual_hosts)}


def _may(api: Api, request: Request) -> dict[str, Any]:
    """Show what the user may do with a queue or exchange of the name in the query, and the patterns that allow it.

    `patterns`: null if the user has no permissions in the virtual host.
    """
    user, vhost = request.user, api.vhost(request).name
    kind = "exchange" if "exchange" in request.query else "queue"
    name = request.query.get(kind)
    if name is None:
        raise bad_request("expected queue or exchange")
    may = {action: user.may(action, kind, name, vhost) for action in ACTIONS}
    return {**may, "patterns": _patterns(user, vhost)}


def _patterns(user: User, vhost: str) -> dict[str, str] | None:
    """The patterns of the user's permissions in a virtual host; `.*` for a user without restrictions; None: none."""
    if user.permissions is None:
        return dict.fromkeys(ACTIONS, ".*")
    permissions = user.permissions.get(vhost)
    return None if permissions is None else {action: getattr(permissions.grant, action) for action in ACTIONS}


ROUTES = [
    Route("login", {"POST": Action(Level.OPEN, _log_in)}),
    Route("leveret/logout", {"POST": Action(Level.OPEN, _log_out)}),
    Route("leveret/session", {"GET": Action(Level.OPEN, _session)}),
    Route("leveret/may", {"GET": Action(Level.ANY, _hidden)}),
    Route("leveret/may/V", {"GET": Action(Level.VHOST, _may)}),
]
