"""The origin of a dead letter, read from its headers, and the removal of these headers.

Source: behaviour page 3.4 (x-death, newest first); address-settings page 5.6 (`_AMQ_ORIG_*`); management page 16.
"""

from typing import NamedTuple

from .content import headers_of, splice_header
from .deaths import ACTUAL_EXPIRY, DELIVERY_COUNT, ORIG_ADDRESS, ORIG_MESSAGE_ID, ORIG_QUEUE, hornetq_headers
from .field_table import Field, FieldTable
from .message import Message

_FACTS = ("queue", "reason", "exchange")
_ORIGINS = dict.fromkeys((ORIG_ADDRESS, ORIG_QUEUE, ORIG_MESSAGE_ID, ACTUAL_EXPIRY), Field("V", None))
#: The headers of deaths and origins.
DEATH_HEADERS = frozenset(
    {
        "x-death",
        *(f"x-{which}-death-{fact}" for which in ("first", "last") for fact in _FACTS),
        *_ORIGINS,
        *hornetq_headers(_ORIGINS),
    }
)
_ADDRESSES, _QUEUES = (ORIG_ADDRESS, "_HQ_ORIG_ADDRESS"), (ORIG_QUEUE, "_HQ_ORIG_QUEUE")


class Origin(NamedTuple):
    """`queue`: the queue of the last death, empty if unknown; `reason`: its reason; `time_s`: seconds since 1970, or 0.

    `exchange`, `keys`: those with which the message was published to that queue. `address`: set instead of these if the
    message has only `_AMQ_ORIG_*` headers.
    """

    queue: str
    reason: str
    exchange: str
    keys: tuple[str, ...]
    address: str = ""
    time_s: int = 0


def origin_of(message: Message) -> Origin | None:
    """The origin in the newest entry of x-death, else the original address. None: no header has either."""
    headers = headers_of(message.header)
    entries = _items(headers.get("x-death"))
    first = entries[0].value if entries else None
    if isinstance(first, dict):
        found = [key.text for key in _items(first.get("routing-keys")) if _is_text(key)]
        if "exchange" in first and found:
            time = first.get("time")
            return Origin(
                _text(first, "queue"),
                _text(first, "reason"),
                _text(first, "exchange"),
                tuple(found),
                time_s=time.value if time is not None and isinstance(time.value, int) else 0,
            )
    address = next((text for name in _ADDRESSES if (text := _text(headers, name))), "")
    if not address:
        return None
    return Origin(next((text for name in _QUEUES if (text := _text(headers, name))), ""), "", "", (), address)


def without_deaths(header: bytes) -> bytes:
    """The header payload without the headers of deaths. The expiration, which the first death removed, stays away."""
    return splice_header(header, {}, {*DEATH_HEADERS, DELIVERY_COUNT})


def _items(field: Field | None) -> list[Field]:
    return field.value if field is not None and isinstance(field.value, list) else []


def _is_text(field: Field) -> bool:
    return isinstance(field.value, bytes)


def _text(table: FieldTable, name: str) -> str:
    field = table.get(name)
    return field.text if field is not None and _is_text(field) else ""
