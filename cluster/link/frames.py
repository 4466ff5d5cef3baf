"""Frames of a link: octets in, messages out, and back. Pure.

| octets | type | |
|---|---|---|
| 0 | u32 | octets of the body |
| 4 | u8 | kind |
| 5 | | body |

All integers are big-endian. Bodies are JSON objects. A receiver ignores fields that it does not know, so that later
releases can add some. Frequent messages have bodies of a fixed layout:

| kind | body |
|---|---|
| OCTETS | u8 size of the head, u64 base LSN of the segment, u64 offset; behind the head the octets of the file |
| UNLINK | u64 base LSNs |
| ACK | u64 term, u64 LSN; a later release may add something |

GREET, PROVE and HELLO have the version of the link that the sender knows; both sides use the lower one. A body above
the limit of its kind is refused when the frame's head is read, before any of the body is stored.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Any

from ...journal import JournalError, TermTable

#: The version of the link that this program knows, and the oldest that it can use.
VERSION, VERSION_MIN = 1, 1
#: The most octets of a file in one frame.
PIECE_MAX = 256 * 1024
#: The most base LSNs in one UNLINK.
UNLINK_MAX = 4096
LSN_MAX = 2**63 - 1

HEAD = Struct(">IB")
_OCTETS_HEAD = Struct(">BQQ")
_ACK = Struct(">QQ")
#: The most octets of the head in the body of an OCTETS, some for later releases.
_OCTETS_HEAD_MAX = 255


class FrameFault(Exception):
    """The octets are not a frame that is expected. The link has to end. The text is for the log."""


# -- fields of JSON bodies ---------------------------------------------------------------------------------------------


def _read_number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= LSN_MAX:
        raise ValueError("no number from 0 to 2^63 - 1")
    return value


def _read_flag(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError("neither true nor false")
    return value


def _read_text(value: object) -> str:
    if type(value) is not str or len(value) > 4096:
        raise ValueError("no text of at most 4096 characters")
    return value


def _read_octets(value: object) -> bytes:
    return bytes.fromhex(_read_text(value))


def _read_names(value: object) -> frozenset[str]:
    if not isinstance(value, list):
        raise ValueError("no list of names")
    return frozenset(map(_read_text, value))


def _read_terms(value: object) -> TermTable:
    if type(value) is not str:
        raise ValueError("no term table")
    try:
        return TermTable.from_octets(value.encode())
    except JournalError as error:
        raise ValueError(str(error)) from None


def _read_status(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def _optional(read: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else read(value)


def _plain(value: Any) -> Any:
    return value


def _row(read: Callable[[object], object], write: Callable[[Any], object] = _plain, default: Any = MISSING) -> Any:
    """A field of a JSON body. A field with a default may be missing: older releases do not send it."""
    return field(default=default, metadata={"read": read, "write": write})


_number = partial(_row, _read_number)
_text = partial(_row, _read_text)
_flag = partial(_row, _read_flag)
_octets = partial(_row, _read_octets, bytes.hex)
_optional_octets = partial(_row, _optional(_read_octets), lambda value: value and value.hex())
_names = partial(_row, _read_names, sorted)
_terms = partial(_row, _read_terms, lambda terms: terms.octets.decode())
_status = partial(_row, _read_status)


# -- messages ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Greet:
    """The first frame, from the side that accepted the connection. `nonce`: empty if that side has no secret."""

    version: int = _number()
    nonce: bytes = _octets()


@dataclass(slots=True, frozen=True)
class Prove:
    """The answer to Greet: a nonce, and the proof that the side that connected knows the secret."""

    version: int = _number()
    nonce: bytes = _octets()
    proof: bytes = _octets()


@dataclass(slots=True, frozen=True)
class Proof:
    """The answer to Prove: the proof that the side that accepted the connection knows the secret."""

    proof: bytes = _octets()


@dataclass(slots=True, frozen=True)
class Hello:
    """A follower asks to join. The message describes the follower and its journal.

    level: the highest level that its program can read. term: of the leader that it found in etcd. journal_id: None if
    its directory is empty. end: LSN behind its last whole fsynced block. wants_copy: its journal is damaged. site: the
    site of its clients as its configuration describes it, for the broker; None: not described.
    """

    version: int = _number()
    cluster: str = _text()
    group: int = _number()
    name: str = _text()
    level: int = _number()
    term: int = _number()
    journal_id: bytes | None = _optional_octets()
    terms: TermTable = _terms()
    end: int = _number()
    wants_copy: bool = _flag(default=False)
    site: Mapping[str, object] | None = _row(_optional(_read_status), default=None)


@dataclass(slots=True, frozen=True)
class Welcome:
    """The leader's octets follow. They begin in the segment `base_lsn` at `offset`, with the record `lsn`.

    oldest: base LSN of the leader's oldest segment; the follower needs no older one. needs: features that a program
    must know to open the leader's journal.
    """

    version: int = _number()
    level: int = _number()
    journal_id: bytes = _octets()
    terms: TermTable = _terms()
    base_lsn: int = _number()
    offset: int = _number()
    lsn: int = _number()
    oldest: int = _number()
    needs: frozenset[str] = _names()


@dataclass(slots=True, frozen=True)
class Cut:
    """Before Welcome: the follower first drops its records from `lsn` on, which the leader does not have."""

    lsn: int = _number()


@dataclass(slots=True, frozen=True)
class Copy:
    """Before Welcome: a full copy follows, of about `size` octets. It is whole when it has the record before `until`.

    is_beside: write it into a directory beside the follower's own, which it replaces when it is whole.
    """

    until: int = _number()
    size: int = _number()
    is_beside: bool = _flag()


@dataclass(slots=True, frozen=True)
class No:
    """The other side is refused. `is_final`: it will be refused again until an operator has changed something."""

    why: str = _text()
    is_final: bool = _flag(default=False)


@dataclass(slots=True, frozen=True)
class Octets:
    """Octets of the leader's segment `base_lsn` from `offset` on, as they are in the file."""

    base_lsn: int
    offset: int
    octets: bytes | memoryview


