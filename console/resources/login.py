"""Login and logout by a form: the page keeps a cookie, never a password. Source: management page 2, 20."""

from urllib.parse import parse_qsl

from ..api import Api, named_in
from ..bodies import content_type
from ..dispatcher import Action, Level, Route
from ..http_messages import Answer, Request
from ..login import login_failed

_FIELDS_MAX = 10


def _log_in(api: Api, request: Request) -> Answer:
    """Log in. A form without a content type is a failed login, as in RabbitMQ."""
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
    cookie, host = named_in(request)
    return Answer(204, headers=(("set-cookie", api.sessions.close(cookie, cookie_path(api), host)),))


def cookie_path(api: Api) -> str:
    """The scope of cookies."""
    return f"{api.options.path_prefix}/api"


ROUTES = [
    Route("login", {"POST": Action(Level.OPEN, _log_in)}),
    Route("leveret/logout", {"POST": Action(Level.OPEN, _log_out)}),
]
