"""The HTTP interface of a test server: `POST /v1/OPERATION` with a JSON object, answered with JSON.

200 `{"result": ...}`; 417 `{"error": text}` for a failed assertion; 400 for invalid arguments, 404 for an unknown
operation, 401 without the token, 403 for a Host header that is not this machine, 503 when the broker has stopped, and
the usual codes for requests that are not understood. `GET /v1/` lists the operations. It serves tests on one machine,
so the standard library's server with a thread for each connection is enough.
"""

import hmac
import json
import logging
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ...settings.json_values import value_of_json
from ...settings.loopback import is_loopback
from ..clock import ClockIsReal
from ..loop_thread import BrokerStopped
from ..options import reachable
from .operations import Operations, UnknownOperation
from .values import WrongValue

LOG = logging.getLogger(__name__)

PREFIX = "/v1/"
HELP = f"GET {PREFIX} lists the operations, POST {PREFIX}OPERATION calls one"
#: Maximum octets of a request's body.
BODY_MAX = 16 << 20
#: Seconds without input after which a client is dropped.
READ_TIMEOUT = 60


class ControlServer(ThreadingHTTPServer):
    """A server on `host`; `port` 0 takes a free one."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, operations: Operations, token: str, host: str = "127.0.0.1", port: int = 0) -> None:
        self.operations = operations
        self.token = token
        super().__init__((host, port), Handler)
        self.host = reachable(host)
        self.is_local = is_loopback(host)

    @property
    def url(self) -> str:
        """The URL for clients on this machine."""
        return f"http://{self.host}:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log only for debugging: a client may close its connection during a request."""
        LOG.debug("connection of %s ended", client_address, exc_info=True)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: ControlServer
    protocol_version = "HTTP/1.1"
    server_version = "leveret"
    sys_version = ""
    timeout = READ_TIMEOUT

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        if self.path.rstrip("/") != PREFIX.rstrip("/"):
            self._fail(HTTPStatus.NOT_FOUND, HELP)
            return
        self._answer(HTTPStatus.OK, {"result": self.server.operations.described()})

    def do_POST(self) -> None:
        if not self._is_allowed():
            return
        arguments = self._arguments()
        if arguments is None:
            return
        name = self.path.removeprefix(PREFIX)
        try:
            result = self.server.operations.call(name, arguments)
        except UnknownOperation as error:
            self._fail(HTTPStatus.NOT_FOUND, str(error))
        except AssertionError as error:
            self._fail(HTTPStatus.EXPECTATION_FAILED, str(error))
        except (WrongValue, TypeError, ValueError, LookupError, ClockIsReal, RecursionError, OverflowError) as error:
            self._fail(HTTPStatus.BAD_REQUEST, str(error) or type(error).__name__)
        except BrokerStopped as error:
            self._fail(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except Exception as error:  # our own errors must get an answer, too
            LOG.exception("operation %s failed", name)
            self._fail(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
        else:
            self._answer(HTTPStatus.OK, {"result": result})

    def _do_other(self) -> None:
        if self._is_allowed():
            self._fail(HTTPStatus.METHOD_NOT_ALLOWED, HELP)

    do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = do_PUT = _do_other

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer refusals of the standard library as JSON."""
        self.close_connection = True
        if self.request_version == "HTTP/0.9":  # the request line was invalid, and the answer would get no headers
            self.request_version = self.protocol_version
        self._fail(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def log_message(self, format: str, *args: Any) -> None:
        """Log requests only for debugging, because stderr has the output of the tests."""
        LOG.debug(format, *args)

    def _is_allowed(self) -> bool:
        """Check the token, and, on loopback, the Host header, so that web pages of other sites are refused."""
        host = self.headers.get("host", "").rpartition(":")[0] or self.headers.get("host", "")
        given = self.headers.get("authorization", "").removeprefix("Bearer ").encode("utf-8", "surrogateescape")
        if self.server.is_local and host not in ("127.0.0.1", "localhost", "[::1]", self.server.host):
            self._fail(HTTPStatus.FORBIDDEN, "the host of the request is not this machine")
        elif not hmac.compare_digest(given, self.server.token.encode()):
            what = (
                "the token is not that of this server" if given else "expected the header Authorization: Bearer TOKEN"
            )
            self._fail(HTTPStatus.UNAUTHORIZED, what)
        else:
            return True
        return False

    def _arguments(self) -> dict[str, Any] | None:
        """The arguments of a request; None: it was refused, or is cut short."""
        length = self.headers.get("content-length", "0")  # without the header there is no body: no arguments
        if "transfer-encoding" in self.headers or not length.isascii() or not length.isdigit():
            self._fail(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
            return None
        if len(length) > 12 or int(length) > BODY_MAX:
            self._fail(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {BODY_MAX} octets")
            return None
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return None
        try:
            arguments = value_of_json(body or b"{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            self._fail(HTTPStatus.BAD_REQUEST, "the body is no JSON object")
            return None
        return arguments

    def _fail(self, status: HTTPStatus, text: str) -> None:
        if status not in (HTTPStatus.BAD_REQUEST, HTTPStatus.EXPECTATION_FAILED, HTTPStatus.NOT_FOUND):
            self.close_connection = True  # an unread body may follow
        self._answer(status, {"error": text})

    def _answer(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, POST")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
