"""Dead letters: the copy that a dead message leaves behind, with the story of its deaths in `x-death`.

Source: behaviour page 3.4.
"""

from .content import PLAIN, decode_properties, scan_properties, splice_header
from .field_table import Field, FieldTable
from .message import Envelope, Message

REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT = "rejected", "expired", "maxlen", "delivery_limit"
#: Where a copy comes from (address-settings page 5.6).
ORIG_ADDRESS, ORIG_QUEUE, ORIG_MESSAGE_ID = "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_MESSAGE_ID"
ACTUAL_EXPIRY = "_AMQ_ACTUAL_EXPIRY"
#: The header that tells clients how often a message was tried; a dead letter starts anew.
DELIVERY_COUNT = "x-delivery-count"


class DeadLetter:
    """A dead message on its way to a dead-letter exchange, by the keys of its envelope.

    `deaths`: its x-death entries, newest first. `cause_id`: of the message that died.
    """

    __slots__ = ("blob", "cause_id", "deaths", "envelope", "reason")

    def __init__(self, blob: bytes, envelope: Envelope, deaths: list[FieldTable], reason: str, cause_id: int) -> None:
        self.blob = blob
        self.envelope = envelope
        self.deaths = deaths
        self.reason = reason
        self.cause_id = cause_id

    def would_cycle(self, queue_name: str) -> bool:
        """Whether the message came round to this queue again without anybody having rejected it on the way."""
        if self.reason == REJECTED:
            return False
        for death in self.deaths:
            if _text(death.get("reason")) == REJECTED:
                return False
            if _text(death.get("queue")) == queue_name:
                return True
        return False


def dead_letter(
    message: Message,
    *,
    queue: str,
    reason: str,
    exchange: str,
    routing_key: str | None,
    wall_ms: int,
    address: str | None = None,
    with_hornetq_names: bool = False,
) -> DeadLetter:
    """The copy of a message that died in `queue`, to be published to `exchange`.

    `address`: the message's own, told beside the queue where a dead-letter or expiry address rules (address-settings
    page 5.6, 6.7), on request also by the names that HornetQ's clients know.

    Its properties stay as they were but for `expiration`, which is removed, and the headers that tell of the death;
    with a `routing_key` of its own the copy also loses CC, whose keys no longer apply.
    """
    header, body = message.envelope.framing.split(message.blob)
    properties = decode_properties(header)
    headers = properties.get("headers")
    headers = headers if isinstance(headers, dict) else {}
    keys = [message.envelope.routing_key, *_carbon_copies(headers)]
    copies = message.envelope.copies or tuple(keys[1:])  # those of BCC as well, of which nothing is told
    entry: FieldTable = {
        "count": Field("l", 1),
        "reason": Field("S", reason.encode()),
        "queue": Field("S", queue.encode()),
        "time": Field("T", wall_ms // 1000),
        "exchange": Field("S", message.envelope.exchange.encode()),
        "routing-keys": Field("A", [Field("S", key.encode()) for key in keys]),
    }
    expiration = properties.get("expiration")
    if isinstance(expiration, bytes):
        entry["original-expiration"] = Field("S", expiration)
    history = _history(headers)
    added: FieldTable = {}
    if history is None:
        history = []
        added["x-first-death-queue"] = entry["queue"]
        added["x-first-death-reason"] = entry["reason"]
        added["x-first-death-exchange"] = entry["exchange"]
    deaths = _continued(history, entry)
    added["x-death"] = Field("A", [Field("F", death) for death in deaths])
    if address is not None:
        added |= _origin(message, queue, address, wall_ms if reason == EXPIRED else None, with_hornetq_names)
    dropped = {DELIVERY_COUNT, "CC"} if routing_key is not None else {DELIVERY_COUNT}
    new_header = splice_header(header, added, dropped, without_expiration=True)
    envelope = Envelope(exchange, routing_key if routing_key is not None else keys[0], scan_properties(new_header[12:]))
    if routing_key is None:
        envelope.copies = copies
    return DeadLetter(PLAIN.join(new_header, body), envelope, deaths, reason, message.id)


def _origin(message: Message, queue: str, address: str, expired_ms: int | None, with_hornetq_names: bool) -> FieldTable:
    told: FieldTable = {
        ORIG_ADDRESS: Field("S", address.encode()),
        ORIG_QUEUE: Field("S", queue.encode()),
        ORIG_MESSAGE_ID: Field("l", message.id),
    }
    if expired_ms is not None:
        told[ACTUAL_EXPIRY] = Field("l", expired_ms)
    return told | told_by_hornetq_names(told) if with_hornetq_names else told


def told_by_hornetq_names(headers: FieldTable) -> FieldTable:
    """The `_AMQ_` headers among these by their `_HQ_` names (page 5.6)."""
    return {name.replace("_AMQ_", "_HQ_", 1): field for name, field in headers.items() if name.startswith("_AMQ_")}


def _history(headers: FieldTable) -> list[FieldTable] | None:
    """The x-death entries so far; None when there is no such array (one that a client sent counts)."""
    field = headers.get("x-death")
    if field is None or not isinstance(field.value, list):
        return None
    return [item.value for item in field.value if isinstance(item.value, dict)]


def _continued(history: list[FieldTable], entry: FieldTable) -> list[FieldTable]:
    """Newest first; a death like an earlier one (queue and reason) raises that one's count and keeps its facts."""
    for index, earlier in enumerate(history):
        if all(_text(earlier.get(key)) == _text(entry[key]) for key in ("queue", "reason")):
            count = earlier.get("count")
            number = count.value if count is not None and isinstance(count.value, int) else 0
            again = {**earlier, "count": Field("l", int(number) + 1)}
            return [again, *history[:index], *history[index + 1 :]]
    return [entry, *history]


def _carbon_copies(headers: FieldTable) -> list[str]:
    field = headers.get("CC")
    if field is None or not isinstance(field.value, list):
        return []
    return [item.text for item in field.value if item.tag == "S"]


def _text(field: Field | None) -> str | None:
    return field.text if field is not None and isinstance(field.value, bytes) else None
