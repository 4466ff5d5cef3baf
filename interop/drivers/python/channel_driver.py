"""Operations for clients whose channels have methods with AMQP's names, as in all Python clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from typing import Any

from driver import LOST, PROPERTIES, Closed, Driver, content, where

QUEUE_FLAGS = ("passive", "durable", "exclusive", "auto_delete")
DELIVERY = ("delivery_tag", "redelivered", "exchange", "routing_key")
RETURN = ("exchange", "routing_key")


class ChannelDriver(Driver):
    """A driver by such channels. Subclasses define how a method is called, what it raises, and names of arguments."""

    errors: tuple[type[Exception], ...] = ()  # exceptions for closes by the broker and for lost connections
    exchange_type = "exchange_type"
    exchange_flags: tuple[str, ...] = ("passive", "durable", "auto_delete", "internal")
    qos_global = "global_"
    confirm_select_method = "confirm_delivery"

    def __init__(self) -> None:
        super().__init__()
        self.published: dict[tuple[str, str], int] = {}  # since confirm.select

    def closed_by(self, error: Exception) -> Closed:
        """The close that an error of the client reports."""
        raise NotImplementedError

    def method(self, request: dict[str, Any], name: str) -> Callable[..., Any]:
        return getattr(self.channel(request), name)  # type: ignore[no-any-return]

    def field(self, ok: Any, name: str) -> Any:
        """A field of the client's answer."""
        return getattr(ok, name)

    def call(self, request: dict[str, Any], name: str, *arguments: Any, **options: Any) -> Any:
        return self.done(request, lambda: self.method(request, name)(*arguments, **options))

    def done(self, request: dict[str, Any], call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self.errors as error:
            closed = self.closed_by(error)
            self.noticed(request, closed)
            raise closed from error

    def noticed(self, request: dict[str, Any], closed: Closed) -> None:
        """Make an event of a close by which a call failed, for clients that report it in no other way."""

    def closed_event(self, connection: str, channel: str | None, closed: Closed) -> None:
        """Make an event of a close, but not of a channel that ended with its connection."""
        scope = closed.answer["scope"]
        if scope == "channel" if channel else scope in ("connection", LOST):
            self.happened("closed", connection, channel, **closed.answer)

    def channel_close(self, request: dict[str, Any]) -> None:
        self.call(request, "close")

    def channel_flow(self, request: dict[str, Any]) -> dict[str, Any]:
        self.call(request, "flow", active=request["active"])
        return {"active": request["active"]}

    def exchange_declare(self, request: dict[str, Any]) -> None:
        options = {key: request.get(key, False) for key in self.exchange_flags}
        options[self.exchange_type] = request.get("type", "direct")
        self.call(request, "exchange_declare", exchange=request["exchange"], arguments=self.table(request), **options)

    def exchange_delete(self, request: dict[str, Any]) -> None:
        self.call(request, "exchange_delete", exchange=request["exchange"], if_unused=request.get("if_unused", False))

    def _bind(self, request: dict[str, Any], *, name: str, ends: tuple[str, str]) -> None:
        named = {key: request[key] for key in ends}
        self.call(request, name, **named, routing_key=request.get("routing_key", ""), arguments=self.table(request))

    exchange_bind = partialmethod(_bind, name="exchange_bind", ends=("destination", "source"))
    exchange_unbind = partialmethod(_bind, name="exchange_unbind", ends=("destination", "source"))
    queue_bind = partialmethod(_bind, name="queue_bind", ends=("queue", "exchange"))
    queue_unbind = partialmethod(_bind, name="queue_unbind", ends=("queue", "exchange"))

    def queue_declare(self, request: dict[str, Any]) -> dict[str, Any]:
        flags = {key: request.get(key, False) for key in QUEUE_FLAGS}
        ok = self.call(request, "queue_declare", queue=request["queue"], arguments=self.table(request), **flags)
        return {key: self.field(ok, key) for key in ("queue", "message_count", "consumer_count")}

    def queue_purge(self, request: dict[str, Any]) -> dict[str, Any]:
        ok = self.call(request, "queue_purge", queue=request["queue"])
        return {"message_count": self.field(ok, "message_count")}

    def queue_delete(self, request: dict[str, Any]) -> dict[str, Any]:
        flags = {key: request.get(key, False) for key in ("if_unused", "if_empty")}
        ok = self.call(request, "queue_delete", queue=request["queue"], **flags)
        return {"message_count": self.field(ok, "message_count")}

    def basic_qos(self, request: dict[str, Any]) -> None:
        limits = {key: request.get(key, 0) for key in ("prefetch_size", "prefetch_count")}
        self.call(request, "basic_qos", **limits, **{self.qos_global: request.get("global", False)})

    def basic_cancel(self, request: dict[str, Any]) -> None:
        self.call(request, "basic_cancel", consumer_tag=request["consumer_tag"])

    def basic_ack(self, request: dict[str, Any]) -> None:
        self.call(request, "basic_ack", request["delivery_tag"], multiple=request.get("multiple", False))

    def basic_nack(self, request: dict[str, Any]) -> None:
        flags = {"multiple": request.get("multiple", False), "requeue": request.get("requeue", True)}
        self.call(request, "basic_nack", request["delivery_tag"], **flags)

    def basic_reject(self, request: dict[str, Any]) -> None:
        self.call(request, "basic_reject", request["delivery_tag"], requeue=request.get("requeue", True))

    def basic_recover(self, request: dict[str, Any]) -> None:
        self.call(request, "basic_recover", requeue=request.get("requeue", True))

    def confirm_select(self, request: dict[str, Any]) -> None:
        self.call(request, self.confirm_select_method)
        self.published[where(request)] = 0

    def confirmed(self, request: dict[str, Any], ack: bool) -> None:
        """Report a confirm after a publish has returned, if the client waits for confirms."""
        place = where(request)
        if place in self.published:
            self.published[place] += 1
            self.happened("confirm", *place, seq=self.published[place], ack=ack)

    def _plain(self, request: dict[str, Any], *, name: str) -> None:
        self.call(request, name)

    tx_select = partialmethod(_plain, name="tx_select")
    tx_commit = partialmethod(_plain, name="tx_commit")
    tx_rollback = partialmethod(_plain, name="tx_rollback")

    def reset(self, request: dict[str, Any]) -> None:
        super().reset(request)
        self.published.clear()

    def close_all(self) -> None:
        for connection in self.connections.values():
            try:
                self.close_connection(connection)
            except Exception:
                pass

    def close_connection(self, connection: Any) -> None:
        connection.close()


def of_attributes(method: Any, keys: tuple[str, ...], properties: Any, headers: Any, body: bytes) -> dict[str, Any]:
    """A message whose method and properties are records with a field each."""
    values = {name: getattr(properties, name, None) for name in PROPERTIES}
    return {**{key: getattr(method, key) for key in keys}, **content(body, values, headers)}
