"""Driver for py-amqp, which kombu and Celery use."""

from __future__ import annotations

import time
from typing import Any

import amqp
import amqp.exceptions
from channel_driver import DELIVERY, ChannelDriver
from driver import LOST, PROPERTIES, Closed, body_of, content, where


class PyAmqp(ChannelDriver):
    client = "amqp"
    errors: tuple[type[Exception], ...] = (amqp.exceptions.AMQPError, OSError)
    exchange_type = "type"
    exchange_flags = ("passive", "durable", "auto_delete")
    qos_global = "a_global"
    lacks = {
        "basic.recover-async": "no answer to wait for, and none is offered",
        "basic.nack": "no such call",
        "connection.update-secret": "no such call",
        "exchange.declare:internal": "no such argument",
        "recover": "kombu connects again, and its user declares again",
        "event:blocked": "told to a callback of the transport only",
        "type:l": "written as L, which half of the other clients cannot read",
        **{f"type:{letter}": "not written" for letter in "bBsuiLfx"},
    }

    def connection_open(self, request: dict[str, Any]) -> None:
        options = {"frame_max": request["frame_max"]} if "frame_max" in request else {}
        tls = {"ssl": {"ca_certs": request["ca"], "server_hostname": "localhost"}} if "ca" in request else {}
        connection = self.new_connection(request, tls, **options)
        try:
            connection.connect()
        except self.errors as error:
            closed = self.closed_by(error)
            if closed.answer["scope"] == "channel":
                closed.answer["scope"] = "connection"  # there is no channel yet
            raise closed from error
        self.connections[request["connection"]] = connection

    def new_connection(self, request: dict[str, Any], tls: dict[str, Any], **options: Any) -> Any:
        return amqp.Connection(
            f"{request['host']}:{request['port']}",
            userid=request["user"],
            password=request["password"],
            virtual_host=request["vhost"],
            heartbeat=request.get("heartbeat", 0),
            connect_timeout=20,
            **tls,
            **options,
        )

    def tick(self, connection: Any) -> None:
        """Send a heartbeat if it is time."""
        connection.heartbeat_tick()

    def connection_close(self, request: dict[str, Any]) -> None:
        self.done(request, self.connections.pop(request["connection"]).close)

    def channel_open(self, request: dict[str, Any]) -> None:
        place = where(request)
        channel = self.done(request, self.connections[place[0]].channel)
        self.channels[place] = channel
        channel.events["basic_return"].add(lambda *returned: self._returned(place, *returned))

    def _returned(self, place: tuple[str, str], error: Any, exchange: str, routing_key: str, message: Any) -> None:
        self.happened(
            "return",
            *place,
            code=error.reply_code,
            text=error.reply_text,
            exchange=exchange,
            routing_key=routing_key,
            **content_of(message),
        )

    def basic_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        place = where(request)

        def delivered(message: Any) -> None:
            tag = message.delivery_info["consumer_tag"]
            self.happened("delivery", *place, consumer_tag=tag, **message_of(message))

        tag = self.call(
            request,
            "basic_consume",
            request["queue"],
            request.get("consumer_tag", ""),
            no_ack=request.get("no_ack", False),
            exclusive=request.get("exclusive", False),
            callback=delivered,
            on_cancel=lambda tag: self.happened("cancel", *place, consumer_tag=tag),
            arguments=self.table(request),
        )
        return {"consumer_tag": getattr(tag, "consumer_tag", tag)}

    def basic_publish(self, request: dict[str, Any]) -> None:
        channel = self.channel(request)
        self.done(request, lambda: self.publish(request))
        if hasattr(channel, "interop_published"):
            channel.interop_published += 1
            channel.interop_waiting.add(channel.interop_published)

    def publish(self, request: dict[str, Any]) -> None:
        properties = dict(request.get("properties", {}))
        if "headers" in request:
            properties["application_headers"] = self.table(request, "headers")
        message = amqp.Message(body_of(request), **properties)
        flags = {key: request.get(key, False) for key in ("mandatory", "immediate")}
        self.channel(request)._basic_publish(message, request["exchange"], request["routing_key"], **flags)

    def basic_get(self, request: dict[str, Any]) -> dict[str, Any]:
        message = self.call(request, "basic_get", request["queue"], no_ack=request.get("no_ack", False))
        if message is None:
            return {"empty": True}
        return {"message_count": message.delivery_info["message_count"], **message_of(message)}

    def confirm_select(self, request: dict[str, Any]) -> None:
        channel, place = self.channel(request), where(request)
        self.call(request, "confirm_select")
        channel.interop_published, channel.interop_waiting = 0, set()

        def listener(ack: bool) -> Any:
            def tell(tag: int, multiple: bool, *more: Any) -> None:
                settled = {seq for seq in channel.interop_waiting if seq == tag or (multiple and seq < tag)}
                channel.interop_waiting -= settled
                for seq in sorted(settled):
                    self.happened("confirm", *place, seq=seq, ack=ack)

            return tell

        channel.events["basic_ack"].add(listener(True))
        channel.events["basic_nack"].add(listener(False))

    def pump(self, request: dict[str, Any], seconds: float) -> None:
        connection = self.connections.get(request["connection"])
        if connection is None or not connection.connected:
            time.sleep(seconds)
            return
        try:
            if connection.heartbeat:
                self.tick(connection)
            connection.drain_events(timeout=seconds)
        except TimeoutError:
            pass
        except self.errors as error:
            self.noticed(request, self.closed_by(error))

    def noticed(self, request: dict[str, Any], closed: Closed) -> None:
        channel = request["channel"] if closed.answer["scope"] == "channel" else None
        self.closed_event(request["connection"], channel, closed)

    def closed_by(self, error: Exception) -> Closed:
        code = getattr(error, "reply_code", 0) or 0
        if not code:
            return Closed(LOST, 0, repr(error))
        is_connection = isinstance(error, amqp.exceptions.ConnectionError) or code in (320, 402) or code >= 500
        text = error.reply_text  # type: ignore[attr-defined]
        return Closed("connection" if is_connection else "channel", code, text)

    def field(self, ok: Any, name: str) -> Any:
        return ok if isinstance(ok, int) else getattr(ok, name)  # a purge and a delete answer with the number alone


def content_of(message: Any) -> dict[str, Any]:
    values = {name: message.properties.get(name) for name in PROPERTIES}
    body = message.body if isinstance(message.body, bytes) else message.body.encode()
    return content(body, values, message.properties.get("application_headers"))


def message_of(message: Any) -> dict[str, Any]:
    return {**{key: message.delivery_info[key] for key in DELIVERY}, **content_of(message)}


if __name__ == "__main__":
    PyAmqp().serve()
