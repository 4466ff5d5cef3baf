"""A client of the control table: an AMQP client that sends one request and waits for its answer.

It blocks on a plain or TLS socket, and uses the frontend's codec, so that the command line needs no client library.
"""

import json
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from pamqp import commands

from ..amqp_frontend.wire.codec import METHODS, Method, decode_method, encode_method
from ..amqp_frontend.wire.layout import (
    BODY,
    FRAME_HEAD,
    FRAME_OVERHEAD,
    HEADER,
    METHOD,
    PROTOCOL_HEADER,
    content_frames,
)
from ..amqp_frontend.wire.peer_errors import FrameTooLarge, PeerError
from ..engine import REPLY_TO_ME, Field, encode_header
from ..operator.control import EXCHANGE

DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/"
#: Time limits of a request in seconds; the second one is for `LONG_COMMANDS`.
TIMEOUT_S, LONG_TIMEOUT_S = 30.0, 600.0
LONG_COMMANDS = frozenset({"definitions", "diff"})
#: Maximum octets of an answer; a list of a million queues takes about half of them.
REPLY_SIZE_MAX = 256 << 20
#: Octets of the largest frame, unless the broker takes only smaller ones.
_FRAME_MAX = 131072
_PORTS = {"amqp": 5672, "amqps": 5671}


class ControlFailed(Exception):
    """There was no answer, or a refusal; the message is for the operator."""


class NotServed(ControlFailed):
    """The broker accepted the connection and sent no connection.start. `is_over`: it closed the connection."""

    def __init__(self, text: str, *, is_over: bool) -> None:
        super().__init__(text)
        self.is_over = is_over


