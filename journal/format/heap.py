"""Heap entries: the variable part of a record, with one schema for each kind, version first.

All numbers are little-endian except those inside `content` and `arguments`, which are AMQP's own octets. Names are
UTF-8 as AMQP carries them (undecodable octets survive as surrogates). Readers ignore octets after the last field, so
version 1 can get more fields there. Not in published, moved, define, head and texts, where the last field takes the
rest of the entry. Any other change is version 2.

- published, moved: `CONTENT_HEAD` = u8 version, u8 octets of routing key, u16 queues reached, i64 expiry (wall ms, 0
  never), i64 id of the message that died (0: this is no dead letter); then i32 id of each queue reached (0: the log of
  the virtual host), routing key, content = u32 big-endian octets of header payload, header payload, body.
- enqueued: nothing, or (link = 0) u8 version, 7 octets 0, i64 LSN of the content's record.
- define: u8 version, u8 object, u16 0, i32 id of its virtual host (0 none), name.
- declared, undeclared: u8 version, u8 object, u8 properties (1 durable, 2 auto-delete, 4 internal, 8 exclusive), u8
  octets of type, i32 0, type, u32 octets of arguments, arguments (of queues and exchanges an AMQP field table with its
  length; of users, policies, parameters and virtual hosts JSON, see access_records.py; or empty).
- bound, unbound: u8 version, u8 kind of the destination (queue or exchange), u16 octets of routing key, i32 id of the
  destination, routing key, u32 octets of arguments, arguments (an AMQP field table with its length, or empty).
- terminal kinds with flag range, when the ids have gaps: u8 version, 3 octets 0, u32 runs of consecutive ids, then of
  each run i64 first id and u32 count.
- head: u8 version, 7 octets 0, 16 octets journal id, i64 begin and i64 end of the last checkpoint (0 none), text: name
  of the program that wrote it.
- ids_seen: u8 version, u8 0, u16 octets of address, u32 ids that the address remembers, u32 ids here, address; then of
  each id i64 message id, u16 octets, text.
- snapshot: see journal/recovery/snapshot.py. footer: see journal/disk/segment.py.
- others: nothing, or a text: u8 version, 3 octets 0, UTF-8 (name of a connection, consumer tag, a reason; as JSON why a
  connection is blocked, settings, what happened in the cluster).

Source: ruling 21.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from .errors import BadRecord

VERSION = 1

CONTENT_HEAD = Struct("<BBHqq")
CAUSE_ID_OFFSET = CONTENT_HEAD.size - 8
_DEFINE = Struct("<BBHi")
_DECLARED = Struct("<BBBBi")
_BOUND = Struct("<BBHi")
_HEAD = Struct("<BBHI16sqq")
_LONG_LINK = Struct("<B7xq")
_TEXT = Struct("<B3x")
_RUNS = Struct("<B3xI")
_RUN = Struct("<qI")
_LENGTH = Struct("<I")
_IDS_SEEN = Struct("<BBHII")
_ID_SEEN = Struct("<qH")
_IDS = [Struct(f"<{count}i") for count in range(17)]  # making one costs more than packing

IS_DURABLE, IS_AUTO_DELETE, IS_INTERNAL, IS_EXCLUSIVE = 1, 2, 4, 8


class Content(NamedTuple):
    """Heap of `published` and `moved`. `content`: as the engine frames it."""

    routing_key: bytes
    queue_ids: tuple[int, ...]
    expires_ms: int
    cause_id: int
    content: bytes


class Define(NamedTuple):
    """Heap of `define`; the id is the record's `arg`. `object_type`: `QUEUE`, `EXCHANGE`, ... of record.py."""

    object_type: int
    vhost_id: int
    name: str


class Declared(NamedTuple):
    """Heap of `declared` and `undeclared`. `object_type`: as in `Define`. `type`: that of an exchange; `arguments`:
    octets of an AMQP field table, or of JSON, or empty.

    The record has the id of the object: `queue_id` or `address_id`; of other objects `arg`.
    """

    object_type: int
    properties: int
    type: str
    arguments: bytes


