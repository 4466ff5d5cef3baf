"""The API: `Api.open` checks a request before its body is read, and makes a `Call`, whose steps answer the request.

The order of the checks: path, method, origin, Accept, login, tag, virtual host, content type, body.
Source: management page 1.9, 20.
"""

import ipaddress
import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..engine import Broker, Queue, User, VirtualHost
from .bodies import content_type
from .dispatcher import Action, Dispatcher, Level, Route
from .encoding import encoded_in_steps
from .http_messages import JSON_TYPE, Answer, Refusal, Request, Work, access_refused, existing, not_found
from .login import Logins
from .metrics.facts import MetricsFacts
from .node_rates import NodeRates
from .options import CommandRefused, ConsoleOptions
from .origins import may_change
from .permissions import check_access, check_level, may_see
from .ranges import Range
from .sampler import Sampler
from .sessions import Sessions
from .static_pages import StaticPages
from .steps import Steps

logger = logging.getLogger("leveret.console")

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: Those that RabbitMQ's HTTP server knows.
_METHODS = _SAFE | {"POST", "PUT", "PATCH", "DELETE"}
_PAGE = "/api/index.html"
EVENT_STREAM = "text/event-stream"
#: The value of the header x-requested-with from a page that its user has not touched for a while.
UNATTENDED = "leveret-unattended"
#: Maximum octets of a body at a path without a login.
OPEN_BODY_MAX = 16 * 1024
#: Paths that are redirected.
MOVED = {
    "/api": _PAGE,
    "/api/": _PAGE,
    "/doc/stats.html": _PAGE,
    "/stats": _PAGE,
    "/cli": "/cli/index.html",
    "/cli/": "/cli/index.html",
    "/mgmt": "/",
}


@dataclass(slots=True, frozen=True)
class Call:
    """A request that passed the checks. Either `action` will answer it, or it has an `answer` already."""

    api: "Api"
    request: Request
    action: Action | None = None
    answer: Answer | None = None

    @property
    def body_max(self) -> int:
        """Maximum octets of the body; 0: the body is not read."""
        if self.action is None or self.request.method in _SAFE:
            return 0
        limit = self.api.options.body_max
        return min(limit, OPEN_BODY_MAX) if self.action.level is Level.OPEN else limit

    @property
    def work(self) -> Work:
        """The kind of work, by which concurrent requests are limited."""
        return Work.PROBE if self.action is not None and self.action.is_probe else Work.REQUEST

    @property
    def reads(self) -> bool:
        """Whether it changes nothing, so that it may be cancelled between two steps."""
        return self.action is not None and self.action.reads

    def steps(self, body: bytes) -> Steps:
        """The steps to an `Answer`, also to one that tells an error."""
        if self.answer is not None or self.action is None:
            return self.answer
        request = replace(self.request, body=body)
        try:
            self.api.check_content_type(request, self.action)
            result = self.action.handler(self.api, request)
            if isinstance(result, Generator):
                user = f"{request.user.name} by HTTP" if self.action.level is not Level.OPEN else ""
                result = yield from self.api.options.control.as_caller(user, result)
        except Refusal as refusal:
            return refusal.answer()
        except CommandRefused as refused:
            return refusal_of(refused).answer()
        answer = result if isinstance(result, Answer) else Answer(200, result)
        if answer.body is not None or answer.value is None:
            return answer
        parts = yield from encoded_in_steps(answer.value)
        return replace(answer, value=None, body=parts, headers=(*answer.headers, JSON_TYPE))


def refusal_of(refused: CommandRefused) -> Refusal:
    """The answer to a refused command (management page 1.5, 10)."""
    text = refused.reason.partition(" - ")[2] if refused.code else refused.reason
    if refused.code == 403:
        return access_refused(text)
    if refused.code == 404:
        return Refusal(404, "not_found", text)
    return Refusal(400, "bad_request", text)


