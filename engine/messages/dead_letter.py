"""Dead letters: copies of dead messages with their deaths in the header `x-death`; and the origin of a dead letter.

Source: behaviour page 3.4 (x-death, newest first); address-settings page 5.6 (`_AMQ_ORIG_*`); management page 16.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ...settings.slotted import slotted
from .content import NATIVE, decode_properties, headers_of, scan_properties, splice_header
from .field_table import Field, FieldTable, array_spans, decode_array, encode_array, text_of
from .message import Envelope, Message

REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT = "rejected", "expired", "maxlen", "delivery_limit"
#: Headers with the origin of a dead letter (address-settings page 5.6).
ORIG_ADDRESS, ORIG_QUEUE, ORIG_MESSAGE_ID = "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_MESSAGE_ID"
ACTUAL_EXPIRY = "_AMQ_ACTUAL_EXPIRY"
#: Deaths with equal values of these fields share one entry of x-death.
KEYS = ("queue", "reason")
#: The fields in the headers x-first-death-* and x-last-death-*.
FIELDS = ("queue", "reason", "exchange")
#: Maximum of an entry's count, because a client may send any number.
COUNT_MAX = 2**63 - 1
#: Maximum octets of a routing key.
ROUTING_KEY_MAX = 255
#: The header with the number of failed attempts. A new dead letter does not have it.
DELIVERY_COUNT = "x-delivery-count"


@slotted
class DeadLetter:
    """A copy of a dead message, to be published with its envelope. `deaths`: the encoded x-death, newest first.

    `client_reasons`: reasons of deaths that a client caused. A cycle in which there is one does not go round by itself.
    """

    content: bytes
    envelope: Envelope
    deaths: bytes
    reason: str
    client_reasons: tuple[str, ...]

    def would_cycle(self, queue_name: str) -> bool:
        """Whether the message has died in this queue, and no client has caused a death since then."""
        reasons = self.client_reasons
        if self.reason in reasons or not any(entry in self.deaths for entry in _queue_encodings(queue_name)):
            return False
        for item in decode_array(self.deaths):
            death = item.value
            assert isinstance(death, dict)
            if text_of(death, "reason") in reasons:
                return False
            if text_of(death, "queue") == queue_name:
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
    continues_deaths: bool = True,
    with_last_death: bool = False,
    client_reasons: tuple[str, ...] = (REJECTED,),
) -> DeadLetter:
    """The copy of a message that died in `queue`, to be published to `exchange`.

    The copy has the message's properties without `expiration`, and the headers of the death. With a `routing_key`,
    which is cut if it is too long, it has no CC. `address`: where the message died, if the copy goes to a dead-letter
    or expiry address. The copy then has the headers `_AMQ_ORIG_*` (address-settings page 5.6, 6.7);
    `with_hornetq_names`: also as `_HQ_ORIG_*`. `continues_deaths`: keep an x-death that a client published.
    `with_last_death`: set headers x-last-death-*. `client_reasons`: see `DeadLetter`. O(octets): earlier deaths that
    the broker recorded are not decoded.
    """
    if routing_key is not None:
        routing_key = _short(routing_key)
    header, body = message.envelope.framing.split(message.content)
    properties = decode_properties(header, raw="x-death")
    headers = properties.get("headers")
    headers = headers if isinstance(headers, dict) else {}
    keys = [message.envelope.routing_key, *_carbon_copies(headers)]
    copies = message.envelope.copies or tuple(keys[1:])  # those of the envelope include BCC, which no header has
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
    is_ours = bool(message.envelope.cause_id)
    history = _history(headers, is_ours=is_ours) if continues_deaths or is_ours else None
    added: FieldTable = {}
    if history is None:
        history = b""
        for name in FIELDS:
            added[f"x-first-death-{name}"] = entry[name]
    if with_last_death:
        for name in FIELDS:
            added[f"x-last-death-{name}"] = entry[name]
    deaths = _with_death(history, entry)
    added["x-death"] = Field("A", deaths)
    if address is not None:
        added |= _origin(message, queue, address, wall_ms if reason == EXPIRED else None, with_hornetq_names)
    dropped = {DELIVERY_COUNT, "CC"} if routing_key is not None else {DELIVERY_COUNT}
    new_header = splice_header(header, added, dropped, without_expiration=True)
    envelope = Envelope(
        exchange, routing_key if routing_key is not None else keys[0], scan_properties(new_header[12:], is_checked=True)
    )
    envelope.cause_id, envelope.first_id = message.id, message.first_id
    if routing_key is None:
        envelope.copies = copies
    return DeadLetter(NATIVE.join(new_header, body), envelope, deaths, reason, client_reasons)


def _short(routing_key: str) -> str:
    octets = routing_key.encode()
    return routing_key if len(octets) <= ROUTING_KEY_MAX else octets[:ROUTING_KEY_MAX].decode("utf-8", "ignore")


def _origin(message: Message, queue: str, address: str, expired_ms: int | None, with_hornetq_names: bool) -> FieldTable:
    headers: FieldTable = {
        ORIG_ADDRESS: Field("S", address.encode()),
        ORIG_QUEUE: Field("S", queue.encode()),
        ORIG_MESSAGE_ID: Field("l", message.id),
    }
    if expired_ms is not None:
        headers[ACTUAL_EXPIRY] = Field("l", expired_ms)
    return headers | hornetq_headers(headers) if with_hornetq_names else headers


def hornetq_headers(headers: FieldTable) -> FieldTable:
    """The `_AMQ_` headers among these, under their `_HQ_` names (address-settings page 5.6)."""
    return {name.replace("_AMQ_", "_HQ_", 1): field for name, field in headers.items() if name.startswith("_AMQ_")}


def _history(headers: FieldTable, *, is_ours: bool) -> bytes | None:
    """The encoded entries of x-death; None: there is no such header.

    As in RabbitMQ, a header that is not an array counts as an empty one. `is_ours`: the broker wrote the header, and
    its entries are grouped.
    """
    field = headers.get("x-death")
    if field is None:
        return None
    if field.tag != "A" or not isinstance(field.value, bytes):
        return b""
    if is_ours:
        return field.value
    items = decode_array(field.value)
    return encode_array(
        [Field("F", death) for death in _grouped([item.value for item in items if isinstance(item.value, dict)])]
    )


def _grouped(history: list[FieldTable]) -> list[FieldTable]:
    """Merge entries of the same queue and reason into the first, which gets their number as count if it has none.

    RabbitMQ before 3.5.4 wrote one entry for each death, without a count. A single entry is not changed.
    """
    if len(history) < 2:
        return history
    firsts: dict[tuple[str, ...], FieldTable] = {}
    counts: Counter[tuple[str, ...]] = Counter()
    for death in history:
        key = tuple(repr(death[name].value) if name in death else "" for name in KEYS)
        firsts.setdefault(key, death)
        counts[key] += 1
    return [death if "count" in death else {**death, "count": Field("l", counts[key])} for key, death in firsts.items()]


def _with_death(history: bytes, entry: FieldTable) -> bytes:
    """The encoded history with `entry` in front; or with the earlier entry of this queue and reason in front, whose
    count is raised by one.
    """
    queue = entry["queue"].text
    needles = [needle for needle in _queue_encodings(queue) if needle in history]
    for start, end in array_spans(history) if needles else ():
        if not any(history.find(needle, start, end) >= 0 for needle in needles):
            continue
        (item,) = decode_array(history[start:end])
        earlier = item.value
        assert isinstance(earlier, dict)
        if all(text_of(earlier, key) == text_of(entry, key) for key in KEYS):
            raised = {**earlier, "count": Field("l", _count(earlier) + 1)}
            return encode_array([Field("F", raised)]) + history[:start] + history[end:]
    return encode_array([Field("F", entry)]) + history


def _queue_encodings(queue: str) -> list[bytes]:
    """The possible encodings of a field `queue` with this value."""
    raw = queue.encode()
    return [b"\x05queue" + tag + len(raw).to_bytes(4, "big") + raw for tag in (b"S", b"x")]


def _count(death: FieldTable) -> int:
    """The count of an entry; 0 without an integer count. At most `COUNT_MAX` - 1, so that it can be raised."""
    value = death["count"].value if "count" in death else 0
    return min(value, COUNT_MAX - 1) if type(value) is int else 0


def _carbon_copies(headers: FieldTable) -> list[str]:
    field = headers.get("CC")
    if field is None or not isinstance(field.value, list):
        return []
    return [item.text for item in field.value if item.tag == "S"]


# -- the origin of a dead letter --------------------------------------------------------------------------------------

_ORIGINS = dict.fromkeys((ORIG_ADDRESS, ORIG_QUEUE, ORIG_MESSAGE_ID, ACTUAL_EXPIRY), Field("V", None))
#: The headers of deaths and origins.
DEATH_HEADERS = frozenset(
    {
        "x-death",
        *(f"x-{which}-death-{name}" for which in ("first", "last") for name in FIELDS),
        *_ORIGINS,
        *hornetq_headers(_ORIGINS),
    }
)
_ADDRESSES, _QUEUES = (ORIG_ADDRESS, "_HQ_ORIG_ADDRESS"), (ORIG_QUEUE, "_HQ_ORIG_QUEUE")


class Origin(NamedTuple):
    """The last death of a dead letter, and the publish before it.

    `queue`: the queue of the death, empty if unknown; `reason`: its reason; `time_s`: seconds since 1970, or 0.
    `exchange`, `keys`: those of the publish to that queue. `address`: set instead of these if the message has only
    `_AMQ_ORIG_*` headers.
    """

    queue: str
    reason: str
    exchange: str
    keys: tuple[str, ...]
    address: str = ""
    time_s: int = 0


def origin_of(message: Message) -> Origin | None:
    """The origin, from the newest entry of x-death or from `_AMQ_ORIG_*` headers; None: the message has neither."""
    headers = headers_of(message.header)
    entries = _items(headers.get("x-death"))
    newest = entries[0].value if entries else None
    if isinstance(newest, dict):
        found = [key.text for key in _items(newest.get("routing-keys")) if isinstance(key.value, bytes)]
        if "exchange" in newest and found:
            time = newest.get("time")
            return Origin(
                text_of(newest, "queue") or "",
                text_of(newest, "reason") or "",
                text_of(newest, "exchange") or "",
                tuple(found),
                time_s=time.value if time is not None and isinstance(time.value, int) else 0,
            )
    address = _first_text(headers, _ADDRESSES)
    return Origin(_first_text(headers, _QUEUES), "", "", (), address) if address else None


def without_deaths(header: bytes) -> bytes:
    """The header payload without the headers of deaths. The expiration, which the first death removed, is lost."""
    return splice_header(header, {}, {*DEATH_HEADERS, DELIVERY_COUNT})


def _items(field: Field | None) -> list[Field]:
    return field.value if field is not None and isinstance(field.value, list) else []


def _first_text(headers: FieldTable, names: Iterable[str]) -> str:
    return next((text for name in names if (text := text_of(headers, name))), "")
