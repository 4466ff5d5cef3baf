"""etcd's JSON gateway over HTTP, by the standard library. Requests try the members in turn. All calls block.

A request that was sent completely and not answered is in doubt. A request that was not sent completely had no effect,
since a member acts on whole requests only. Why not the package etcd3gw: docs/decisions/0026-cluster.md.

A member that does not answer in time is passed by. Where all are slow, as on an overloaded machine or disk, the time
limit grows to twice the last wait: otherwise no request would ever be answered, and no node would lead.
"""

import base64
import http.client
import io
import json
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ..resolver import Resolver
from .errors import InDoubt, UnfitCoordinator, Unreachable

Json = dict[str, Any]
Answer = TypeVar("Answer")

#: gRPC's codes of errors that prove that nothing was done.
_INVALID, _NOT_FOUND, _DENIED, _EXHAUSTED, _PRECONDITION, _OUT_OF_RANGE, _UNAUTHENTICATED = 3, 5, 7, 8, 9, 11, 16
_SURELY_NOT_DONE = {_INVALID, _NOT_FOUND, _DENIED, _EXHAUSTED, _PRECONDITION, _OUT_OF_RANGE, _UNAUTHENTICATED}
#: Texts with which etcd asks for another login: the token expired, users were changed, authentication was turned on.
_LOGIN_AGAIN = ("invalid auth token", "revision of auth store is old", "user name is empty")
#: Maximum factor by which the time limit of an answer grows after one that was slow or did not come.
_PATIENCE_MAX = 4
#: Maximum octets of an answer. Answers to our requests are shorter.
_ANSWER_SIZE_MAX = 4 * 1024**2

#: The oldest version of each line without faults that matter here (docs/decisions/0026-cluster.md).
OLDEST = ((3, 4, 22), (3, 5, 6))


@dataclass(slots=True)
class EtcdAccess:
    """How to reach etcd. `endpoints`: URLs of its members. `tls`: for endpoints that begin with https; open connections
    keep the old context when it is replaced.
    """

    endpoints: tuple[str, ...]
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None
    connect_seconds: float = 0.5
    answer_seconds: float = 1.0
    resolver: Resolver = field(default_factory=Resolver, compare=False)


class Refused(Exception):
    """etcd refused the request. `code`: gRPC's; `text`: etcd's own words."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class _NotSent(Exception):
    """The member was not reached, or the request was not sent completely."""


class _NoAnswer(Exception):
    """The request was sent. No answer came, or none that says whether the request was done."""


class _DeadlineSocket(io.RawIOBase):
    """Reads an answer from a socket. The socket's timeout limits all reads of an answer together.

    goes_on: called when that time is over; if it returns True, the answer gets the same time again.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._raw = sock, sock.makefile("rb", buffering=0)
        self._seconds = sock.gettimeout() or 0.0
        self.goes_on: Callable[[], bool] = lambda: False
        self.restart_deadline()

    def restart_deadline(self) -> None:
        """Give the next answer the full time."""
        self._until_s = time.monotonic() + self._seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        while (left_s := self._until_s - time.monotonic()) <= 0 or not _is_readable(self._socket, left_s):
            if not self.goes_on():
                raise TimeoutError
            self.restart_deadline()
        self._socket.settimeout(left_s)  # of TLS, a part of a record may have come
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """An answer with one time limit for all its octets."""

    def __init__(self, sock: socket.socket, *arguments: Any, **more: Any) -> None:
        super().__init__(sock, *arguments, **more)
        self.fp.close()
        self._reader = _DeadlineSocket(sock)
        self.fp = io.BufferedReader(self._reader)

    def restart_deadline(self, goes_on: Callable[[], bool]) -> None:
        """Give the next part of a stream the full time. `goes_on`: see `_DeadlineSocket`."""
        self._reader.goes_on = goes_on
        self._reader.restart_deadline()