class Api:
    """The API of a console: it checks requests, and has helpers for resources."""

    def __init__(
        self,
        broker: Callable[[], Broker],
        options: Callable[[], ConsoleOptions],
        routes: list[Route],
        pages: StaticPages,
        sampler: Sampler,
    ) -> None:
        self._broker = broker
        self._options = options
        self._pages = pages
        self.dispatcher = Dispatcher()
        self.dispatcher.add(routes)
        self.logins = Logins(broker)
        self.sessions = Sessions(lambda: self.broker.context.clock.monotonic_ns(), broker, lambda: self.options.data)
        self.sampler = sampler
        self.node_rates: dict[str, NodeRates] = {}
        self.facts: MetricsFacts | None = None  # None: without metrics

    @property
    def broker(self) -> Broker:
        return self._broker()

    @property
    def options(self) -> ConsoleOptions:
        return self._options()

    # -- checks before the body is read -------------------------------------------------------------------------------

    def open(self, request: Request) -> Call:
        """Check a request whose body is not read yet. Raises: Refusal."""
        options = self.options
        self.check_host(request.headers.get("host", ""), options)
        if request.method not in _METHODS:
            raise Refusal(501)
        path = request.path
        if options.path_prefix:
            if not path.startswith(options.path_prefix):
                raise not_found()
            path = path.removeprefix(options.path_prefix)
        found = self.dispatcher.find(path.removeprefix("/api/")) if path.startswith("/api/") else None
        if found is None:
            return Call(self, request, answer=self._page_or_redirect(request, path))
        route, names = found
        if request.method == "OPTIONS":
            return Call(self, request, answer=Answer(200, headers=(("allow", route.allow),)))
        action = route.action(request.method)
        if action is None:
            raise Refusal(405, headers=(("allow", route.allow),))
        if request.method not in _SAFE and not may_change(request, options):
            raise Refusal(403, "forbidden", "requests from pages elsewhere change nothing here")
        if not (action.may_stream and wants_stream(request)):
            _check_accept(request.headers.get("accept"))
        request = replace(request, names=names)
        if action.level is not Level.OPEN:
            request = replace(request, user=self._user_of(request))
            check_level(request, action.level, self.broker.virtual_hosts)
        return Call(self, request, action)

    def _user_of(self, request: Request) -> User:
        """The user from the header `authorization`, or else from a session. Raises: Refusal."""
        header = request.headers.get("authorization")
        if header is None:
            user = self.sessions.find(*session_headers(request), is_attended=is_attended(request))
            if user is not None:
                return self.logins.check_admitted(user, request.peer)
        return self.logins.log_in(header, request.peer, challenges="x-requested-with" not in request.headers)

    def _page_or_redirect(self, request: Request, path: str) -> Answer:
        """The answer to a path without a route. Raises: Refusal, if there is neither a page nor a redirect."""
        if request.method not in _SAFE:
            raise not_found()
        moved = MOVED.get(path)
        if moved is not None:
            return Answer(301, headers=(("location", self.options.path_prefix + moved),))
        return existing(self._pages.get(path, list(self.dispatcher)))

    def check_host(self, host: str, options: ConsoleOptions) -> None:
        """Refuse unknown names in the header `host`, since DNS rebinding can make any name resolve to this machine.

        Raises: Refusal.
        """
        name = host.strip().lower()
        name = name[1 : name.find("]")] if name.startswith("[") else name.partition(":")[0]
        if not name or name == "localhost" or name in options.hosts:
            return
        try:
            ipaddress.ip_address(name)
        except ValueError:
            raise Refusal(
                421, "misdirected", "unknown host: list it in [management] hosts, or use an address"
            ) from None

    def check_content_type(self, request: Request, action: Action) -> None:
        """Check that the action accepts the content type of a request. Raises: Refusal."""
        media = content_type(request)
        if media == "" or (action.content_types and media not in action.content_types):
            raise Refusal(415)

    # -- helpers for resources ----------------------------------------------------------------------------------------

    def ask(self, command: str, **arguments: Any) -> Any:
        """Run a read-only command. Arguments that are None are left out. Raises: CommandRefused."""
        return self.options.control.ask(command, _given(arguments))

    def run(self, command: str, **arguments: Any) -> Steps:
        """The steps of a command. Arguments that are None are left out. Raises: CommandRefused."""
        return self.options.control.steps(command, _given(arguments))

    def sampled_since(self, one: Any, ranges: Mapping[str, Range]) -> dict[str, Any]:
        """A field with the time of an object's oldest sample; {}: the request asks for no samples."""
        return {"leveret": {"sampled_since_ms": self.sampler.since_ms(one)}} if ranges else {}

    def find_node(self, name: str) -> str | None:
        """The node that a tool means by a name; None: there is none.

        A broker without a cluster accepts all names `rabbit@...`, because tools invent the part after the @.
        """
        options = self.options
        cluster = options.cluster()
        if cluster is not None:
            return name if name in cluster.by_name else None
        return options.node if name == options.node or name.startswith("rabbit@") else None

    def node(self, request: Request) -> str:
        """The node in the path. Raises: Refusal."""
        return existing(self.find_node(request.names["N"]))

    def vhost(self, request: Request) -> VirtualHost:
        """The virtual host in the path. Raises: Refusal."""
        return existing(self.broker.virtual_hosts.get(request.names["V"]))

    def vhost_to_change(self, request: Request) -> VirtualHost:
        """The virtual host in the path of a change, for which RabbitMQ has another 404. Raises: Refusal."""
        found = self.broker.virtual_hosts.get(request.names["V"])
        if found is None:
            raise Refusal(404, "not_found", "vhost_not_found")
        return found

    def queue(self, request: Request) -> Queue:
        """The queue in the path. Raises: Refusal."""
        return existing(self.vhost(request).queues.get(request.names["Q"]))

    def has(self, queue: Queue) -> bool:
        """Whether a queue that a list found is still there: it may have been deleted between two steps."""
        vhost = self.broker.virtual_hosts.get(queue.vhost_name)
        return vhost is not None and vhost.queues.get(queue.name) is queue

    def readable_queue(self, request: Request) -> Queue:
        """The queue in the path, if the user may read from it. Raises: Refusal."""
        queue = self.queue(request)
        check_access(request.user, "read", queue)
        return queue

    def queues_to_list(self, request: Request) -> list[Queue]:
        """The queues that a list shows: those of `vhosts_to_list`. `?queue=`: only names that contain this text,
        ignoring case.
        """
        part = request.query.get("queue", "").lower()
        queues = (queue for vhost in self.vhosts_to_list(request) for queue in vhost.queues.values())
        return [queue for queue in queues if part in queue.name.lower()]

    def vhosts_to_list(self, request: Request) -> list[VirtualHost]:
        """The virtual hosts whose objects a list shows: the one in the path or in the page's header `x-vhost`; without
        these, all that the user may see.
        """
        if "V" in request.names:
            return [self.vhost(request)]
        wanted = request.headers.get("x-vhost")
        return [
            vhost
            for vhost in self.broker.virtual_hosts.values()
            if may_see(request.user, vhost.name) and wanted in (None, "", vhost.name)
        ]


def session_headers(request: Request) -> tuple[str | None, str]:
    """The headers `cookie` and `host` of a request, for `Sessions.find`."""
    return request.headers.get("cookie"), request.headers.get("host", "")


def is_attended(request: Request) -> bool:
    """Whether a user is at the page that sends a request. A page that is only left open, or streams, does not count."""
    return request.headers.get("x-requested-with") != UNATTENDED and not wants_stream(request)


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in arguments.items() if value is not None}


def wants_stream(request: Request) -> bool:
    """Whether the client accepts a stream of events."""
    return EVENT_STREAM in request.headers.get("accept", "")


def _check_accept(header: str | None) -> None:
    """Check that a client takes JSON. Raises: Refusal: 400 for words that are no types, 406 for other types."""
    if header is None:
        return
    kinds = {part.partition(";")[0].strip().lower() for part in header.split(",")}
    if any(kind not in ("", "*") and not all(kind.partition("/")) for kind in kinds):
        raise Refusal(400)
    if not kinds & {"application/json", "*/*", "application/*"}:
        raise Refusal(406)
