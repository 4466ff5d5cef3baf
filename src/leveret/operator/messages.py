"""Control commands that publish a message and get some. Source: management page 6."""

import base64
import binascii
from collections.abc import Callable
from typing import Any

from ..engine import (
    PLAIN,
    Broker,
    ContentError,
    Envelope,
    Field,
    FieldTable,
    Message,
    PropertyValue,
    Session,
    check_expiration,
    decode_properties,
    encode_header,
    json_of_table,
    scan_properties,
    table_of_json,
)
from .acting import Handlers, acting, vhost_of
from .command_error import CommandError
from .operator import refusals, until_idle, wide
from .steps import Steps

TEXTS = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
#: Name -> the largest value.
NUMBERS = {"delivery_mode": 255, "priority": 255, "timestamp": 2**64 - 1}
OCTETS_MAX = 255
#: What becomes of messages that are got: (acknowledged, requeued).
ACKMODES = {
    "ack_requeue_true": (False, True),
    "ack_requeue_false": (True, False),
    "reject_requeue_true": (False, True),
    "reject_requeue_false": (False, False),
}
#: Messages that are got in one step.
GOT_AT_ONCE = 50
UNPUBLISHED = "Unable to publish message. Check queue limits."
#: Where the flags of a header payload begin.
FLAGS_AT = 12


class MessageCommands:
    """`handlers` by the words of the command, for the control table. `broker` is called each time: it may be set
    later."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker
        self.handlers: Handlers = {"publish": self._publish, "get": self._get}

    def _publish(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Mandatory and confirmed. That it is safe is seen to by who runs the command."""
        broker = self._broker()
        client = acting(broker, arguments)
        exchange, routing_key = arguments["exchange"], arguments["routing-key"]
        if max(len(exchange.encode(errors="replace")), len(routing_key.encode(errors="replace"))) > OCTETS_MAX:
            raise CommandError("publish: exchange and routing-key: longer than 255 octets")
        body = body_of("publish", arguments)
        header = encode_header(len(body), properties_of("publish", arguments.get("properties") or {}))
        facts = scan_properties(header[FLAGS_AT:])
        user_id = None if facts.user_id is None else facts.user_id.decode("utf-8", "replace")
        if user_id not in (None, client.user.name) and "impersonator" not in client.user.tags:
            raise CommandError(
                f"406 PRECONDITION_FAILED - user_id property set to '{user_id}' but authenticated user was "
                f"'{client.user.name}'"
            )
        session = client.open_session()
        try:
            session.select_confirms()
            with refusals():
                check_expiration(facts.expiration)
                route = client.vhost.route(exchange, routing_key, client.user)
                envelope = Envelope(exchange, routing_key, facts)
                blob = PLAIN.join(header, body)
                if broker.alarm is not None:
                    raise CommandError(f"publishers are blocked: {broker.alarm}")
                firehose = client.vhost.firehose
                if firehose is not None:
                    firehose.expect(session, route, envelope, (blob,))
                offer = session.offer(route, envelope, (blob,), mandatory=True)
            if not offer.taken or (session.confirms is not None and session.confirms.refused):
                raise CommandError(UNPUBLISHED)
            return {"routed": not offer.returned}
        finally:
            session.close()

    def _get(self, arguments: dict[str, Any]) -> Steps:
        """Oldest first; what is put back is where it was, and marked as redelivered."""
        broker = self._broker()
        mode, encoding = arguments.get("ackmode", "ack_requeue_true"), arguments.get("encoding", "auto")
        if mode not in ACKMODES:
            raise CommandError(f"get: ackmode must be one of {', '.join(ACKMODES)}, not {mode!r}")
        if encoding not in ("auto", "base64"):
            raise CommandError("Unsupported encoding. Please use auto or base64.")
        client, name = acting(broker, arguments), arguments["queue"]
        vhost = vhost_of(broker, arguments)
        with refusals():
            queue = vhost.queue_for_consumer(name, client)
        yield from until_idle(vhost, name)
        session = client.open_session()
        rows: list[dict[str, Any]] = []
        try:
            no_ack = mode == "ack_requeue_false"
            for count in range(1, arguments.get("count", 1) + 1):
                with refusals():
                    got = session.get(queue, no_ack=no_ack)
                if got is None:
                    break
                _, message, redelivered, left = got
                rows.append(_row(message, redelivered, left, encoding, arguments.get("truncate")))
                if count % GOT_AT_ONCE == 0:
                    yield
            _give_back(session, mode)
        finally:
            session.close()
        return rows


