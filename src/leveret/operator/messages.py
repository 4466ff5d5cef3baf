"""Commands that publish a message and get messages. Source: management page 6."""

import base64
from typing import Annotated, Any

from ..engine import (
    NATIVE,
    PROPERTIES,
    ContentError,
    Envelope,
    Message,
    PropertyValue,
    check_expiration,
    decode_properties,
    encode_header,
    json_of_table,
    octets_of_base64,
    scan_properties,
    table_of_json,
)
from .command import command
from .command_error import CommandError
from .kinds import NUMBER, OCTETS_MAX, TEXT, AsUser, Json, QueueName, VhostName, one_of
from .operator import Operator, until_idle, with_long_integers
from .steps import Steps

TEXTS = tuple(name for name, _, kind in PROPERTIES if kind == "shortstr")
_LARGEST = {"octet": 255, "longlong": 2**64 - 1}
#: Name of a numeric property -> its largest value.
NUMBERS = {name: _LARGEST[kind] for name, _, kind in PROPERTIES if kind in _LARGEST}
#: Ackmode -> (whether the messages are acknowledged, whether rejected ones are requeued).
ACKMODES = {
    "ack_requeue_true": (False, True),
    "ack_requeue_false": (True, False),
    "reject_requeue_true": (False, True),
    "reject_requeue_false": (False, False),
}
#: Messages that are got in one step.
GOT_AT_ONCE = 50
UNPUBLISHED = "Unable to publish message. Check queue limits."
#: Offset of the flags in a header payload.
FLAGS_AT = 12


Payload = Annotated[str, TEXT, "its body"]
Encoding = Annotated[str, one_of(("auto", "base64")), "auto (the default): text where it is UTF-8; or base64"]
Truncate = Annotated[int, NUMBER, "bodies after this many octets"]
PayloadEncoding = Annotated[str, one_of(("string", "base64")), "string (the default) or base64"]


@command("publish")
def publish(
    operator: Operator,
    exchange: str,
    routing_key: str,
    payload: Payload,
    *,
    payload_encoding: PayloadEncoding = "string",
    properties: Json = None,
    vhost: VhostName = "/",
    as_user: AsUser | None = None,
) -> dict[str, Any]:
    """Publish one message, and tell whether a queue got it.

    exchange: its name; empty: the default exchange
    routing_key: of the message
    properties: like {"content_type": "text/plain", "priority": 5}
    """
    with operator.client(vhost, as_user) as (client, host):
        header, body = message_of("publish", exchange, routing_key, payload, payload_encoding, properties)
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
            check_expiration(facts.expiration)
            if not exchange:  # the routing key is a full name, perhaps of another site's queue
                client.site = host.context.site_of(routing_key)
            route = host.router.route(exchange, routing_key, client.user, None if exchange else client)
            envelope = Envelope(exchange, routing_key, facts)
            content = NATIVE.join(header, body)
            if (alarm := operator.broker.flow.raised) is not None:
                raise CommandError(f"publishers are blocked: {alarm.reason}")
            if host.context.firehose is not None:
                host.context.firehose.expect(session, route, envelope, (content,))
            offer = session.publish_with_room(route, envelope, (content,), mandatory=True)
            if not offer.taken or (session.confirms is not None and session.confirms.refused):
                raise CommandError(UNPUBLISHED)
            return {"routed": not offer.returned}
        finally:
            session.close()


@command("get")
def get(
    operator: Operator,
    queue: QueueName,
    *,
    count: int = 1,
    ackmode: Annotated[str, one_of(ACKMODES)] = "ack_requeue_true",
    encoding: Encoding = "auto",
    truncate: Truncate | None = None,
    vhost: VhostName = "/",
    as_user: AsUser | None = None,
) -> Steps:
    """Take messages out of a queue, or look at them and put them back.

    count: at most this many (default 1)
    ackmode: ack_requeue_true (the default), ack_requeue_false, reject_requeue_true or .._false
    """
    if ackmode not in ACKMODES:
        raise CommandError(f"get: ackmode must be one of {', '.join(ACKMODES)}, not {ackmode!r}")
    check_encoding(encoding)
    with operator.client(vhost, as_user) as (client, host):
        found = host.queues.for_consumer(queue, client)
        yield from until_idle(host, queue)
        session = client.open_session()
        rows: list[dict[str, Any]] = []
        try:
            for number in range(1, count + 1):
                got = session.get(found, no_ack=ackmode == "ack_requeue_false")
                if got is None:
                    break
                _, message, redelivered, left = got
                rows.append(_row(message, redelivered, left, encoding, truncate))
                if number % GOT_AT_ONCE == 0:
                    yield
            acknowledged, requeued = ACKMODES[ackmode]
            if session.unacked and not acknowledged and ackmode.startswith("reject"):
                session.reject(0, multiple=True, requeue=requeued)
        finally:
            session.close()  # the other messages return to their positions, marked as redelivered
    return rows


def shown_message(position: int, message: Message, truncate: int | None, encoding: str = "auto") -> dict[str, Any]:
    """A message of a queue in JSON: its position, its properties, and the first `truncate` octets of its body."""
    row = _row(message, False, 0, encoding, truncate)
    del row["redelivered"], row["message_count"]
    return {"position": position, "attempts": message.deliveries - message.uncounted, **row}


def message_of(
    command: str, exchange: str, key: str, payload: str, encoding: str, properties: object
) -> tuple[bytes, bytes]:
    """The header and the body of a message that arguments describe. Raises: CommandError."""
    if max(len(exchange.encode(errors="replace")), len(key.encode(errors="replace"))) > OCTETS_MAX:
        raise CommandError(f"{command}: exchange and routing-key: longer than 255 octets")
    body = _body_of(command, payload, encoding)
    return encode_header(len(body), _properties_of(command, properties or {})), body


def _body_of(command: str, payload: str, encoding: str) -> bytes:
    if encoding == "string":
        return payload.encode("utf-8", "replace")
    if encoding != "base64":
        raise CommandError(f"{command}: payload-encoding must be string or base64, not {encoding!r}")
    try:
        return octets_of_base64(payload)
    except ValueError:
        raise CommandError(f"{command}: payload: is not base64") from None


def _properties_of(command: str, given: object) -> dict[str, PropertyValue]:
    """The properties. Unknown names are ignored, as in RabbitMQ. Raises: CommandError."""
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
    if headers or headers == {}:
        try:
            found["headers"] = with_long_integers(table_of_json(headers))
        except ValueError as error:
            raise CommandError(f"{command}: headers: expected {error}") from None
    return found


def check_encoding(encoding: str) -> None:
    """Raises: CommandError."""
    if encoding not in ("auto", "base64"):
        raise CommandError("Unsupported encoding. Please use auto or base64.")


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
            shown[name] = json_of_table(value)
        else:
            shown[name] = value
    return shown
