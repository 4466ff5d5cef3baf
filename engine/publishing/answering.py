"""JSON answers of services (`amps.control`, `leveret.control`)."""

from collections.abc import Mapping

from ..context import HostContext
from ..messages.content import NATIVE, PropertyValue, encode_header
from ..messages.message import Envelope
from .arrival import publish_by_name


def answer_request(host: HostContext, properties: Mapping[str, PropertyValue], answer: object) -> None:
    """Publish an answer to the reply_to of a request, with its correlation_id. Without reply_to there is no answer."""
    reply_to = properties.get("reply_to")
    if not isinstance(reply_to, bytes) or not reply_to:
        return
    kept: dict[str, PropertyValue] = {"content_type": b"application/json"}
    if isinstance(properties.get("correlation_id"), bytes):
        kept["correlation_id"] = properties["correlation_id"]
    import json  # most brokers get no such request

    raw = json.dumps(answer).encode()
    reply = Envelope("", reply_to.decode("utf-8", "replace"))
    publish_by_name(host, reply, [NATIVE.join(encode_header(len(raw), kept), raw)])
