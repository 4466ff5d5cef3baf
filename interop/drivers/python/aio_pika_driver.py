"""Driver for aio-pika: its connections, exchanges and queues, and its underlying channel for all other methods."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import aio_pika
import aiormq
import aiormq.channel
import aiormq.connection
from channel_driver import DELIVERY, RETURN, ChannelDriver
from driver import LOST, PROPERTIES, UNANNOUNCED, Closed, body_of, content, where

CODES: dict[type[BaseException], tuple[str, int]] = {
    **{kind: ("channel", code) for code, kind in aiormq.channel.EXCEPTION_MAPPING.items()},
    **{kind: ("connection", code) for code, kind in aiormq.connection.EXCEPTION_MAPPING.items()},
    aiormq.exceptions.ProbableAuthenticationError: ("connection", 403),
}
RECONNECT_SECONDS = 0.2


class AioPika(ChannelDriver):
    client = "aio-pika"
    octets = bytearray
    errors = (aiormq.exceptions.AMQPError, aiormq.exceptions.ChannelInvalidStateError, ConnectionError)
    lacks = {
        "basic.recover-async": "waits for an answer that does not come",
        "connection.open:frame_max": "taken from the broker",
        "confirm=order": "tells of those that one ack confirms in any order",
        "event:blocked": "waits by itself until publishing is allowed again",
        "property:cluster_id": "no such argument",
        "return=code": "does not tell why something came back",
        "return=text": "does not tell why something came back",
        "scenario:connection-unknown-virtual-host": "does not tell why the connection was refused",
        "scenario:consume-tag-used-twice": "refused by the client itself",
        "scenario:publish-bad-expiration": "an expiration is a number of seconds",
        "scenario:publish-mandatory-returned": "hears of returned messages on channels with confirms only",
        "scenario:publish-mandatory-confirmed": "a publish that comes back ends with that",
        **{f"type:{letter}": "whole numbers are written as the smallest type that holds them" for letter in "BL"},
        "type:d": "written as f",
    }

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.queues: dict[tuple[str, str, str], Any] = {}
        self.tasks: set[asyncio.Task[bool]] = set()

    def reset(self, request: dict[str, Any]) -> None:
        super().reset(request)
        self.queues.clear()

    def done(self, request: dict[str, Any], call: Callable[[], Any]) -> Any:
        """Run the event loop until a call has its result."""

        async def made() -> Any:
            return await call()

        return super().done(request, lambda: self.loop.run_until_complete(made()))

    def connection_open(self, request: dict[str, Any]) -> None:
        name, recover = request["connection"], request.get("recover", False)
        tls = {"ssl": True, "ssl_context": ssl.create_default_context(cafile=request["ca"])} if "ca" in request else {}
        connect: Any = aio_pika.connect_robust if recover else aio_pika.connect
        options: dict[str, Any] = {"reconnect_interval": RECONNECT_SECONDS} if recover else {}
        if request.get("unannounced"):
            options["client_properties"] = UNANNOUNCED
        connection = self.done(
            request,
            lambda: connect(
                host="localhost" if tls else request["host"],  # the name in the certificate
                port=request["port"],
                login=request["user"],
                password=request["password"],
                virtualhost=request["vhost"],
                heartbeat=request.get("heartbeat", 0),
                **tls,
                **options,
            ),
        )
        self.connections[name] = connection
        self.queues = {key: queue for key, queue in self.queues.items() if key[0] != name}
        connection.close_callbacks.add(lambda _, error: self._closed(name, None, error))

    def connection_close(self, request: dict[str, Any]) -> None:
        self.done(request, self.connections.pop(request["connection"]).close)

    def connection_update_secret(self, request: dict[str, Any]) -> None:
        connection = self.connections[request["connection"]]
        self.done(request, lambda: connection.update_secret(request["secret"], reason=request["reason"]))

    def channel_open(self, request: dict[str, Any]) -> None:
        place = where(request)

        async def opened() -> Any:
            channel = self.connections[place[0]].channel(publisher_confirms=False)
            await channel.initialize()
            return channel

        channel = self.channels[place] = self.done(request, opened)
        channel.close_callbacks.add(lambda _, error: self._closed(*place, error))
        channel.return_callbacks.add(lambda _, message: self.happened("return", *place, **_returned(message)))
        below = channel.channel
        below.on_consumer_cancel_callbacks.add(
            lambda frame: self.happened("cancel", *place, consumer_tag=frame.consumer_tag)
        )

    def method(self, request: dict[str, Any], name: str) -> Callable[..., Any]:
        """A method of the underlying channel, which has AMQP's names, or of aio-pika's channel."""
        channel = self.channel(request)
        below = None if name == "close" else getattr(channel.channel, name, None)
        return below or getattr(channel, name)  # type: ignore[no-any-return]

    def queue(self, request: dict[str, Any]) -> Any:
        """The object by which the queue was declared, which recovery knows, or a new one."""
        known = self.queues.get((*where(request), request["queue"]))
        return known or self.call(request, "get_queue", request["queue"], ensure=False)

    def queue_declare(self, request: dict[str, Any]) -> dict[str, Any]:
        if not request["queue"] or request.get("passive"):
            return super().queue_declare(request)
        flags = {key: request.get(key, False) for key in ("durable", "exclusive", "auto_delete")}
        queue = self.call(request, "declare_queue", request["queue"], arguments=self.table(request), **flags)
        self.queues[(*where(request), request["queue"])] = queue
        ok = queue.declaration_result
        return {"queue": ok.queue, "message_count": ok.message_count, "consumer_count": ok.consumer_count}

    def basic_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        place = where(request)

        def delivered(message: Any) -> None:
            self.happened("delivery", *place, consumer_tag=message.consumer_tag, **_message(message))

        queue = self.queue(request)
        options = {"no_ack": request.get("no_ack", False), "exclusive": request.get("exclusive", False)}
        tag = self.done(
            request,
            lambda: queue.consume(
                delivered, consumer_tag=request.get("consumer_tag"), arguments=self.table(request), **options
            ),
        )
        return {"consumer_tag": tag}

    def basic_publish(self, request: dict[str, Any]) -> None:
        properties = dict(request.get("properties", {}))
        if "timestamp" in properties:
            properties["timestamp"] = datetime.fromtimestamp(properties["timestamp"], UTC)
        if "expiration" in properties:
            properties["expiration"] = int(properties["expiration"]) / 1000
        message = aio_pika.Message(body_of(request), headers=self.table(request, "headers"), **properties)
        flags = {key: request.get(key, False) for key in ("mandatory", "immediate")}

        async def publish() -> bool:
            channel = self.channel(request)
            name = request["exchange"]
            exchange = await channel.get_exchange(name, ensure=False) if name else channel.default_exchange
            try:
                await exchange.publish(message, request["routing_key"], **flags)
            except aiormq.exceptions.DeliveryError:
                return False
            return True

        if request.get("in_background"):
            task = self.loop.create_task(publish())
            self.tasks.add(task)
            self.published[where(request)] += 1
            task.add_done_callback(partial(self._published, request, self.published[where(request)]))
            self.loop.run_until_complete(asyncio.sleep(0))
        else:
            self.confirmed(request, self.done(request, publish))

    def _published(self, request: dict[str, Any], seq: int, task: asyncio.Task[bool]) -> None:
        """Report the confirm of a publish in the background. The end of its channel is another event."""
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is None:
            self.happened("confirm", *where(request), seq=seq, ack=task.result())

    def basic_get(self, request: dict[str, Any]) -> dict[str, Any]:
        queue = self.queue(request)
        message = self.done(request, lambda: queue.get(no_ack=request.get("no_ack", False), fail=False))
        if message is None:
            return {"empty": True}
        return {"message_count": message.message_count, **_message(message)}

    def confirm_select(self, request: dict[str, Any]) -> None:
        super().confirm_select(request)
        self.channel(request).channel.publisher_confirms = True  # like a channel that was opened with confirms

    def pump(self, request: dict[str, Any], seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def close_connection(self, connection: Any) -> None:
        self.loop.run_until_complete(connection.close())

    def _closed(self, connection: str, channel: str | None, error: BaseException | None) -> None:
        if error is not None:
            self.closed_event(connection, channel, self.closed_by(error))

    def closed_by(self, error: BaseException) -> Closed:
        if type(error) in CODES:
            return Closed(*CODES[type(error)], str(error.args[0]))
        if isinstance(error, aiormq.exceptions.ConnectionClosed | aiormq.exceptions.ChannelClosed):
            code, text = (*error.args, "", "")[:2]
            scope = "connection" if isinstance(error, aiormq.exceptions.ConnectionClosed) else "channel"
            return Closed(scope if code else "client", code or 0, str(text))
        return Closed(LOST if isinstance(error, ConnectionError) else "client", 0, repr(error))


def _content(message: Any) -> dict[str, Any]:
    values = {name: getattr(message, name, None) for name in PROPERTIES}
    if values["expiration"] is not None:
        values["expiration"] = f"{values['expiration'] * 1000:.0f}"
    return content(message.body, values, message.headers)


def _message(message: Any) -> dict[str, Any]:
    return {**{key: getattr(message, key) for key in DELIVERY}, **_content(message)}


def _returned(message: Any) -> dict[str, Any]:
    return {**{key: getattr(message, key) for key in RETURN}, **_content(message)}


if __name__ == "__main__":
    AioPika().serve()