class Bound(NamedTuple):
    """Heap of `bound` and `unbound`; the source exchange is the record's `address_id`.

    `object_type`: the type of the destination `target_id`, `QUEUE` or `EXCHANGE`.
    """

    object_type: int
    target_id: int
    routing_key: bytes
    arguments: bytes


class IdsSeen(NamedTuple):
    """Heap of `ids_seen`; the virtual host is the record's `arg`.

    `size`: the number of ids that the address remembers. `ids`: duplicate ids, each with the id of its message.
    """

    address: str
    size: int
    ids: Sequence[tuple[str, int]]


class Head(NamedTuple):
    """Heap of `head`."""

    journal_id: bytes
    checkpoint_begin: int
    checkpoint_end: int
    program: str


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _unpack_head(layout: Struct, heap: bytes, entry: str) -> tuple[int, ...]:
    """The fixed fields. `entry`: what the table in docs/journal-format.md calls the entry."""
    try:
        fields = layout.unpack_from(heap)
    except StructError as error:
        raise BadRecord(f"a heap entry ({entry}) is cut short") from error
    if fields[0] != VERSION:
        raise BadRecord(f"a heap entry ({entry}) of version {fields[0]}, this program reads version {VERSION}")
    return fields


def _slice(heap: bytes, start: int, length: int, entry: str) -> bytes:
    if start + length > len(heap):
        raise BadRecord(f"a heap entry ({entry}) is cut short")
    return heap[start : start + length]


# -- content --------------------------------------------------------------------------------------------------------


def content_prefix(routing_key: bytes, queue_ids: Sequence[int], expires_ms: int, cause_id: int) -> bytes:
    """The part of a heap entry before the content of a published message; the same for a run of like messages.

    Raises: BadRecord when the key is longer than 255 octets or more than 65535 queues were reached.
    """
    try:
        head = CONTENT_HEAD.pack(VERSION, len(routing_key), len(queue_ids), expires_ms, cause_id)
        count = len(queue_ids)
        ids = _IDS[count] if count < len(_IDS) else Struct(f"<{count}i")
        return head + ids.pack(*queue_ids) + routing_key
    except StructError as error:
        raise BadRecord(f"a heap entry (content) cannot hold this: {error}") from error


def decode_content(heap: bytes) -> Content:
    """The content in a heap entry of `published` or `moved`. Raises: BadRecord."""
    _, key_size, queue_count, expires_ms, cause_id = _unpack_head(CONTENT_HEAD, heap, "content")
    position = CONTENT_HEAD.size + 4 * queue_count
    key = _slice(heap, position, key_size, "content")
    queue_ids = Struct(f"<{queue_count}i").unpack_from(heap, CONTENT_HEAD.size)
    content = heap[position + key_size :]
    if len(content) < 4 or 4 + int.from_bytes(content[:4], "big") > len(content):
        raise BadRecord("a heap entry (content) is cut short")
    return Content(key, queue_ids, expires_ms, cause_id, content)


# -- names and topology ---------------------------------------------------------------------------------------------


def encode_define(define: Define) -> bytes:
    """Heap entry of `define`."""
    return _DEFINE.pack(VERSION, define.object_type, 0, define.vhost_id) + _encoded(define.name)


def decode_define(heap: bytes) -> Define:
    """Inverse of `encode_define`. Raises: BadRecord."""
    _, object_type, _, vhost_id = _unpack_head(_DEFINE, heap, "define")
    return Define(object_type, vhost_id, _decoded(heap[_DEFINE.size :]))


def encode_declared(declared: Declared) -> bytes:
    """Heap entry of `declared`."""
    type_ = _encoded(declared.type)
    head = _DECLARED.pack(VERSION, declared.object_type, declared.properties, len(type_), 0)
    return head + type_ + _LENGTH.pack(len(declared.arguments)) + declared.arguments


def decode_declared(heap: bytes) -> Declared:
    """Inverse of `encode_declared`. Raises: BadRecord."""
    _, object_type, properties, type_size, _ = _unpack_head(_DECLARED, heap, "declared")
    position = _DECLARED.size
    type_ = _decoded(_slice(heap, position, type_size, "declared"))
    return Declared(object_type, properties, type_, _arguments(heap, position + type_size, "declared"))