def shown_message(position: int, message: Message, truncate: int | None, encoding: str = "auto") -> dict[str, Any]:
    """A message of a queue for people: at which place, with its properties, and so many octets of its body."""
    row = _row(message, False, 0, encoding, truncate)
    del row["redelivered"], row["message_count"]
    return {"position": position, "attempts": message.deliveries - message.uncounted, **row}


def _give_back(session: Session, mode: str) -> None:
    acknowledged, requeued = ACKMODES[mode]
    if session.unacked and not acknowledged and mode.startswith("reject"):
        with refusals():
            session.reject(0, multiple=True, requeue=requeued)


def body_of(command: str, arguments: dict[str, Any]) -> bytes:
    """The body of a message that somebody gives. Raises: CommandError."""
    payload, encoding = arguments["payload"], arguments.get("payload-encoding", "string")
    if encoding == "string":
        return str(payload).encode("utf-8", "replace")
    if encoding != "base64":
        raise CommandError(f"{command}: payload-encoding must be string or base64, not {encoding!r}")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise CommandError(f"{command}: payload: is not base64") from None


def properties_of(command: str, given: object) -> dict[str, PropertyValue]:
    """Those of a message; unknown names are ignored, as RabbitMQ does. Raises: CommandError."""
    if not isinstance(given, dict):
        raise CommandError(f"{command}: properties: expected an object")
    found: dict[str, PropertyValue] = {}
    for name in TEXTS:
        value = given.get(name)
        if value is None:
            continue
        if not isinstance(value, str) or len(value.encode(errors="replace")) > OCTETS_MAX:
            raise CommandError(f"{command}: {name}: expected text of at most 255 octets")
        found[name] = value.encode(errors="replace")
    for name, largest in NUMBERS.items():
        value = given.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= largest:
            raise CommandError(f"{command}: {name}: expected a number from 0 to {largest}")
        found[name] = value
    headers = given.get("headers")
    if headers:
        try:
            found["headers"] = wide(table_of_json(headers))
        except ValueError as error:
            raise CommandError(f"{command}: headers: expected {error}") from None
    return found


def _row(message: Message, redelivered: bool, left: int, encoding: str, truncate: int | None) -> dict[str, Any]:
    body = message.body
    shown = body if truncate is None else body[:truncate]
    text: str | None = None
    if encoding == "auto":
        try:
            text = shown.decode()
        except UnicodeDecodeError:
            text = None
    return {
        "payload_bytes": len(body),
        "redelivered": redelivered,
        "exchange": message.envelope.exchange,
        "routing_key": message.envelope.routing_key,
        "message_count": left,
        "properties": _shown_properties(message.header),
        "payload": base64.b64encode(shown).decode() if text is None else text,
        "payload_encoding": "base64" if text is None else "string",
    }


def _shown_properties(header: bytes) -> dict[str, Any]:
    try:
        found = decode_properties(header)
    except ContentError:
        return {}
    shown: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, bytes):
            shown[name] = value.decode("utf-8", "replace")
        elif isinstance(value, dict):
            shown[name] = json_of_table(_without_tags(value))
        else:
            shown[name] = value
    return shown


def _without_tags(table: FieldTable) -> FieldTable:
    """Timestamps are numbers in JSON."""
    return {key: Field("l", field.value) if field.tag == "T" else field for key, field in table.items()}
