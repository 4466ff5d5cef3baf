"""The base of the Python drivers: operations as lines of JSON on stdin, observations on stdout (see drivers/README.md).

A driver is a subclass with a method for each operation, `queue_declare(request)` for `queue.declare`. It returns the
observation as a table, or raises `Closed` if the broker refused the operation. Events are passed to `happened`.
"""

from __future__ import annotations

import base64
import json
import platform
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from typing import Any

PROPERTIES = (
    *("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to"),
    *("expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id"),
)
#: Properties of a client that does not announce connection.blocked.
UNANNOUNCED = {
    "capabilities": {
        "authentication_failure_close": True,
        "basic.nack": True,
        "connection.blocked": False,
        "consumer_cancel_notify": True,
        "publisher_confirms": True,
    }
}
LOST = "lost"  # the scope of a connection that was lost without a close


class Closed(Exception):
    """The broker closed a channel or connection, or the connection was lost. `scope`: channel, connection or lost."""

    def __init__(self, scope: str, code: int = 0, text: str = "") -> None:
        super().__init__(f"{scope} {code} {text}")
        self.answer = {"scope": scope, "code": code, "text": text}


class Driver:
    """Reads operations, calls the method of each, and answers with its result or exception."""

    client = ""
    #: What the client cannot do, by the keys of drivers/README.md -> why.
    lacks: Mapping[str, str] = {}
    reads_not: tuple[str, ...] = ()  # letters of table types that the client cannot read
    octets: type = bytes  # types that the client writes as octets (x) in tables

    def __init__(self) -> None:
        self.connections: dict[str, Any] = {}
        self.channels: dict[tuple[str, str], Any] = {}
        self.events: list[dict[str, Any]] = []

    def hello(self) -> dict[str, Any]:
        return {
            "client": self.client,
            "version": version(self.client),
            "language": f"Python {platform.python_version()}",
            "lacks": dict(self.lacks),
            "reads_not": list(self.reads_not),
        }

    def serve(self) -> None:
        """Answer operations until stdin ends."""
        print(json.dumps(self.hello()), flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            if request["do"] == "connection.open":
                self.events = [one for one in self.events if one["connection"] != request["connection"]]
            try:
                answer: dict[str, Any] = {
                    "ok": getattr(self, request["do"].replace(".", "_").replace("-", "_"))(request) or {}
                }
            except Closed as error:
                answer = {"error": error.answer}
            except Exception as error:
                answer = {"error": {"scope": "client", "code": 0, "text": f"{type(error).__name__}: {error}"}}
            print(json.dumps({"id": request["id"], **answer}), flush=True)

    def pump(self, request: dict[str, Any], seconds: float) -> None:
        """Let the client read for at most this time. Events are passed to `happened`."""
        raise NotImplementedError

    def close_all(self) -> None:
        """Close all connections, in whatever state they are."""
        raise NotImplementedError

    def happened(self, event: str, connection: str, channel: str | None = None, **what: Any) -> None:
        self.events.append({"event": event, "connection": connection, "channel": channel, **what})

    def wait(self, request: dict[str, Any]) -> dict[str, Any]:
        """The first `count` events of a kind, of a channel or of its connection; fewer if the time is over."""
        deadline = time.monotonic() + request["seconds"]
        while True:
            matching = [event for event in self.events if self._is_asked_for(event, request)][: request["count"]]
            left = deadline - time.monotonic()
            if len(matching) >= request["count"] or left <= 0:
                break
            self.pump(request, min(left, 0.05))
        for event in matching:
            self.events.remove(event)
        return {"events": matching}

    @staticmethod
    def _is_asked_for(event: dict[str, Any], request: dict[str, Any]) -> bool:
        return (
            event["event"] == request["event"]
            and event["connection"] == request["connection"]
            and event["channel"] in (None, request["channel"])
        )

    def reset(self, request: dict[str, Any]) -> None:
        self.close_all()
        self.connections.clear()
        self.channels.clear()
        self.events.clear()

    def channel(self, request: dict[str, Any]) -> Any:
        return self.channels[request["connection"], request["channel"]]

    def table(self, request: Mapping[str, Any], name: str = "arguments") -> dict[str, Any]:
        return {key: native(value, self.octets) for key, value in request.get(name, {}).items()}


def where(request: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the connection and channel of an operation."""
    return request["connection"], request["channel"]


def body_of(request: Mapping[str, Any]) -> bytes:
    return base64.b64decode(request["body"])


def native(value: Mapping[str, Any], octets: type = bytes) -> Any:
    """A typed value as Python clients expect it."""
    ((kind, inner),) = value.items()
    if kind == "F":
        return {key: native(item, octets) for key, item in inner.items()}
    if kind == "A":
        return [native(item, octets) for item in inner]
    if kind == "x":
        return octets(base64.b64decode(inner))
    if kind == "T":
        return datetime.fromtimestamp(inner, UTC)
    if kind == "D":
        scale, number = inner
        return Decimal(number).scaleb(-scale)
    return inner


def plain(value: Any) -> Any:
    """A value from a client, as it is answered."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return {"x": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return {"T": round(aware.timestamp())}
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        number = int("".join(map(str, digits))) * (-1 if sign else 1)
        return {"D": [-int(exponent), number]}
    return value


def content(body: bytes, properties: Mapping[str, Any], headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Body, properties and headers as they are answered, without properties that are not set."""
    answered = {name: plain(properties[name]) for name in PROPERTIES if properties.get(name) is not None}
    if isinstance(answered.get("timestamp"), dict):
        answered["timestamp"] = answered["timestamp"]["T"]
    return {
        "body": base64.b64encode(body).decode(),
        "properties": answered,
        "headers": plain(dict(headers)) if headers is not None else None,
    }
