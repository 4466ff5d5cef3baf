"""Driver for py-amqp, which is what kombu and Celery speak AMQP with."""

from __future__ import annotations

import time
from typing import Any

import amqp
import amqp.exceptions
from driver import BROKEN_OFF, PROPERTIES, Closed, Driver, body_of, content, table, where


class PyAmqp(Driver):
    client = "amqp"
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
        name = request["connection"]
        options: dict[str, Any] = {"frame_max": request["frame_max"]} if "frame_max" in request else {}
        if "ca" in request:
            options["ssl"] = {"ca_certs": request["ca"], "server_hostname": "localhost"}
        connection = amqp.Connection(
            f"{request['host']}:{request['port']}",
            userid=request["user"],
            password=request["password"],
            virtual_host=request["vhost"],
            heartbeat=request.get("heartbeat", 0),
            connect_timeout=20,
            **options,
        )
        try:
            connection.connect()
        except (amqp.exceptions.AMQPError, OSError) as error:
            closed = _closed(error)
            if closed.answer["scope"] == "channel":
                closed.answer["scope"] = "connection"  # there is no channel yet
            raise closed from error
        self.connections[name] = connection

    def connection_close(self, request: dict[str, Any]) -> None:
        self._done(request, self.connections.pop(request["connection"]).close)

    def channel_open(self, request: dict[str, Any]) -> None:
        place = where(request)
        channel = self._done(request, self.connections[place[0]].channel)
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
            **_content(message),
        )

    def channel_close(self, request: dict[str, Any]) -> None:
        self._call(request, "close")

    def channel_flow(self, request: dict[str, Any]) -> dict[str, Any]:
        self._call(request, "flow", request["active"])
        return {"active": request["active"]}

    def exchange_declare(self, request: dict[str, Any]) -> None:
        flags = {key: request.get(key, False) for key in ("passive", "durable", "auto_delete")}
        kind = request.get("type", "direct")
        self._call(request, "exchange_declare", request["exchange"], kind, arguments=table(request), **flags)

    def exchange_delete(self, request: dict[str, Any]) -> None:
        self._call(request, "exchange_delete", request["exchange"], request.get("if_unused", False))

    def exchange_bind(self, request: dict[str, Any]) -> None:
        self._binding(request, "exchange_bind", request["destination"], request["source"])

    def exchange_unbind(self, request: dict[str, Any]) -> None:
        self._binding(request, "exchange_unbind", request["destination"], request["source"])

    def queue_bind(self, request: dict[str, Any]) -> None:
        self._binding(request, "queue_bind", request["queue"], request["exchange"])

    def queue_unbind(self, request: dict[str, Any]) -> None:
        self._binding(request, "queue_unbind", request["queue"], request["exchange"])

    def _binding(self, request: dict[str, Any], verb: str, *ends: str) -> None:
        self._call(request, verb, *ends, request.get("routing_key", ""), arguments=table(request))

    def queue_declare(self, request: dict[str, Any]) -> dict[str, Any]:
        flags = {key: request.get(key, False) for key in ("passive", "durable", "exclusive", "auto_delete")}
        ok = self._call(request, "queue_declare", request["queue"], arguments=table(request), **flags)
        return {"queue": ok.queue, "message_count": ok.message_count, "consumer_count": ok.consumer_count}

    def queue_purge(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"message_count": self._call(request, "queue_purge", request["queue"])}

    def queue_delete(self, request: dict[str, Any]) -> dict[str, Any]:
        flags = {key: request.get(key, False) for key in ("if_unused", "if_empty")}
        return {"message_count": self._call(request, "queue_delete", request["queue"], **flags)}

    def basic_qos(self, request: dict[str, Any]) -> None:
        sizes = request.get("prefetch_size", 0), request.get("prefetch_count", 0)
        self._call(request, "basic_qos", *sizes, request.get("global", False))

    def basic_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        place = where(request)

        def delivered(message: Any) -> None:
            tag = message.delivery_info["consumer_tag"]
            self.happened("delivery", *place, consumer_tag=tag, **_message(message))

        tag = self._call(
            request,
            "basic_consume",
            request["queue"],
            request.get("consumer_tag", ""),
            no_ack=request.get("no_ack", False),
            exclusive=request.get("exclusive", False),
            callback=delivered,
            on_cancel=lambda tag: self.happened("cancel", *place, consumer_tag=tag),
            arguments=table(request),
        )
        return {"consumer_tag": getattr(tag, "consumer_tag", tag)}

    def basic_cancel(self, request: dict[str, Any]) -> None:
        self._call(request, "basic_cancel", request["consumer_tag"])

    def basic_publish(self, request: dict[str, Any]) -> None:
        properties = dict(request.get("properties", {}))
        if "headers" in request:
            properties["application_headers"] = table(request, "headers")
        message = amqp.Message(body_of(request), **properties)
        flags = {key: request.get(key, False) for key in ("mandatory", "immediate")}
        channel = self.channel(request)
        self._call(request, "_basic_publish", message, request["exchange"], request["routing_key"], **flags)
        if hasattr(channel, "interop_published"):
            channel.interop_published += 1
            channel.interop_waiting.add(channel.interop_published)

    def basic_get(self, request: dict[str, Any]) -> dict[str, Any]:
        message = self._call(request, "basic_get", request["queue"], no_ack=request.get("no_ack", False))
        if message is None:
            return {"empty": True}
        return {"message_count": message.delivery_info["message_count"], **_message(message)}

    def basic_ack(self, request: dict[str, Any]) -> None:
        self._call(request, "basic_ack", request["delivery_tag"], request.get("multiple", False))

    def basic_reject(self, request: dict[str, Any]) -> None:
        self._call(request, "basic_reject", request["delivery_tag"], request.get("requeue", True))

    def basic_recover(self, request: dict[str, Any]) -> None:
        self._call(request, "basic_recover", request.get("requeue", True))

    def confirm_select(self, request: dict[str, Any]) -> None:
        channel, place = self.channel(request), where(request)
        self._call(request, "confirm_select")
        channel.interop_published, channel.interop_waiting = 0, set()

        def told(ack: bool) -> Any:
            def tell(tag: int, multiple: bool, *more: Any) -> None:
                settled = {seq for seq in channel.interop_waiting if seq == tag or (multiple and seq < tag)}
                channel.interop_waiting -= settled
                for seq in sorted(settled):
                    self.happened("confirm", *place, seq=seq, ack=ack)

            return tell

        channel.events["basic_ack"].add(told(True))
        channel.events["basic_nack"].add(told(False))

    def tx_select(self, request: dict[str, Any]) -> None:
        self._call(request, "tx_select")

    def tx_commit(self, request: dict[str, Any]) -> None:
        self._call(request, "tx_commit")

    def tx_rollback(self, request: dict[str, Any]) -> None:
        self._call(request, "tx_rollback")

    def pump(self, request: dict[str, Any], seconds: float) -> None:
        connection = self.connections.get(request["connection"])
        if connection is None or not connection.connected:
            time.sleep(seconds)
            return
        try:
            if connection.heartbeat:
                connection.heartbeat_tick()
            connection.drain_events(timeout=seconds)
        except TimeoutError:
            pass
        except (amqp.exceptions.AMQPError, OSError) as error:
            self._note(request, _closed(error))

    def close_all(self) -> None:
        for connection in self.connections.values():
            try:
                connection.close()
            except Exception:
                pass

    def _call(self, request: dict[str, Any], verb: str, *arguments: Any, **options: Any) -> Any:
        return self._done(request, lambda: getattr(self.channel(request), verb)(*arguments, **options))

    def _done(self, request: dict[str, Any], call: Any) -> Any:
        try:
            return call()
        except (amqp.exceptions.AMQPError, OSError) as error:
            closed = _closed(error)
            self._note(request, closed)
            raise closed from error

    def _note(self, request: dict[str, Any], closed: Closed) -> None:
        scope = closed.answer["scope"]
        if scope != "client":
            channel = request["channel"] if scope == "channel" else None
            self.happened("closed", request["connection"], channel, **closed.answer)


def _closed(error: Exception) -> Closed:
    code = getattr(error, "reply_code", 0) or 0
    if not code:
        return Closed(BROKEN_OFF, 0, repr(error))
    is_connection = isinstance(error, amqp.exceptions.ConnectionError) or code in (320, 402) or code >= 500
    return Closed("connection" if is_connection else "channel", code, error.reply_text)  # type: ignore[attr-defined]


def _content(message: Any) -> dict[str, Any]:
    said = {name: message.properties.get(name) for name in PROPERTIES}
    body = message.body if isinstance(message.body, bytes) else message.body.encode()
    return content(body, said, message.properties.get("application_headers"))


def _message(message: Any) -> dict[str, Any]:
    told = {key: message.delivery_info[key] for key in ("delivery_tag", "redelivered", "exchange", "routing_key")}
    return {**told, **_content(message)}


if __name__ == "__main__":
    PyAmqp().serve()
