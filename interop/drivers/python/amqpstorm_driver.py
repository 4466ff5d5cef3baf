"""Driver for AMQPStorm, whose threads read and store what arrives; the driver polls it."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import amqpstorm.connection
from amqpstorm.exception import AMQPChannelError, AMQPConnectionError, AMQPError, AMQPMessageError
from channel_driver import DELIVERY, ChannelDriver
from driver import LOST, PROPERTIES, Closed, body_of, content, where

BY_SERVER = re.compile(r"was closed by remote server: (.*)", re.DOTALL)
RETURNED = re.compile(r"Message not delivered: (.*) \((\d+)\) to queue '(.*)' from exchange '(.*)'", re.DOTALL)
RENAMED = {"type": "message_type"}
POLL_SECONDS = 0.01


class AmqpStorm(ChannelDriver):
    client = "amqpstorm"
    octets = bytearray
    errors = (AMQPConnectionError, AMQPChannelError)
    exchange_flags = ("passive", "durable", "auto_delete")
    confirm_select_method = "confirm_deliveries"
    lacks = {
        "basic.recover-async": "no such call",
        "channel.flow": "no such call",
        "connection.update-secret": "no such call",
        "connection.open:frame_max": "taken from the broker",
        "exchange.declare:internal": "no such argument",
        "property:cluster_id": "refused: it must be empty",
        "recover": "does not connect again by itself",
        "scenario:recovery-lost-connection-is-noticed": "its reader's errors go where it never looks",
        "scenario:select-browse": "forgets a cancel right behind consume-ok: it notes the tag only then",
        "blocked=reason": "written to its log only",
        "return=body": "tells that something came back, not what",
        "return=properties": "tells that something came back, not what",
        "return=headers": "tells that something came back, not what",
        **{f"type:{letter}": "whole numbers are written as the smallest type that holds them" for letter in "BL"},
        "type:d": "written as f",
    }

    def __init__(self) -> None:
        super().__init__()
        self.reported: dict[tuple[str, str | None], list[Exception]] = {}  # errors of which there are events
        self.consumers: dict[tuple[str, str], set[str]] = {}
        self.blocked: set[str] = set()

    def connection_open(self, request: dict[str, Any]) -> None:
        tls: dict[str, Any] = {}
        if "ca" in request:
            context = ssl.create_default_context(cafile=request["ca"])
            tls = {"ssl": True, "ssl_options": {"context": context, "server_hostname": "localhost"}}
        try:
            connection = amqpstorm.connection.Connection(
                request["host"],
                request["user"],
                request["password"],
                request["port"],
                virtual_host=request["vhost"],
                heartbeat=request.get("heartbeat", 0),
                **tls,
            )
        except AMQPConnectionError as error:
            raise self.closed_by(error) from error
        self.connections[request["connection"]] = connection
        self.reported.pop((request["connection"], None), None)

    def reset(self, request: dict[str, Any]) -> None:
        super().reset(request)
        for known in (self.reported, self.consumers, self.blocked):
            known.clear()

    def connection_close(self, request: dict[str, Any]) -> None:
        self.done(request, self.connections.pop(request["connection"]).close)

    def channel_open(self, request: dict[str, Any]) -> None:
        place = where(request)
        self.channels[place] = self.done(request, self.connections[place[0]].channel)
        self.consumers[place] = set()
        self.reported.pop(place, None)

    def done(self, request: dict[str, Any], call: Callable[[], Any]) -> Any:
        place = where(request)
        if place in self.channels:
            self._look_at(*place, self.channels[place])  # a stored return would fail the next call
        return super().done(request, call)

    def method(self, request: dict[str, Any], name: str) -> Any:
        """The client's method: for `queue_bind`, `channel.queue.bind`."""
        group, _, verb = name.partition("_")
        channel = self.channel(request)
        return getattr(getattr(channel, group), verb) if group in CLASSES else getattr(channel, name)

    def field(self, ok: Any, name: str) -> Any:
        return ok[name]

    def basic_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        place = where(request)

        def delivered(message: Any) -> None:
            self.happened("delivery", *place, consumer_tag=message.method["consumer_tag"], **_message(message))

        tag = self.call(
            request,
            "basic_consume",
            delivered,
            request["queue"],
            request.get("consumer_tag", ""),
            exclusive=request.get("exclusive", False),
            no_ack=request.get("no_ack", False),
            arguments=self.table(request),
        )
        self.consumers[place].add(tag)
        return {"consumer_tag": tag}

    def basic_cancel(self, request: dict[str, Any]) -> None:
        super().basic_cancel(request)
        self.consumers[where(request)].discard(request["consumer_tag"])

    def basic_publish(self, request: dict[str, Any]) -> None:
        properties = {RENAMED.get(key, key): value for key, value in request.get("properties", {}).items()}
        if "timestamp" in properties:
            properties["timestamp"] = datetime.fromtimestamp(properties["timestamp"], UTC)
        if "headers" in request:
            properties["headers"] = self.table(request, "headers")
        flags = {key: request.get(key, False) for key in ("mandatory", "immediate")}
        text = request["routing_key"], request["exchange"]

        def publish() -> bool:
            try:
                return bool(self.channel(request).basic.publish(body_of(request), *text, properties, **flags))
            except AMQPMessageError as error:
                self._returned(where(request), error)
                return True  # it raises if a return came before the confirm, which is an ack then

        self.confirmed(request, self.done(request, publish))

    def basic_get(self, request: dict[str, Any]) -> dict[str, Any]:
        no_ack = request.get("no_ack", False)
        message = self.call(request, "basic_get", request["queue"], no_ack=no_ack, auto_decode=False)
        if message is None:
            return {"empty": True}
        return {"message_count": message.method["message_count"], **_message(message)}

    def pump(self, request: dict[str, Any], seconds: float) -> None:
        name, place = request["connection"], where(request)
        connection, channel = self.connections.get(name), self.channels.get(place)
        if connection is not None:
            self._look_at(name, None, connection)
            self._look_for_blocked(name, connection)
        if channel is not None:
            self._look_at(*place, channel)
            for tag in self.consumers[place] - set(channel.consumer_tags) if channel.is_open else ():
                self.consumers[place].discard(tag)
                self.happened("cancel", *place, consumer_tag=tag)
            if self.consumers[place] and channel.is_open:
                try:
                    channel.process_data_events(auto_decode=False)
                except AMQPError:
                    pass  # stored beside the channel, and reported by the next poll
        time.sleep(min(seconds, POLL_SECONDS))

    def _look_for_blocked(self, name: str, connection: Any) -> None:
        if connection.is_blocked != (name in self.blocked):
            self.blocked ^= {name}
            self.happened("blocked" if connection.is_blocked else "unblocked", name)

    def _look_at(self, connection: str, channel: str | None, noted: Any) -> None:
        """Make events of the errors that a connection or channel has stored."""
        reported = self.reported.setdefault((connection, channel), [])
        for error in list(noted.exceptions):
            if not any(error is one for one in reported):
                reported.append(error)
                if isinstance(error, AMQPMessageError) and channel is not None:
                    self._returned((connection, channel), error)
                    noted.exceptions.remove(error)
                else:
                    self.closed_event(connection, channel, self.closed_by(error))

    def _returned(self, place: tuple[str, str], error: AMQPMessageError) -> None:
        found = RETURNED.match(str(error))
        assert found is not None
        text, code, routing_key, exchange = found.groups()
        self.happened("return", *place, code=int(code), text=text, exchange=exchange, routing_key=routing_key)

    def closed_by(self, error: Exception) -> Closed:
        scope = "channel" if isinstance(error, AMQPChannelError) else "connection"
        found = BY_SERVER.search(str(error))
        if found:
            return Closed(scope, getattr(error, "error_code", 0) or 0, found[1])
        return Closed("client" if scope == "channel" else LOST, 0, str(error))


CLASSES = ("basic", "exchange", "queue", "tx")


def _message(message: Any) -> dict[str, Any]:
    properties = message.properties
    values = {name: properties.get(RENAMED.get(name, name)) for name in PROPERTIES}
    return {
        **{key: message.method[key] for key in DELIVERY},
        **content(message.body or b"", values, properties.get("headers")),
    }


if __name__ == "__main__":
    AmqpStorm().serve()
