"""A client of the control table: just enough AMQP to send one request and wait for its answer.

Blocking, on a bare socket or TLS over it, with our own codec: the command line needs no client library.
"""

import json
import socket
import ssl
from typing import Any
from urllib.parse import unquote, urlsplit

from pamqp import commands

from .amqp_frontend.codec import METHODS, Method, decode_method, encode_method
from .amqp_frontend.wire import (
    BODY,
    FRAME_HEAD,
    FRAME_OVERHEAD,
    HEADER,
    METHOD,
    PROTOCOL_HEADER,
    content_frames,
)
from .control import EXCHANGE
from .engine.content import REPLY_TO_ME, encode_header
from .engine.field_table import Field

DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/"
_FRAME_MAX = 131072
_PORTS = {"amqp": 5672, "amqps": 5671}


class ControlFailed(Exception):
    """No answer, or an answer that says no; the message is for the operator."""


def tls_context(ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """What amqps:// connects with: whom to believe (this machine's authorities by default), and who we are.

    Raises: ControlFailed.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl's are some as well
        raise ControlFailed(f"--ca, --certificate, --key: {error.strerror or error}") from None
    return context


def request(
    url: str,
    command: str,
    arguments: dict[str, Any],
    *,
    timeout_s: float = 10.0,
    context: ssl.SSLContext | None = None,
) -> Any:
    """The result of one command of the broker at `url`. Raises: ControlFailed."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        raise ControlFailed(f"{url!r} is not a URL like {DEFAULT_URL}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ControlFailed(f"{url!r} is not a URL like {DEFAULT_URL}")
    user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
    vhost = unquote(parts.path.removeprefix("/")) or "/"
    try:
        with socket.create_connection((parts.hostname, port), timeout=timeout_s) as sock:
            if parts.scheme == "amqps":
                context = context or tls_context(None, None, None)
                with context.wrap_socket(sock, server_hostname=parts.hostname) as secured:
                    return _Exchange(secured).run(user, password, vhost, command, arguments)
            return _Exchange(sock).run(user, password, vhost, command, arguments)
    except ssl.SSLCertVerificationError as error:
        raise ControlFailed(f"{parts.hostname}:{port} is not believed: {error.verify_message} (--ca FILE)") from None
    except TimeoutError:
        raise ControlFailed(f"{parts.hostname}:{port} does not answer") from None
    except OSError as error:
        raise ControlFailed(f"cannot reach {parts.hostname}:{port}: {error.strerror or error}") from None


class _Exchange:
    """One connection, used for one request."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._received = b""

    def run(self, user: str, password: str, vhost: str, command: str, arguments: dict[str, Any]) -> Any:
        self._socket.sendall(PROTOCOL_HEADER)
        self._expect(commands.Connection.Start)
        properties = {
            "product": Field("S", b"leveret ctl"),
            "capabilities": Field("F", {"authentication_failure_close": Field("t", True)}),
        }
        response = b"\x00" + user.encode() + b"\x00" + password.encode()
        self._send(0, commands.Connection.StartOk, properties, "PLAIN", response, "en_US")
        self._expect(commands.Connection.Tune)
        self._send(0, commands.Connection.TuneOk, 1, _FRAME_MAX, 0)
        self._send(0, commands.Connection.Open, vhost, "", False)
        self._expect(commands.Connection.OpenOk)
        self._send(1, commands.Channel.Open, "")
        self._expect(commands.Channel.OpenOk)
        # Direct reply-to: no queue of ours stands among those that are listed.
        self._send(1, commands.Basic.Consume, 0, REPLY_TO_ME.decode(), "", False, True, False, False, {})
        self._expect(commands.Basic.ConsumeOk)
        body = json.dumps({"command": command, "arguments": arguments}).encode()
        header = encode_header(len(body), {"reply_to": REPLY_TO_ME})
        self._send(1, commands.Basic.Publish, 0, EXCHANGE, "", False, False)
        self._socket.sendall(content_frames(1, header, body, _FRAME_MAX))
        self._expect(commands.Basic.Deliver)
        answer = json.loads(self._content())
        self._send(0, commands.Connection.Close, 200, "done", 0, 0)
        if not answer["ok"]:
            raise ControlFailed(answer["error"])
        return answer["result"]

    def _send(self, channel: int, method: type[Method], *values: object) -> None:
        self._socket.sendall(encode_method(channel, method, *values))

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
                raise ControlFailed(decoded.reply_text)
            if isinstance(decoded, wanted):
                return decoded

    def _content(self) -> bytes:
        kind, payload = self._frame()
        if kind != HEADER:
            raise ControlFailed("the broker sent no content")
        size = int.from_bytes(payload[4:12], "big")
        body = b""
        while len(body) < size:
            kind, payload = self._frame()
            if kind == BODY:
                body += payload
        return body

    def _frame(self) -> tuple[int, bytes]:
        head = self._read(7)
        if head.startswith(b"AMQP"):
            raise ControlFailed("the broker does not speak AMQP 0-9-1")
        kind, _, size = FRAME_HEAD.unpack(head)
        return kind, self._read(size + FRAME_OVERHEAD - 7)[:-1]

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            data = self._socket.recv(65536)
            if not data:
                raise ControlFailed("the broker closed the connection; wrong user or password?")
            self._received += data
        taken, self._received = self._received[:size], self._received[size:]
        return taken
