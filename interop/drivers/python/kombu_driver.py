"""Driver for kombu over py-amqp: its connections, exchanges, queues and producers, and py-amqp's channel otherwise."""

from __future__ import annotations

from typing import Any

from amqp_driver import PyAmqp, message_of
from driver import body_of, where
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.exceptions import OperationalError
from kombu.messaging import Producer


class Kombu(PyAmqp):
    client = "kombu"
    errors = (*PyAmqp.errors, OperationalError)
    lacks = {
        **PyAmqp.lacks,
        "basic.consume:exclusive": "no such argument",
        "recover": "connects again by itself, and leaves it to its user to consume again",
        "scenario:exchange-reserved-prefix": "does not ask the broker for names that begin with amq.",
        "scenario:publish-bad-expiration": "an expiration is a number of seconds",
    }

    def new_connection(self, request: dict[str, Any], tls: dict[str, Any], **options: Any) -> Any:
        return Connection(
            hostname=request["host"],
            port=request["port"],
            userid=request["user"],
            password=request["password"],
            virtual_host=request["vhost"],
            heartbeat=request.get("heartbeat", 0),
            connect_timeout=20,
            transport="pyamqp",
            ssl=tls.get("ssl", False),
            transport_options=options,
        )

    def tick(self, connection: Any) -> None:
        connection.heartbeat_check()

    def exchange_declare(self, request: dict[str, Any]) -> None:
        flags = {key: request.get(key, False) for key in ("durable", "auto_delete")}
        kind = request.get("type", "direct")
        exchange = Exchange(request["exchange"], kind, arguments=self.table(request), **flags)
        passive = request.get("passive", False)
        self.done(request, lambda: exchange(self.channel(request)).declare(passive=passive))

    def queue(self, request: dict[str, Any], **more: Any) -> Any:
        return Queue(request["queue"], channel=self.channel(request), **more)

    def queue_declare(self, request: dict[str, Any]) -> dict[str, Any]:
        flags = {key: request.get(key, False) for key in ("durable", "exclusive", "auto_delete")}
        queue = self.queue(request, queue_arguments=self.table(request), **flags)
        queue.auto_delete = flags["auto_delete"]  # kombu would also make every exclusive queue auto_delete
        ok = self.done(request, lambda: queue.queue_declare(passive=request.get("passive", False)))
        return {"queue": ok.queue, "message_count": ok.message_count, "consumer_count": ok.consumer_count}

    def queue_purge(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"message_count": self.done(request, self.queue(request).purge)}

    def queue_delete(self, request: dict[str, Any]) -> dict[str, Any]:
        flags = {key: request.get(key, False) for key in ("if_unused", "if_empty")}
        return {"message_count": self.done(request, lambda: self.queue(request).delete(**flags))}

    def basic_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        place = where(request)

        def delivered(raw: Any) -> None:
            message = raw.channel.message_to_python(raw)
            tag = message.delivery_info["consumer_tag"]
            self.happened("delivery", *place, consumer_tag=tag, **message_of(message))

        tag = self.done(
            request,
            lambda: self.queue(request, consumer_arguments=self.table(request)).consume(
                request.get("consumer_tag", ""),
                delivered,
                no_ack=request.get("no_ack", False),
                on_cancel=lambda tag: self.happened("cancel", *place, consumer_tag=tag),
            ),
        )
        return {"consumer_tag": getattr(tag, "consumer_tag", tag)}

    def publish(self, request: dict[str, Any]) -> None:
        properties = dict(request.get("properties", {}))
        if "expiration" in properties:
            properties["expiration"] = int(properties["expiration"]) / 1000
        producer = Producer(self.channel(request), auto_declare=False)
        flags = {key: request.get(key, False) for key in ("mandatory", "immediate")}
        producer.publish(
            body_of(request),
            exchange=request["exchange"],
            routing_key=request["routing_key"],
            headers=self.table(request, "headers"),
            **flags,
            **properties,
        )

    def basic_get(self, request: dict[str, Any]) -> dict[str, Any]:
        message = self.done(request, lambda: self.queue(request).get(no_ack=request.get("no_ack", False)))
        if message is None:
            return {"empty": True}
        return {"message_count": message.delivery_info["message_count"], **message_of(message)}


if __name__ == "__main__":
    Kombu().serve()