@dataclass(slots=True, frozen=True)
class Unlink:
    """The base LSNs of segments that the leader deleted."""

    base_lsns: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class Needs:
    """Names of features that a program must know to open a journal with the octets behind this frame."""

    needs: frozenset[str] = _names()


@dataclass(slots=True, frozen=True)
class Ack:
    """The follower has fsynced all records below `lsn`. `term`: of the leader that it follows."""

    term: int
    lsn: int


@dataclass(slots=True, frozen=True)
class Beacon:
    """Tells a follower that the leader is alive. `status`: figures of the leader's machine, for people."""

    term: int = _number()
    agreed: int = _number()
    wall_ms: int = _number()
    status: Mapping[str, object] = _status()


@dataclass(slots=True, frozen=True)
class Order:
    """An operator's command for the follower, which came to the leader: `drain`, `revive` or `reload`.

    Later releases may send other verbs; a follower ignores those.
    """

    verb: str = _text()


@dataclass(slots=True, frozen=True)
class Status:
    """Tells the leader that a follower is alive. `status`: figures of the follower's machine, for people."""

    wall_ms: int = _number()
    status: Mapping[str, object] = _status()


@dataclass(slots=True, frozen=True)
class Client:
    """A follower asks the leader to serve a client. Once the leader answers Accept, the connection is the client's.

    cluster, group: as in Hello. name: of the node to which the client is connected. service: the frontend that it
    wants. header: PROXY header, version 2, with the client's address.
    """

    version: int = _number()
    cluster: str = _text()
    group: int = _number()
    name: str = _text()
    service: str = _text()
    header: bytes = _octets()


@dataclass(slots=True, frozen=True)
class Accept:
    """The octets behind this frame, in both directions, are the client's."""


_Introducing = Greet | Prove | Proof | Hello | Client | Accept | No
Message = _Introducing | Welcome | Cut | Copy | Octets | Needs | Unlink | Ack | Beacon | Order | Status

#: Kind -> message, and the most octets of its body.
_KINDS: dict[int, tuple[type[Any], int]] = {
    1: (Greet, 4096),
    2: (Prove, 4096),
    3: (Proof, 4096),
    4: (Hello, 1024 * 1024),
    5: (Welcome, 1024 * 1024),
    6: (Cut, 4096),
    7: (Copy, 4096),
    8: (No, 32 * 1024),
    9: (Octets, _OCTETS_HEAD_MAX + PIECE_MAX),
    10: (Unlink, 8 * UNLINK_MAX),
    11: (Ack, 4096),
    12: (Beacon, 64 * 1024),
    13: (Status, 64 * 1024),
    14: (Client, 16 * 1024),
    15: (Accept, 4096),
    16: (Needs, 64 * 1024),
    17: (Order, 4096),
}
_KIND_OF = {message: kind for kind, (message, _) in _KINDS.items()}
_OCTETS_KIND = _KIND_OF[Octets]


# -- writing -----------------------------------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """The frame of a message. Raises: FrameFault: a receiver would refuse its size."""
    kind = _KIND_OF[type(message)]
    if isinstance(message, Octets):
        return octets_head(message.base_lsn, message.offset, len(message.octets)) + message.octets
    if isinstance(message, Unlink):
        body = Struct(f">{len(message.base_lsns)}Q").pack(*message.base_lsns)
    elif isinstance(message, Ack):
        body = _ACK.pack(message.term, message.lsn)
    else:
        body = json.dumps(
            {row.name: row.metadata["write"](getattr(message, row.name)) for row in fields(message)},
            separators=(",", ":"),
        ).encode()
    if len(body) > _KINDS[kind][1]:
        raise FrameFault(f"{type(message).__name__} of {len(body)} octets, more than {_KINDS[kind][1]}")
    return HEAD.pack(len(body), kind) + body


