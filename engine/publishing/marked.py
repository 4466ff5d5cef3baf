"""Marked messages (`PropertySummary.is_marked`), whose headers are read before routing: CC and BCC, direct replies.

Source: behaviour page 2.10, 3.9, 3.10.
"""

from ..errors import InvalidCopies, ReplyConsumerMissing
from ..messages.content import COPIES, NATIVE, REPLY_TO_ME, decode_properties, scan_properties, splice_header
from ..messages.field_table import FieldTable
from ..messages.message import Envelope

BCC = COPIES[1]


def prepared(envelope: Envelope, content: bytes, reply_address: str | None) -> tuple[Envelope, bytes]:
    """Prepare a marked message for routing: set `Envelope.copies`, remove BCC, and write the reply address.

    `reply_address`: the address of direct replies to the publishing session; None: it has no consumer for them.
    Raises: ReplyConsumerMissing, InvalidCopies.
    """
    header, body = envelope.framing.split(content)
    properties = decode_properties(header)
    headers = properties.get("headers")
    headers = headers if isinstance(headers, dict) else {}
    reply_to = None
    if properties.get("reply_to") == REPLY_TO_ME:
        if reply_address is None:
            raise ReplyConsumerMissing
        reply_to = reply_address.encode()
    copies = copies_of(headers)
    if not copies and reply_to is None and BCC not in headers:
        return envelope, content
    changed = envelope
    if reply_to is not None or BCC in headers:
        header = splice_header(header, {}, {BCC}, reply_to=reply_to)
        content = NATIVE.join(header, body)
        summary = scan_properties(header[12:])  # after class, weight and size
        changed = Envelope(envelope.exchange, envelope.routing_key, summary, NATIVE, envelope.opaque)
    if copies:
        summary = changed.summary._replace(is_marked=True)
        changed = Envelope(envelope.exchange, envelope.routing_key, summary, changed.framing, envelope.opaque)
        changed.copies = copies
    return changed, content


def copies_of(headers: FieldTable) -> tuple[str, ...]:
    """The routing keys in CC and BCC; entries that are not strings are ignored. Raises: InvalidCopies."""
    keys: list[str] = []
    for header in COPIES:
        field = headers.get(header)
        if field is None:
            continue
        if not isinstance(field.value, list):
            raise InvalidCopies(header=header, type=field.type_name)
        keys += [item.text for item in field.value if item.tag == "S"]
    return tuple(keys)
