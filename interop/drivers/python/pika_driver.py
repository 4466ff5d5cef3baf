"""Driver for pika's blocking adapter, which most programs use."""

from __future__ import annotations

import re
import ssl
import time
from typing import Any

import pika
import pika.exceptions
from channel_driver import DELIVERY, RETURN, ChannelDriver, of_attributes
from driver import LOST, UNANNOUNCED, Closed, body_of, where
from pika.adapters.blocking_connection import BlockingChannel

LOST_ERRORS = (
    pika.exceptions.StreamLostError,
    pika.exceptions.AMQPHeartbeatTimeout,
    pika.exceptions.IncompatibleProtocolError,
    pika.exceptions.ConnectionOpenAborted,
)
CODE_AND_TEXT = re.compile(r"\(?(\d{3})[,)] ?['\"]?(.*?)['\"]?\)?$", re.DOTALL)


class Pika(ChannelDriver):
    client = "pika"
    errors = (pika.exceptions.AMQPError,)
    qos_global = "global_qos"
    lacks = {
        "basic.recover-async": "no such call",
        "basic.publish:immediate": "no such argument",
        "basic.publish:in_background": "on channels with confirms it waits for each",
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
        if request.get("unannounced"):
            options["client_properties"] = UNANNOUNCED
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
            raise self.closed_by(error) from error
        self.connections[name] = connection
        # The blocking adapter reports a close only by its next call, the connection inside of it at once.
        connection._impl.add_on_close_callback(lambda _, reason: self.closed_event(name, None, self.closed_by(reason)))
        connection.add_on_connection_blocked_callback(
            lambda _, method: self.happened("blocked", name, reason=method.method.reason)
        )
        connection.add_on_connection_unblocked_callback(lambda *_: self.happened("unblocked", name))

    def connection_close(self, request: dict[str, Any]) -> None:
        self.done(request, lambda: self.connections.pop(request["connection"]).close())

    def connection_update_secret(self, request: dict[str, Any]) -> None:
        connection = self.connections[request["connection"]]
        self.done(request, lambda: connection.update_secret(request["secret"], request["reason"]))

    def channel_open(self, request: dict[str, Any]) -> None:
        place = where(request)
        channel: BlockingChannel = self.done(request, self.connections[place[0]].channel)
        self.channels[place] = channel
        channel._impl.add_on_close_callback(lambda _, reason: self.closed_event(*place, self.closed_by(reason)))
        channel.add_on_cancel_callback(
            lambda frame: self.happened("cancel", *place, consumer_tag=frame.method.consumer_tag)
        )
        channel.add_on_return_callback(
            lambda _, method, properties, body: self.happened("return", *place, **_returned(method, properties, body))
        )

    def channel_flow(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"active": self.done(request, lambda: self.channel(request).flow(request["active"]))}

    def field(self, ok: Any, name: str) -> Any:
        return getattr(ok.method, name)

    def basic_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        place = where(request)

        def delivered(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self.happened("delivery", *place, consumer_tag=method.consumer_tag, **_message(method, properties, body))

        tag = self.call(
            request,
            "basic_consume",
            request["queue"],
            delivered,
            auto_ack=request.get("no_ack", False),
            exclusive=request.get("exclusive", False),
            consumer_tag=request.get("consumer_tag") or None,
            arguments=self.table(request),
        )
        return {"consumer_tag": tag}

    def basic_publish(self, request: dict[str, Any]) -> None:
        channel = self.channel(request)
        headers = self.table(request, "headers") if "headers" in request else None
        properties = pika.BasicProperties(headers=headers, **request.get("properties", {}))
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
            except pika.exceptions.UnroutableError:
                pass  # the callback is called, too
            except pika.exceptions.NackError:
                outcome = False

        self.done(request, publish)
        self.confirmed(request, outcome)

    def basic_get(self, request: dict[str, Any]) -> dict[str, Any]:
        method, properties, body = self.call(
            request, "basic_get", request["queue"], auto_ack=request.get("no_ack", False)
        )
        if method is None:
            return {"empty": True}
        return {"message_count": method.message_count, **_message(method, properties, body)}

    def pump(self, request: dict[str, Any], seconds: float) -> None:
        connection = self.connections.get(request["connection"])
        if connection is None or not connection.is_open:
            time.sleep(seconds)
            return
        try:
            connection.process_data_events(seconds)
        except pika.exceptions.AMQPError:
            pass  # the callback was called

    def closed_by(self, error: Exception) -> Closed:
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
        if isinstance(error, LOST_ERRORS):
            return Closed(LOST, 0, repr(error))
        return Closed("client", 0, repr(error))

    def close_connection(self, connection: Any) -> None:
        if connection.is_open:
            connection.close()


def _message(method: Any, properties: pika.BasicProperties, body: bytes) -> dict[str, Any]:
    return of_attributes(method, DELIVERY, properties, properties.headers, body)


def _returned(method: Any, properties: pika.BasicProperties, body: bytes) -> dict[str, Any]:
    returned = of_attributes(method, RETURN, properties, properties.headers, body)
    return {"code": method.reply_code, "text": method.reply_text, **returned}


if __name__ == "__main__":
    Pika().serve()