def tls_context(ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """The TLS context of a client. `ca`: trusted authorities; None: this machine's. Raises: ControlFailed."""
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as error:  # includes SSLError
        raise ControlFailed(f"--ca, --certificate, --key: {error.strerror or error}") from None
    return context


def request(
    url: str,
    command: str,
    arguments: dict[str, Any],
    *,
    timeout_s: float | None = None,
    start_s: float | None = None,
    context: ssl.SSLContext | None = None,
) -> Any:
    """The result of one command of the broker at `url`.

    timeout_s: for the whole request, whatever the broker sends meanwhile; None: by command. start_s: for its
    connection.start. Raises: ControlFailed; with start_s also NotServed.
    """
    target = target_of(url)
    if timeout_s is None:
        timeout_s = LONG_TIMEOUT_S if command in LONG_COMMANDS else TIMEOUT_S
    deadline = time.monotonic() + timeout_s
    try:
        with _connected(target, deadline) as sock:
            if target.is_tls:
                context = context or tls_context(None, None, None)
                sock.settimeout(_left_s(deadline))
                with context.wrap_socket(sock, server_hostname=target.host) as secured:
                    return _Connection(secured, target, deadline, start_s).run(command, arguments)
            return _Connection(sock, target, deadline, start_s).run(command, arguments)
    except ssl.SSLCertVerificationError as error:
        raise ControlFailed(f"the certificate of {target} is not trusted: {error.verify_message} (--ca FILE)") from None
    except TimeoutError:
        raise ControlFailed(f"{target} did not answer within {timeout_s:g} s (--timeout SECONDS)") from None
    except OSError as error:
        raise ControlFailed(f"cannot reach {target}: {error.strerror or error}") from None
    except UnicodeError:
        raise ControlFailed(f"cannot reach {target}: this is not a name of a host") from None


def _connected(target: "Target", deadline: float) -> socket.socket:
    """A socket connected to the first address of the target that accepts. All share the time. Raises: OSError."""
    failure = OSError("the name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM):
        left_s = _left_s(deadline)
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:  # this machine does not have the family
            failure = error
            continue
        try:
            sock.settimeout(left_s)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


def _left_s(deadline: float) -> float:
    """The remaining time. Raises: TimeoutError: there is none."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


@dataclass(slots=True, frozen=True)
class Target:
    """The parts of a broker's URL."""

    host: str
    port: int
    is_tls: bool
    user: str
    password: str
    vhost: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def target_of(url: str) -> Target:
    """The parts of a URL. Raises: ControlFailed; its text leaves out the part of the URL that may hold a password."""
    try:
        parts = urlsplit(url)
        target = Target(
            parts.hostname or "",
            parts.port or _PORTS.get(parts.scheme, 0),
            parts.scheme == "amqps",
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
            unquote(parts.path.removeprefix("/")) or "/",
        )
        texts = (target.host, target.user, target.password, target.vhost)
        is_right = parts.scheme in _PORTS and all(0 < len(text.encode()) <= 255 for text in texts)
    except ValueError:
        is_right = False
    if not is_right:
        shown = url if "@" not in url else f"...@{url.rpartition('@')[2]}"
        raise ControlFailed(f"{shown!r} is not a URL like {DEFAULT_URL}")
    return target


class _Refused(Exception):
    """The broker closed the channel or the connection."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class _Connection:
    """A connection for one request."""

    def __init__(self, sock: socket.socket, target: Target, deadline: float, start_s: float | None) -> None:
        self._socket = sock
        self._target = target
        self._deadline = deadline  # of time.monotonic
        self._start_s = start_s
        self._received = bytearray()
        self._product = "something else"

    def run(self, command: str, arguments: dict[str, Any]) -> Any:
        try:
            return self._run(command, arguments)
        except (PeerError, ValueError, RecursionError):  # octets that are not AMQP, or an answer that is not JSON
            raise ControlFailed(f"{self._target} does not speak AMQP 0-9-1 as a broker does") from None
        except _Refused as refusal:
            raise ControlFailed(refusal.text) from None

    def _run(self, command: str, arguments: dict[str, Any]) -> Any:
        self._write(PROTOCOL_HEADER)
        start = self._expect(commands.Connection.Start) if self._start_s is None else self._expect_start(self._start_s)
        self._product = _product_of(start.server_properties)  # type: ignore[attr-defined]
        properties = {
            "product": Field("S", b"leveret ctl"),
            "connection_name": Field("S", b"leveret ctl"),
            "capabilities": Field("F", {"authentication_failure_close": Field("t", True)}),
        }
        target = self._target
        response = b"\x00" + target.user.encode() + b"\x00" + target.password.encode()
        self._send(0, commands.Connection.StartOk, properties, "PLAIN", response, "en_US")
        tune = self._expect(commands.Connection.Tune)
        frame_max = min(tune.frame_max or _FRAME_MAX, _FRAME_MAX)  # type: ignore[attr-defined]
        self._send(0, commands.Connection.TuneOk, 1, frame_max, 0)
        self._send(0, commands.Connection.Open, target.vhost, "", False)
        self._expect(commands.Connection.OpenOk)
        self._send(1, commands.Channel.Open, "")
        self._expect(commands.Channel.OpenOk)
        # Direct reply-to, so that lists of queues do not contain one of ours.
        self._send(1, commands.Basic.Consume, 0, REPLY_TO_ME.decode(), "", False, True, False, False, {})
        self._expect(commands.Basic.ConsumeOk)
        body = json.dumps({"command": command, "arguments": arguments}).encode()
        header = encode_header(len(body), {"reply_to": REPLY_TO_ME, "user_id": target.user.encode()})
        self._send(1, commands.Basic.Publish, 0, EXCHANGE, "", False, False)
        self._write(content_frames(1, header, body, frame_max))
        try:
            self._expect(commands.Basic.Deliver)
        except _Refused as refusal:
            raise ControlFailed(self._why_not(refusal)) from None
        answer = json.loads(self._content())
        self._send(0, commands.Connection.Close, 200, "done", 0, 0)
        if not isinstance(answer, dict):
            raise ValueError("an answer is an object")
        if not answer.get("ok"):
            raise ControlFailed(str(answer.get("error")))
        return answer.get("result")

    def _why_not(self, refusal: "_Refused") -> str:
        """The likely reason why the request was refused."""
        target = self._target
        if refusal.code == 404:
            return f"{target} is no Leveret ({self._product}): it has no exchange {EXCHANGE}"
        if refusal.code == 403:
            return f"user {target.user!r} is not an administrator at {target}"
        return refusal.text

    def _send(self, channel: int, method: type[Method], *values: object) -> None:
        self._write(encode_method(channel, method, *values))

    def _expect(self, wanted: type[Method]) -> Method:
        while True:
            kind, payload = self._frame()
            if kind != METHOD:
                continue
            method = METHODS.get(int.from_bytes(payload[:4], "big"))
            if method is None:
                raise ControlFailed("the broker sent a method that is not AMQP 0-9-1")
            decoded = decode_method(method, payload[4:])
            if isinstance(decoded, commands.Connection.Close | commands.Channel.Close):
                raise _Refused(decoded.reply_code or 0, decoded.reply_text or "")
            if isinstance(decoded, wanted):
                return decoded

    def _expect_start(self, start_s: float) -> Method:
        """Raises: NotServed."""
        deadline = self._deadline
        self._deadline = min(deadline, time.monotonic() + start_s)
        try:
            return self._expect(commands.Connection.Start)
        except TimeoutError:
            raise NotServed(f"{self._target} accepts connections and does not serve them", is_over=False) from None
        except _Refused as refusal:
            raise NotServed(refusal.text, is_over=True) from None
        finally:
            self._deadline = deadline

    def _content(self) -> bytes:
        kind, payload = self._frame()
        if kind != HEADER:
            raise ControlFailed("the broker sent no content")
        size = int.from_bytes(payload[4:12], "big")
        if size > REPLY_SIZE_MAX:
            raise ControlFailed(f"{self._target} has an answer of {size} octets; {REPLY_SIZE_MAX} is the most")
        body = bytearray()
        while len(body) < size:
            kind, payload = self._frame()
            if kind == BODY:
                body += payload
        return bytes(body)

    def _frame(self) -> tuple[int, bytes]:
        head = self._read(7)
        if head.startswith(b"AMQP"):
            raise ControlFailed("the broker does not speak AMQP 0-9-1")
        kind, _, size = FRAME_HEAD.unpack(head)
        if size > _FRAME_MAX:
            raise FrameTooLarge(type=kind, size=size, limit=_FRAME_MAX)
        return kind, self._read(size + FRAME_OVERHEAD - 7)[:-1]

    def _write(self, data: bytes) -> None:
        self._set_timeout()
        self._socket.sendall(data)

    def _set_timeout(self) -> None:
        """Give the next call of the socket the remaining time. Raises: TimeoutError."""
        self._socket.settimeout(_left_s(self._deadline))

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            self._set_timeout()
            data = self._socket.recv(65536)
            if not data:
                raise ControlFailed("the broker closed the connection; wrong user or password?")
            self._received += data
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


def _product_of(properties: dict[str, Field]) -> str:
    fields = (properties.get(name) for name in ("product", "version"))
    return " ".join(field.text for field in fields if field is not None and isinstance(field.value, bytes)) or "?"
