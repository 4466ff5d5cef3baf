"""Driver for pika: its blocking adapter, as most programs use it."""

from __future__ import annotations

import re
import ssl
import time
from typing import Any

import pika
import pika.exceptions
from driver import BROKEN_OFF, PROPERTIES, Closed, Driver, body_of, content, table, where
from pika.adapters.blocking_connection import BlockingChannel

LOST = (
    pika.exceptions.StreamLostError,
    pika.exceptions.AMQPHeartbeatTimeout,
    pika.exceptions.IncompatibleProtocolError,
    pika.exceptions.ConnectionOpenAborted,
)
CODE_AND_TEXT = re.compile(r"\(?(\d{3})[,)] ?['\"]?(.*?)['\"]?\)?$", re.DOTALL)


class Pika(Driver):
    client = "pika"
    lacks = {
        "basic.recover-async": "no such call",
        "basic.publish:immediate": "no such argument",
        "recover": "does not connect again by itself",
        "scenario:consume-tag-used-twice": "refused by the client itself",
        **{f"type:{letter}": "not written" for letter in "bBsuiLfd"},
    }

    def connection_open(self, request: dict[str, Any]) -> None:
        name = request["connection"]
        options: dict[str, Any] = {
            key: request[key] for key in ("heartbeat", "frame_max", "channel_max") if key in request
        }
        if "ca" in request:
            options["ssl_options"] = pika.SSLOptions(ssl.create_default_context(cafile=request["ca"]), "localhost")
        parameters = pika.ConnectionParameters(
            request["host"],
            request["port"],
            request["vhost"],
            pika.PlainCredentials(request["user"], request["password"]),
            socket_timeout=30,
            **options,
        )
        try:
            connection = pika.BlockingConnection(parameters)
        except pika.exceptions.AMQPConnectionError as error:
            raise _closed(error) from error
        self.connections[name] = connection
        # The blocking adapter tells of a close only by its next call; what is below it tells at once.
        connection._impl.add_on_close_callback(lambda _, reason: self._closed(name, None, reason))
        connection.add_on_connection_blocked_callback(
            lambda _, method: self.happened("blocked", name, reason=method.method.reason)
        )
        connection.add_on_connection_unblocked_callback(lambda *_: self.happened("unblocked", name))

    def connection_close(self, request: dict[str, Any]) -> None:
        self._done(request, lambda: self.connections.pop(request["connection"]).close())

    def connection_update_secret(self, request: dict[str, Any]) -> None:
        connection = self.connections[request["connection"]]
        self._done(request, lambda: connection.update_secret(request["secret"], request["reason"]))

    def channel_open(self, request: dict[str, Any]) -> None:
        place = where(request)
        channel: BlockingChannel = self._done(request, self.connections[place[0]].channel)
        self.channels[place] = channel
        channel._impl.add_on_close_callback(lambda _, reason: self._closed(*place, reason))
        channel.add_on_cancel_callback(
            lambda frame: self.happened("cancel", *place, consumer_tag=frame.method.consumer_tag)
        )
        channel.add_on_return_callback(
            lambda _, method, properties, body: self.happened("return", *place, **_returned(method, properties, body))
        )

    def channel_close(self, request: dict[str, Any]) -> None:
        self._done(request, self.channel(request).close)

    def channel_flow(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"active": self._done(request, lambda: self.channel(request).flow(request["active"]))}

    def exchange_declare(self, request: dict[str, Any]) -> None:
        keys = {"type": "exchange_type", **{key: key for key in ("passive", "durable", "auto_delete", "internal")}}
        options = {ours: request[key] for key, ours in keys.items() if key in request}
        self._call(request, "exchange_declare", request["exchange"], arguments=table(request), **options)

    def exchange_delete(self, request: dict[str, Any]) -> None:
        self._call(request, "exchange_delete", request["exchange"], if_unused=request.get("if_unused", False))

    def exchange_bind(self, request: dict[str, Any]) -> None:
        self._exchange_binding(request, "exchange_bind")

    def exchange_unbind(self, request: dict[str, Any]) -> None:
        self._exchange_binding(request, "exchange_unbind")

    def _exchange_binding(self, request: dict[str, Any], verb: str) -> None:
        ends = request["destination"], request["source"]
        self._call(request, verb, *ends, routing_key=request.get("routing_key", ""), arguments=table(request))

    def queue_declare(self, request: dict[str, Any]) -> dict[str, Any]:
        options = {key: request[key] for key in ("passive", "durable", "exclusive", "auto_delete") if key in request}
        ok = self._call(request, "queue_declare", request["queue"], arguments=table(request), **options).method
        return {"queue": ok.queue, "message_count": ok.message_count, "consumer_count": ok.consumer_count}

    def queue_bind(self, request: dict[str, Any]) -> None:
        self._queue_binding(request, "queue_bind")

    def queue_unbind(self, request: dict[str, Any]) -> None:
        self._queue_binding(request, "queue_unbind")

    def _queue_binding(self, request: dict[str, Any], verb: str) -> None:
        ends = request["queue"], request["exchange"]
        self._call(request, verb, *ends, routing_key=request.get("routing_key", ""), arguments=table(request))

    def queue_purge(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"message_count": self._call(request, "queue_purge", request["queue"]).method.message_count}

    def queue_delete(self, request: dict[str, Any]) -> dict[str, Any]:
        flags = {key: request[key] for key in ("if_unused", "if_empty") if key in request}
        return {"message_count": self._call(request, "queue_delete", request["queue"], **flags).method.message_count}

    def basic_qos(self, request: dict[str, Any]) -> None:
        limits = {
            "prefetch_size": request.get("prefetch_size", 0),
            "prefetch_count": request.get("prefetch_count", 0),
            "global_qos": request.get("global", False),
        }
        self._call(request, "basic_qos", **limits)

    def basic_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        place = where(request)

        def delivered(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self.happened("delivery", *place, consumer_tag=method.consumer_tag, **_message(method, properties, body))

        tag = self._call(
            request,
            "basic_consume",
            request["queue"],
            delivered,
            auto_ack=request.get("no_ack", False),
            exclusive=request.get("exclusive", False),
            consumer_tag=request.get("consumer_tag") or None,
            arguments=table(request),
        )
        return {"consumer_tag": tag}

    def basic_cancel(self, request: dict[str, Any]) -> None:
        self._call(request, "basic_cancel", request["consumer_tag"])

    def basic_publish(self, request: dict[str, Any]) -> None:
        channel, place = self.channel(request), where(request)
        headers = table(request, "headers") if "headers" in request else None
        properties = pika.BasicProperties(headers=headers, **request.get("properties", {}))
        confirmed = getattr(channel, "interop_published", None)
        outcome = True

        def publish() -> None:
            nonlocal outcome
            try:
                channel.basic_publish(
                    request["exchange"],
                    request["routing_key"],
                    body_of(request),
                    properties,
                    request.get("mandatory", False),
                )
            except pika.exceptions.UnroutableError as error:
                for one in error.messages:
                    self.happened("return", *place, **_returned(one.method, one.properties, one.body))
            except pika.exceptions.NackError:
                outcome = False

        self._done(request, publish)
        if confirmed is not None:
            channel.interop_published += 1
            self.happened("confirm", *place, seq=channel.interop_published, ack=outcome)

    def basic_get(self, request: dict[str, Any]) -> dict[str, Any]:
        method, properties, body = self._call(
            request, "basic_get", request["queue"], auto_ack=request.get("no_ack", False)
        )
        if method is None:
            return {"empty": True}
        return {"message_count": method.message_count, **_message(method, properties, body)}

    def basic_ack(self, request: dict[str, Any]) -> None:
        self._call(request, "basic_ack", request["delivery_tag"], request.get("multiple", False))

    def basic_nack(self, request: dict[str, Any]) -> None:
        flags = request.get("multiple", False), request.get("requeue", True)
        self._call(request, "basic_nack", request["delivery_tag"], *flags)

    def basic_reject(self, request: dict[str, Any]) -> None:
        self._call(request, "basic_reject", request["delivery_tag"], request.get("requeue", True))

    def basic_recover(self, request: dict[str, Any]) -> None:
        self._call(request, "basic_recover", request.get("requeue", True))

    def confirm_select(self, request: dict[str, Any]) -> None:
        self._call(request, "confirm_delivery")
        self.channel(request).interop_published = 0

    def tx_select(self, request: dict[str, Any]) -> None:
        self._call(request, "tx_select")

    def tx_commit(self, request: dict[str, Any]) -> None:
        self._call(request, "tx_commit")

    def tx_rollback(self, request: dict[str, Any]) -> None:
        self._call(request, "tx_rollback")

    def pump(self, request: dict[str, Any], seconds: float) -> None:
        connection = self.connections.get(request["connection"])
        if connection is None or not connection.is_open:
            time.sleep(seconds)
            return
        try:
            connection.process_data_events(seconds)
        except pika.exceptions.AMQPError:
            pass  # `_closed` was told

    def close_all(self) -> None:
        for connection in self.connections.values():
            try:
                if connection.is_open:
                    connection.close()
            except Exception:
                pass

    def _call(self, request: dict[str, Any], verb: str, *arguments: Any, **options: Any) -> Any:
        return self._done(request, lambda: getattr(self.channel(request), verb)(*arguments, **options))

    def _done(self, request: dict[str, Any], call: Any) -> Any:
        try:
            return call()
        except pika.exceptions.AMQPError as error:
            raise _closed(error) from error

    def _closed(self, connection: str, channel: str | None, reason: Any) -> None:
        """A channel or connection was closed, by whomever; closes of our own and of the connection are not told."""
        answer = _closed(reason).answer
        if answer["scope"] == "channel" if channel else answer["scope"] in ("connection", BROKEN_OFF):
            self.happened("closed", connection, channel, **answer)


def _closed(error: Exception) -> Closed:
    if isinstance(error, pika.exceptions.ChannelClosedByBroker):
        return Closed("channel", error.reply_code, error.reply_text)
    if isinstance(error, pika.exceptions.ConnectionClosedByBroker):
        return Closed("connection", error.reply_code, error.reply_text)
    if isinstance(error, pika.exceptions.ProbableAccessDeniedError | pika.exceptions.ProbableAuthenticationError):
        found = CODE_AND_TEXT.search(
            str(error.args[0]) if len(error.args) == 1 else f"({error.args[0]}) {error.args[1]}"
        )
        if found:
            return Closed("connection", int(found[1]), found[2])
    if isinstance(error, LOST):
        return Closed(BROKEN_OFF, 0, repr(error))
    return Closed("client", 0, repr(error))


def _message(method: Any, properties: pika.BasicProperties, body: bytes) -> dict[str, Any]:
    said = {name: getattr(properties, name) for name in PROPERTIES}
    return {
        "delivery_tag": method.delivery_tag,
        "redelivered": method.redelivered,
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        **content(body, said, properties.headers),
    }


def _returned(method: Any, properties: pika.BasicProperties, body: bytes) -> dict[str, Any]:
    said = {name: getattr(properties, name) for name in PROPERTIES}
    return {
        "code": method.reply_code,
        "text": method.reply_text,
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        **content(body, said, properties.headers),
    }


if __name__ == "__main__":
    Pika().serve()
