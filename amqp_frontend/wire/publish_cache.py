"""Caches of a connection for similar publishes: decoded arguments, and summaries of property lists.

Their size is bounded whatever the peer sends: a full cache is cleared. Source: performance page 4, rules 3 and 4.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from ...engine import ContentError, PropertySummary, Shape, Shapes, scan_properties
from ...settings.slotted import slotted
from .codec import METHODS, decode_method
from .layout import FRAME_OVERHEAD, HEADER_FIXED
from .peer_errors import PropertiesUndecodable

PUBLISH = 60 << 16 | 40
#: Maximum property lists that a connection caches.
PROPERTY_LISTS_MAX = 512
#: Maximum publish frames, and kinds, that a connection caches: a client may publish to 1,000 queues in turn.
KINDS_MAX = 2048
#: Octets of a property list above which it is scanned each time.
_CACHED_SIZE_MAX = 256
#: Summary -> the one object for equal summaries, so that runs are compared by identity. Cleared when it is full: then
#: equal messages may be of two kinds.
_INTERNED: dict[PropertySummary, PropertySummary] = {}


class PublishArguments(NamedTuple):
    """basic.publish, decoded. `routing`: the octets of exchange and routing key, as deliveries have them."""

    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool
    routing: bytes


@slotted
class PublishKind:
    """A kind of message. Messages with equal basic.publish frames and equal summaries of properties are of one kind.

    A connection has one object for each kind. `known_route`: the session's data for the kind; the reader does not use
    it.
    """

    method_frame: bytes
    summary: PropertySummary
    known_route: Any = None


#: Octets of a cached head besides the payload of the method frame: the rest of that frame, and the header frame up to
#: the size of the body. All messages of a kind have the same head.
HEAD_FIXED = FRAME_OVERHEAD + HEADER_FIXED - 8
#: Maximum octets of a basic.publish frame whose head is cached: `read_mixed` reads only the last octet of the frame's
#: size to find it.
_METHOD_SIZE_MAX = 255 + FRAME_OVERHEAD
#: Maximum number of forms that are cached for a head. A list of another form is looked up by its summary, which takes
#: longer.
FORMS_MAX = 8


class Form(NamedTuple):
    """A form of property lists, and the kind of messages that have it.

    A list, read as one number, has the form if `number & mask == value`. The form is that of a shape (`Shapes`), or
    that of a single list.
    """

    mask: int
    value: int
    kind: PublishKind


@slotted
class Forms:
    """The forms of property lists that messages with one head have. `seen`: the forms so far, FORMS_MAX at most.

    Another form is looked up in `kinds`, an entry of `PublishCache.kinds`, and in `shapes`, an entry of
    `Shapes.by_length`.
    """

    seen: list[Form]
    kinds: dict[int, PublishKind]
    shapes: list[Shape]


class PublishHead(NamedTuple):
    """The cached data of messages with the same basic.publish frame and the same size of property list.

    `unpack`: (octets, offset of the message) -> body size, property list, the octets from the header frame's end to the
    body as one number. `method_size`: octets of the basic.publish frame. `head_size`: octets before the body.
    `mask`, `value`, `kind`: the newest of `forms`.
    """

    unpack: Callable[[bytes, int], tuple[int, bytes, int]]
    method_size: int
    head_size: int
    mask: int
    value: int
    kind: PublishKind
    forms: Forms


class PublishCache:
    """The caches of a connection. `summaries`: property list -> summary. `arguments`: basic.publish frame -> arguments.

    `kinds`: basic.publish frame -> identity of the summary -> kind. `shapes`: summaries of property lists that
    differ from message to message; a list with a shape is not in `summaries`. `heads`: basic.publish frame and
    beginning of the header frame (`HEAD_FIXED` octets and the method's payload) -> data of such messages.
    """

    __slots__ = ("_kind_count", "arguments", "heads", "kinds", "shapes", "summaries")

    def __init__(self) -> None:
        self.summaries: dict[bytes, PropertySummary] = {}
        self.shapes = Shapes()
        self.arguments: dict[bytes, PublishArguments] = {}
        self.kinds: dict[bytes, dict[int, PublishKind]] = {}
        self.heads: dict[bytes, PublishHead] = {}
        self._kind_count = 0

    def kind_of(self, method_frame: bytes, summary: PropertySummary) -> PublishKind:
        """The kind of messages with this basic.publish frame and this summary."""
        kinds = self.kinds.get(method_frame)
        kind = None if kinds is None else kinds.get(id(summary))
        if kind is None:
            if self._kind_count >= KINDS_MAX:
                self.kinds.clear()
                self.heads.clear()
                self._kind_count = 0
            self._kind_count += 1
            kind = self.kinds.setdefault(method_frame, {})[id(summary)] = PublishKind(method_frame, summary)
        return kind

    def add_head(self, data: bytes, start: int, kind: PublishKind) -> None:
        """Cache the head of a message that was read with all checks; its kind is one of `kinds`.

        A head with a longer method than `_METHOD_SIZE_MAX`, or a longer list than shapes may have, is not cached.
        """
        method_size = len(kind.method_frame)
        header_start = start + method_size
        key = data[start : header_start + HEADER_FIXED - 8]
        list_size = int.from_bytes(data[header_start + 3 : header_start + 7], "big") - 12
        shapes = self.shapes.of_length(list_size)
        if method_size > _METHOD_SIZE_MAX or key in self.heads or shapes is None:
            return
        if len(self.heads) >= KINDS_MAX:
            self.heads.clear()
        list_start = header_start + HEADER_FIXED
        mask, value = _shape_of(data[list_start : list_start + list_size], shapes)[:2]
        self.heads[key] = PublishHead(
            Struct(f">{len(key)}xQ{list_size}sQ").unpack_from,
            method_size,
            len(key) + 8 + list_size + 8,
            mask,
            value,
            kind,
            Forms([Form(mask, value, kind)], self.kinds[kind.method_frame], shapes),
        )

    def other_kind(self, key: bytes, head: PublishHead, properties: bytes) -> PublishKind | None:
        """The kind of a message whose property list does not have the newest form of `head`.

        None: the message has to be read with all checks.
        """
        number = int.from_bytes(properties, "big")
        forms = head.forms
        for mask, value, kind in forms.seen:
            if number & mask == value:
                return kind
        mask, value, summary = _shape_of(properties, forms.shapes)
        summary = summary or self.summaries.get(properties)
        found = None if summary is None else forms.kinds.get(id(summary))
        if found is not None and len(forms.seen) < FORMS_MAX:
            forms.seen.append(Form(mask, value, found))
            self.heads[key] = head._replace(mask=mask, value=value, kind=found)
        return found

    def summary_of(self, properties: bytes) -> PropertySummary:
        """The summary of a property list, which is scanned if neither it nor its shape is cached.

        Raises: PropertiesUndecodable (541).
        """
        summary = self.shapes.summary_of(properties) or self.summaries.get(properties)
        if summary is None:
            try:
                summary = scan_properties(properties)
            except ContentError:
                raise PropertiesUndecodable from None
            summary = _INTERNED.setdefault(summary, summary)
            if len(_INTERNED) > 4 * PROPERTY_LISTS_MAX:
                _INTERNED.clear()
            if not self.shapes.learn(properties, summary) and len(properties) <= _CACHED_SIZE_MAX:
                if len(self.summaries) >= PROPERTY_LISTS_MAX:
                    self.summaries.clear()
                self.summaries[properties] = summary
        return summary

    def is_valid(self, properties: bytes) -> bool:
        """Whether a property list is known to be valid: its summary or its shape is cached."""
        return properties in self.summaries or self.shapes.find(properties) is not None

    def arguments_of(self, method_frame: bytes) -> PublishArguments:
        """The decoded arguments of a basic.publish frame, with a cache.

        Raises: UndecodableArguments, MalformedShortString.
        """
        known = self.arguments.get(method_frame)
        if known is None:
            known = _publish_arguments(method_frame[11:-1])
            if len(self.arguments) >= KINDS_MAX:
                self.arguments.clear()
            self.arguments[method_frame] = known
        return known


def _publish_arguments(raw: bytes) -> PublishArguments:
    """Decode the octets after class and method id, without a loop over fields: a third of the time of `decode_method`.

    The time matters where each message has a new routing key, so that no cache helps.

    Raises: as `decode_method`, which decodes all irregular octets.
    """
    try:
        exchange_end = 3 + raw[2]
        key_start = exchange_end + 1
        key_end = key_start + raw[exchange_end]
        if len(raw) == key_end + 1:
            exchange, routing_key = raw[3:exchange_end].decode(), raw[key_start:key_end].decode()
            return PublishArguments(exchange, routing_key, bool(raw[key_end] & 1), bool(raw[key_end] & 2), raw[2:-1])
    except (IndexError, UnicodeDecodeError):
        pass
    method: Any = decode_method(METHODS[PUBLISH], raw)
    return PublishArguments(method.exchange, method.routing_key, method.mandatory, method.immediate, raw[2:-1])


def _shape_of(properties: bytes, shapes: list[Shape]) -> Shape | tuple[int, int, None]:
    """The shape of a property list. If none is known: a mask and value that match this list alone, and None."""
    number = int.from_bytes(properties, "big")
    for shape in shapes:
        if number & shape[0] == shape[1]:
            return shape
    return (1 << 8 * len(properties)) - 1, number, None