def check_status(status: Mapping[str, object]) -> None:
    """Raises: FrameFault: the status is too large for a Beacon or a Status."""
    encode(Beacon(LSN_MAX, LSN_MAX, LSN_MAX, status))


def octets_head(base_lsn: int, offset: int, size: int) -> bytes:
    """The beginning of a frame of `Octets`. The caller sends the `size` octets behind it, without copying them."""
    assert size <= PIECE_MAX
    return HEAD.pack(_OCTETS_HEAD.size + size, _OCTETS_KIND) + _OCTETS_HEAD.pack(_OCTETS_HEAD.size, base_lsn, offset)


# -- reading -----------------------------------------------------------------------------------------------------------


class Decoder:
    """Decodes octets, which may come in any pieces, into messages.

        decoder.receive(data)
        for message in decoder.messages(): ...

    A message that `expect` does not name is a fault. After a fault the decoder returns nothing more.
    """

    __slots__ = ("_expected", "_fault", "_needed", "_parts", "_size")

    def __init__(self, *expected: type[Any]) -> None:
        self._parts: list[bytes | memoryview] = []
        self._size = 0  # octets in `_parts`
        self._needed = HEAD.size  # octets until the next step is possible
        self._fault: FrameFault | None = None
        self.expect(*expected)

    def expect(self, *expected: type[Any]) -> None:
        """Set the messages that may come next."""
        self._expected = expected

    def receive(self, data: bytes | memoryview) -> None:
        """Add octets, which must not change later."""
        if data:
            self._parts.append(data)
            self._size += len(data)

    def messages(self) -> Iterator[Message]:
        """Yield the messages that are complete. Raises: FrameFault, at the first frame that is not expected."""
        if self._fault is not None:
            raise self._fault
        try:
            yield from self._messages()
        except FrameFault as fault:
            self._fault = fault
            raise

    def end(self) -> None:
        """Note that the connection has ended. Raises: FrameFault: a frame is incomplete."""
        if self._size:
            raise FrameFault(f"cut short: {self._size} octets of a frame of {self._needed} or more")

    def take_rest(self) -> bytes:
        """Remove the octets behind the last message, and return them."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return rest

    def _messages(self) -> Iterator[Message]:
        while self._size >= self._needed:
            view = memoryview(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))
            position = 0
            while True:
                left = len(view) - position
                if left < HEAD.size:
                    self._needed = HEAD.size
                    break
                size, kind = HEAD.unpack_from(view, position)
                message = self._message_of(kind, size)
                self._needed = HEAD.size + size
                if left < self._needed:
                    break
                start = position + HEAD.size
                position = start + size
                # The caller may call `take_rest` while it handles the message.
                self._parts, self._size = [view[position:]], len(view) - position
                self._needed = HEAD.size
                yield _read_body(message, view[start:position])
            self._parts, self._size = ([view[position:]], left) if left else ([], 0)

    def _message_of(self, kind: int, size: int) -> type[Any]:
        """Raises: FrameFault."""
        message, size_max = _KINDS.get(kind, (None, 0))
        if message is None:
            raise FrameFault(f"a frame of unknown kind {kind}")
        if message not in self._expected:
            expected = " or ".join(one.__name__ for one in self._expected)
            raise FrameFault(f"{message.__name__}, but {expected or 'nothing'} is expected")
        if size > size_max:
            raise FrameFault(f"{message.__name__} of {size} octets, more than {size_max}")
        return message


def _read_body(message: type[Any], body: memoryview) -> Any:
    """Raises: FrameFault."""
    try:
        if message is Octets:
            size, base_lsn, offset = _OCTETS_HEAD.unpack_from(body)
            if not _OCTETS_HEAD.size <= size <= len(body) or len(body) - size > PIECE_MAX:
                raise ValueError(f"its head has {size} octets")
            return Octets(_read_number(base_lsn), _read_number(offset), body[size:])
        if message is Ack:
            term, lsn = _ACK.unpack_from(body)
            return Ack(_read_number(term), _read_number(lsn))
        if message is Unlink:
            return Unlink(tuple(map(_read_number, Struct(f">{len(body) // 8}Q").unpack(body))))
        values = json.loads(bytes(body), parse_constant=_no_number)
        if not isinstance(values, dict):
            raise ValueError("no object")
        return message(**{row.name: _read_field(row.name, row, values) for row in fields(message)})
    except (ValueError, RecursionError, StructError) as error:
        raise FrameFault(f"{message.__name__}: {error}") from None


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _read_field(name: str, row: Any, values: Mapping[str, object]) -> object:
    if name not in values:
        if row.default is MISSING:
            raise FrameFault(f"the field {name} is missing")
        return row.default
    try:
        return row.metadata["read"](values[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