def encode_bound(bound: Bound) -> bytes:
    """Heap entry of `bound` and `unbound`."""
    head = _BOUND.pack(VERSION, bound.object_type, len(bound.routing_key), bound.target_id)
    return head + bound.routing_key + _LENGTH.pack(len(bound.arguments)) + bound.arguments


def decode_bound(heap: bytes) -> Bound:
    """Inverse of `encode_bound`. Raises: BadRecord."""
    _, object_type, key_size, target_id = _unpack_head(_BOUND, heap, "bound")
    key = _slice(heap, _BOUND.size, key_size, "bound")
    return Bound(object_type, target_id, key, _arguments(heap, _BOUND.size + key_size, "bound"))


def _arguments(heap: bytes, position: int, entry: str) -> bytes:
    length = _LENGTH.unpack(_slice(heap, position, 4, entry))[0]
    return _slice(heap, position + 4, length, entry)


# -- the rest -------------------------------------------------------------------------------------------------------


def encode_head(head: Head) -> bytes:
    """Heap entry of `head`."""
    return _HEAD.pack(VERSION, 0, 0, 0, head.journal_id, head.checkpoint_begin, head.checkpoint_end) + _encoded(
        head.program
    )


def decode_head(heap: bytes) -> Head:
    """Inverse of `encode_head`. Raises: BadRecord."""
    _unpack_head(_HEAD, heap, "head")
    _, _, _, _, journal_id, begin, end = _HEAD.unpack_from(heap)
    return Head(journal_id, begin, end, _decoded(heap[_HEAD.size :]))


def encode_ids_seen(seen: IdsSeen) -> bytes:
    """Heap entry of `ids_seen`."""
    address = _encoded(seen.address)
    parts = [_IDS_SEEN.pack(VERSION, 0, len(address), seen.size, len(seen.ids)), address]
    for id_, message_id in seen.ids:
        text = _encoded(id_)
        parts += (_ID_SEEN.pack(message_id, len(text)), text)
    return b"".join(parts)


def decode_ids_seen(heap: bytes) -> IdsSeen:
    """Inverse of `encode_ids_seen`. Raises: BadRecord."""
    _, _, address_size, size, count = _unpack_head(_IDS_SEEN, heap, "ids seen")
    position = _IDS_SEEN.size + address_size
    address = _decoded(_slice(heap, _IDS_SEEN.size, address_size, "ids seen"))
    ids = []
    for _ in range(count):
        message_id, length = _ID_SEEN.unpack(_slice(heap, position, _ID_SEEN.size, "ids seen"))
        position += _ID_SEEN.size + length
        ids.append((_decoded(_slice(heap, position - length, length, "ids seen")), message_id))
    return IdsSeen(address, size, ids)


def encode_link(content_lsn: int) -> bytes:
    """Heap entry of an `enqueued` record when the distance to the content does not fit into `link`."""
    return _LONG_LINK.pack(VERSION, content_lsn)


def decode_link(heap: bytes) -> int:
    """Inverse of `encode_link`. Raises: BadRecord."""
    return _unpack_head(_LONG_LINK, heap, "far link")[1]


def encode_runs(ids: Sequence[int]) -> bytes:
    """Heap entry of a terminal record with flag range: the ids (rising) that it covers."""
    runs: list[list[int]] = []
    for id_ in ids:
        if runs and id_ == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([id_, 1])
    return _RUNS.pack(VERSION, len(runs)) + b"".join(_RUN.pack(first, count) for first, count in runs)


def decode_runs(heap: bytes) -> list[tuple[int, int]]:
    """(first id, length) of each run. Raises: BadRecord."""
    _, count = _unpack_head(_RUNS, heap, "runs")
    runs = _slice(heap, _RUNS.size, count * _RUN.size, "runs")
    return [(first, length) for first, length in _RUN.iter_unpack(runs)]


def encode_text(text: str) -> bytes:
    """Heap entry of the kinds with a text; empty for empty text."""
    return _TEXT.pack(VERSION) + _encoded(text) if text else b""


def decode_text(heap: bytes) -> str:
    """Inverse of `encode_text`. Raises: BadRecord."""
    if not heap:
        return ""
    _unpack_head(_TEXT, heap, "text")
    return _decoded(heap[_TEXT.size :])