class Gateway:
    """Sends requests to etcd, over one connection at a time. For one thread; any thread may call `abort`."""

    def __init__(self, access: EtcdAccess, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.access = access
        self.last_sent_ns = 0  # a time before the last successful request was sent
        self._clock = clock
        self._member = 0  # index of the endpoint to try first
        self._connection: http.client.HTTPConnection | None = None
        self._token: str | None = None  # of the last login; "": etcd has no users; None: log in first
        self._waited_s = 0.0  # for the last answer, or in vain since then
        self._is_aborted = False

    def read(self, path: str, body: Json) -> Json:
        """Send a request that may be done twice. Returns the answer of the first member that gives one.

        Raises: Unreachable; Refused; UnfitCoordinator.
        """
        return self._ask(path, body, self.access.answer_seconds)

    def change(self, path: str, body: Json, answer_seconds: float | None = None) -> Json:
        """Send a request that must not be done twice: to no other member once a member has got it. Returns the answer.

        Raises: InDoubt; Unreachable; Refused (nothing was done); UnfitCoordinator.
        """
        return self._ask(path, body, answer_seconds or self.access.answer_seconds, is_change=True)

    def stream(self, path: str, body: Json, silence_seconds: float, goes_on: Callable[[], bool]) -> Iterator[Json]:
        """Send a request with many answers. Yields them until none comes for `silence_seconds` and `goes_on` is False.

        Raises: Unreachable: always at the end; Refused; UnfitCoordinator; whatever `goes_on` raises.
        """
        response = self._from_any_member(lambda: self._send(path, body, silence_seconds))
        response.restart_deadline(goes_on)
        try:
            while line := response.readline(_ANSWER_SIZE_MAX):
                answer = _decoded(line, response.status)
                if "error" in answer:
                    raise _refusal(response.status, answer)
                yield answer.get("result", answer)
                response.restart_deadline(goes_on)
            why = "the connection was closed"
        except (OSError, http.client.HTTPException, _NoAnswer) as error:
            why = _why(error)
        finally:
            self.close()
        where = self.access.endpoints[self._member]
        self._try_next_member()
        raise Unreachable(f"{where}: {why}")

    def at_member_of(self, other: "Gateway") -> bool:
        """Whether both speak to the same member. No other thread may be using `other`."""
        return self._member == other._member

    def turn_to(self, other: "Gateway") -> None:
        """Begin with the member of another connection."""
        if self._member != other._member:
            self.close()
            self._member = other._member

    def abort(self) -> None:
        """End the request that another thread has sent, and refuse all later ones."""
        self._is_aborted = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):  # not SSLSocket.shutdown, which forgets that the stream is encrypted
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection: the next request connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask(self, path: str, body: Json, answer_seconds: float, *, is_change: bool = False) -> Json:
        def ask_once() -> Json:
            asked_ns, since_s = self._clock(), time.monotonic()
            try:
                answer = self._answer(self._send(path, body, self._patient(answer_seconds)))
            except (_NotSent, _NoAnswer):
                self._waited_s = max(self._waited_s, time.monotonic() - since_s)
                raise
            self._waited_s = time.monotonic() - since_s
            self.last_sent_ns = asked_ns
            return answer

        return self._from_any_member(ask_once, is_change)

    def _from_any_member(self, ask_once: Callable[[], Answer], is_change: bool = False) -> Answer:
        """Try the members in turn, beginning with the one that answered last, or after one that failed."""
        reasons = []
        for _ in self.access.endpoints:
            where = self.access.endpoints[self._member]
            try:
                try:
                    return ask_once()
                except Refused as refused:
                    if not (self.access.user and refused.text.endswith(_LOGIN_AGAIN)):
                        raise
                    self._token = None
                    return ask_once()
            except Refused as refused:
                if refused.code in (_DENIED, _UNAUTHENTICATED) or refused.text.endswith(_LOGIN_AGAIN):
                    raise UnfitCoordinator(f"etcd at {where} refuses this user: {refused.text}") from refused
                raise
            except _NoAnswer as error:
                self._try_next_member()
                if is_change:
                    raise InDoubt(f"{where}: {error}") from error
                reasons.append(f"{where}: {error}")
            except _NotSent as error:
                self._try_next_member()
                reasons.append(f"{where}: {error}")
        raise Unreachable("; ".join(reasons))

    def _try_next_member(self) -> None:
        self.close()
        self._member = (self._member + 1) % len(self.access.endpoints)

    def _patient(self, seconds: float) -> float:
        """The time limit of the next answer: `seconds`, or more after slow or missing answers."""
        return min(max(seconds, 2 * self._waited_s), _PATIENCE_MAX * seconds)

    def _send(self, path: str, body: Json, answer_seconds: float) -> _Response:
        """Send the request, and wait until an answer begins."""
        connection = self._connected()
        headers = {"Content-Type": "application/json"}
        if self.access.user:
            if self._token is None:
                self._token = self._log_in(connection)
            if self._token:
                headers["Authorization"] = self._token
        return self._exchange(connection, "POST", path, json.dumps(body).encode(), headers, answer_seconds)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        answer_seconds: float,
    ) -> _Response:
        try:
            connection.sock.settimeout(self.access.connect_seconds)
            connection.request(method, path, body, headers)
            connection.sock.settimeout(answer_seconds)
        except (OSError, AttributeError, http.client.HTTPException) as error:  # AttributeError: closed meanwhile
            raise _NotSent(_why(error)) from error
        try:
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise _NoAnswer(_why(error)) from error
        assert isinstance(response, _Response)
        return response

    def _answer(self, response: _Response) -> Json:
        try:
            octets = response.read(_ANSWER_SIZE_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise _NoAnswer(_why(error)) from error
        if response.status == http.client.NOT_FOUND and not octets.startswith(b"{"):
            where = self.access.endpoints[self._member]
            raise UnfitCoordinator(f"etcd at {where} has no JSON gateway: it needs `enable-grpc-gateway: true`")
        answer = _decoded(octets, response.status)
        if response.status != http.client.OK:
            raise _refusal(response.status, answer)
        return answer

    def _connected(self) -> http.client.HTTPConnection:
        """A connection to the member whose turn it is. Raises: UnfitCoordinator if its version is refused.

        A connection that the member has closed is replaced first: a request on it would be in doubt.
        """
        if self._is_aborted:
            raise _NotSent("this node is shutting down")
        kept = self._connection
        if kept is not None:
            if kept.sock is not None and not _is_readable(kept.sock):
                return kept
            self.close()
        where = self.access.endpoints[self._member]
        url = urlsplit(where)
        host, port = url.hostname or "", url.port or 2379
        self._connection = connection = http.client.HTTPConnection(host, port)
        connection.response_class = _Response
        connection.auto_open = 0  # opening waits for the resolver without a time limit
        try:
            connection.sock = self._socket_to(host, port, is_tls=url.scheme == "https")
        except OSError as error:
            raise _NotSent(_why(error)) from error
        if self._is_aborted:  # before there was a socket to shut down
            raise _NotSent("this node is shutting down")
        try:
            seconds = self._patient(self.access.answer_seconds)
            response = self._exchange(connection, "GET", "/version", None, {}, seconds)
            version = str(self._answer(response).get("etcdserver", ""))
        except _NoAnswer as error:  # the request changes nothing
            raise _NotSent(str(error)) from error
        if why := why_refused(version):
            raise UnfitCoordinator(f"etcd at {where}: {why}")
        return connection

    def _socket_to(self, host: str, port: int, *, is_tls: bool) -> socket.socket:
        """Connect to one of a host's addresses. Raises: OSError."""
        fault = OSError(f"{host} has no address")
        seconds = self.access.connect_seconds
        for family, kind, protocol, _, target in self.access.resolver.resolve(host, port, seconds):
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as error:  # this system has no IPv6, but its names have
                fault = error
                continue
            try:
                sock.settimeout(seconds)
                sock.connect(target)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if not is_tls:
                    return sock
                context = self.access.tls or ssl.create_default_context()
                return context.wrap_socket(sock, server_hostname=host)
            except OSError as error:
                fault = error
                sock.close()
        raise fault

    def _log_in(self, connection: http.client.HTTPConnection) -> str:
        body = json.dumps({"name": self.access.user, "password": self.access.password}).encode()
        headers = {"Content-Type": "application/json"}
        try:
            seconds = self._patient(self.access.answer_seconds)
            response = self._exchange(connection, "POST", "/v3/auth/authenticate", body, headers, seconds)
            token = self._answer(response).get("token")
            if not isinstance(token, str) or not token.isascii() or not token.isprintable():
                raise _NotSent("a login that etcd answered with no token")
            return token
        except _NoAnswer as error:  # a login changes no key
            raise _NotSent(str(error)) from error
        except Refused as refused:
            if refused.code == _PRECONDITION:  # etcd has no users yet
                return ""
            where = self.access.endpoints[self._member]
            why = f"etcd at {where} refuses the login of {self.access.user}: {refused.text}"
            raise UnfitCoordinator(why) from refused


def why_refused(version: str) -> str:
    """Why this version of etcd is not used, in words; "": it is."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        return "this is not etcd, its /version has no etcdserver"
    numbers = tuple(map(int, found.groups()))
    if (3, 5, 0) <= numbers < (3, 5, 6):
        return f"version {version} can lose its consistency after a crash: 3.5.6 or newer is needed"
    if numbers < OLDEST[0]:
        return f"version {version} is too old: 3.4.22 or a newer 3.4, or 3.5.6 or newer, is needed"
    return ""


def _is_readable(stream: socket.socket, seconds: float = 0.0) -> bool:
    """Whether there is something to read now, or within some seconds."""
    if isinstance(stream, ssl.SSLSocket) and stream.pending():
        return True
    poll = select.poll()  # not select, which knows no descriptor above 1023
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def octets64(octets: bytes) -> str:
    """Octets in base64: the gateway's form of keys and values."""
    return base64.b64encode(octets).decode()


def _decoded(octets: bytes, status: int) -> Json:
    try:
        answer = json.loads(octets)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _NoAnswer(f"an answer that is not etcd's, with HTTP status {status}: {octets[:60]!r}")
    return answer


def _refusal(status: int, answer: Json) -> Exception:
    """The error of an answer: Refused if it proves that nothing was done, otherwise _NoAnswer."""
    error = answer.get("error", "")
    if isinstance(error, dict):  # of a stream
        code, text = error.get("grpc_code", 0), str(error.get("message", error))
    else:
        code, text = answer.get("code", 0), str(answer.get("message") or error or f"HTTP status {status}")
    if isinstance(code, int) and code in _SURELY_NOT_DONE:
        return Refused(code, text)
    return _NoAnswer(text)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
