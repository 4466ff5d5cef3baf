"""Dead letters of a leased queue: which reasons of expiry make one, and its body from a template.

Source: queues page A.2 (expiry action), H.1 (actions).
"""

import re
from collections.abc import Sequence

from ...settings.leases import LeasedSettings
from ..messages.content import PLAIN, ContentError, decode_properties
from ..messages.message import Message

_VARIABLE = re.compile(rb"\{\{([A-Z_]+)\}\}")
#: Offsets of the body size in a header payload, after class and weight.
_SIZE_AT, _SIZE_END = 4, 12


def buries(settings: LeasedSettings, reasons: Sequence[str]) -> bool:
    """Whether a message that expired for these reasons becomes a dead letter, if the queue has a target."""
    wanted = settings.dead_letter_reasons
    return wanted is None or not set(wanted.split(",")).isdisjoint(reasons)


def with_dead_body(settings: LeasedSettings, message: Message, reasons: Sequence[str]) -> bytes:
    """A plainly framed message with its body replaced from the template; the result is plainly framed, too."""
    assert settings.dead_letter_data is not None
    header, body = PLAIN.split(message.content)
    values = {
        b"AMPS_DATA": body,
        b"AMPS_REASON": ",".join(reasons).encode(),
        b"AMPS_TOPIC": settings.name.encode(),
        b"AMPS_DATA_LENGTH": b"%d" % len(body),
        b"AMPS_CORRELATION_ID": _correlation_id(header),
    }
    made = _VARIABLE.sub(lambda found: values[found[1]], settings.dead_letter_data.encode())
    return PLAIN.join(header[:_SIZE_AT] + len(made).to_bytes(_SIZE_END - _SIZE_AT, "big") + header[_SIZE_END:], made)


def _correlation_id(header: bytes) -> bytes:
    try:
        value = decode_properties(header).get("correlation_id", b"")
    except ContentError:
        return b""
    return value if isinstance(value, bytes) else b""
