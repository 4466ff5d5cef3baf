"""The layout, octet by octet, and that every record comes back as it went in."""

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.engine import ContentColumns
from leveret.engine.events import EventKind
from leveret.engine.messages.content import NATIVE
from leveret.journal.format import block as block_module
from leveret.journal.format import heap as heap_module
from leveret.journal.format import record as record_module
from leveret.journal.format.block import (
    HEADER_SIZE,
    IS_GAP,
    BlockBuilder,
    encode_gap,
    encode_records,
    read_block,
)
from leveret.journal.format.errors import BadRecord
from leveret.journal.format.heap import (
    Bound,
    Declared,
    Define,
    Head,
    content_prefix,
    decode_bound,
    decode_content,
    decode_declared,
    decode_define,
    decode_head,
    decode_link,
    decode_text,
    encode_bound,
    encode_declared,
    encode_define,
    encode_head,
    encode_link,
    encode_text,
)
from leveret.journal.format.names import Names
from leveret.journal.format.record import (
    CODE_OF,
    DEFINE,
    DURABLE,
    ENQUEUED,
    EXCHANGE,
    HEAD,
    KIND_NAMES,
    PUBLISHED,
    QUEUE,
    RECORD,
    TERMINAL_CODES,
    VHOST,
    Record,
    from_fields,
)
from leveret.journal.recovery.recovered import MessageState, RecoveredMessage, RecoveredQueue
from leveret.journal.recovery.snapshot import load_part, snapshot_record

SAMPLE = Record(
    kind=4, ts_us=0x0102030405060708, msg_id=0x1112131415161718, arg=0x2122232425262728, flags=0x31, priority=0x32,
    reason=0x33, address_id=0x41424344, queue_id=0x51525354, consumer_id=0x61626364, conn_id=0x71727374, attempt=0x8182,
    size=0x91929394, link=0xA1A2A3A4, heap=b"heap!",
)  # fmt: skip

#: offset, octets
GOLDEN_RECORD = [
    (0, "0807060504030201"),
    (8, "1817161514131211"),
    (16, "2827262524232221"),
    (24, "07000000"),
    (28, "04"),
    (29, "31"),
    (30, "32"),
    (31, "33"),
    (32, "44434241"),
    (36, "54535251"),
    (40, "64636261"),
    (44, "74737271"),
    (48, "8281"),
    (50, "0000"),
    (52, "94939291"),
    (56, "05000000"),
    (60, "a4a3a2a1"),
]


@pytest.mark.parametrize("offset, octets", GOLDEN_RECORD)
def test_record_layout(offset: int, octets: str) -> None:
    """Each field where the table of record.py has it."""
    expected = bytes.fromhex(octets)
    assert SAMPLE.pack(7)[offset : offset + len(expected)] == expected


def test_record_layout_is_complete() -> None:
    """Nothing between the fields."""
    assert b"".join(bytes.fromhex(octets) for _, octets in GOLDEN_RECORD) == SAMPLE.pack(7)


def test_block_layout() -> None:
    """Header, record, heap; the CRC is zlib's of all behind it; lag tells the durable LSN."""
    data = bytes(encode_records(1000, 2, [SAMPLE], lag=3))
    rest = bytes.fromhex("4c564a310100000005000000e8030000000000000200000003000000")
    rest += SAMPLE.pack(0) + b"heap!"
    assert data == crc32(rest).to_bytes(4, "little") + rest
    block = read_block(memoryview(data), 0, 77)
    assert block is not None
    assert (block.offset, block.end_lsn, block.header.durable_lsn, block.header.mode) == (77, 1001, 997, "commit")
    assert list(block.records()) == [(1000, SAMPLE)]


def test_gap_layout() -> None:
    """A header and an LSN."""
    block = read_block(memoryview(encode_gap(5, 9)), 0, 0)
    assert block is not None
    assert block.header.flags & IS_GAP and block.end_lsn == 9 and len(block.data) == HEADER_SIZE + 8


TWO = [
    RecoveredMessage(1, 10, 3, 0, MessageState()),
    RecoveredMessage(2, 11, 3, 9, MessageState(1, 0, 7, 5)),
]

GOLDEN_HEAPS = [
    (
        content_prefix(b"key", (7, 8), 0x10, 0x20) + b"\0\0\0\1hbody",
        "01 03 0200 1000000000000000 2000000000000000 07000000 08000000 6b6579 00000001 68 626f6479",
    ),
    (encode_define(Define(3, 1, "q")), "01 03 0000 01000000 71"),
    (encode_declared(Declared(2, 1, "topic", b"\0\0\0\0")), "01 02 01 05 00000000 746f706963 04000000 00000000"),
    (encode_bound(Bound(3, 9, b"k", b"")), "01 03 0100 09000000 6b 00000000"),
    (encode_link(0x0102), "01 00000000000000 0201000000000000"),
    (encode_text("hi"), "01 000000 6869"),
    (
        encode_head(Head(bytes(range(16)), 5, 6, "p")),
        "01 00 0000 00000000 000102030405060708090a0b0c0d0e0f 0500000000000000 0600000000000000 70",
    ),
    (
        snapshot_record(4, TWO).heap,
        "01 02 0000 02000000 01000000 01000000 0100000000000000 0a00000000000000 02000000 03000000"
        " 0000000000000000 0900000000000000 0200000000000000 0700000000000000 01000000 00000000 05 00000000000000",
    ),
]  # fmt: skip


@pytest.mark.parametrize("heap, octets", GOLDEN_HEAPS)
def test_heap_layouts(heap: bytes, octets: str) -> None:
    """The schemas of heap.py and snapshot.py, version 1."""
    assert heap.hex() == octets.replace(" ", "")


DECODERS = [decode_content, decode_define, decode_declared, decode_bound, decode_link, decode_head, decode_text]


@pytest.mark.parametrize("decode", DECODERS)
def test_heaps_that_cannot_be(decode: object) -> None:
    """Cut short, or of a later version: an error of ours."""
    for heap in (b"\1", b"\2" + bytes(80), b"\1\xff\xff\xff" + b"\xff" * 40):
        try:
            decode(heap)  # type: ignore[operator]
        except BadRecord:
            continue
        assert heap[0] == 1


@given(st.binary(max_size=80))
def test_any_heap_is_decoded_or_refused(data: bytes) -> None:
    """Never another exception."""
    for decode in (*DECODERS, lambda heap: load_part(heap, RecoveredQueue())):
        try:
            decode(data)
        except BadRecord:
            pass


def test_codes_are_for_ever() -> None:
    """Every event has one, none has two; those that were given stay."""
    assert set(CODE_OF) == set(EventKind)
    assert len(set(KIND_NAMES)) == len(KIND_NAMES) == len(EventKind) + 6
    assert [CODE_OF[kind] for kind in EventKind] == list(range(1, 38))
    assert set(range(10, 20)) == TERMINAL_CODES


i64 = st.integers(-(2**63), 2**63 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
u32, u16, u8 = st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.integers(0, 255)
records = st.builds(
    Record, u8, i64.filter(bool), i64, i64, u8, u8, u8, i32, i32, i32, i32, u16, u32, u32, st.binary(max_size=30), u16
)


@given(st.lists(records, max_size=5), st.integers(0, 2**62))
def test_any_records_come_back(written: list[Record], base_lsn: int) -> None:
    """By the plain encoder and by the builder: the same octets, the same records."""
    data = encode_records(base_lsn, 2, written)
    builder = BlockBuilder(base_lsn)
    for record in written:
        builder.add(record)
    assert builder.encode(2, base_lsn) == data
    assert builder.size == len(data)
    block = read_block(memoryview(data), 0, 0)
    assert block is not None
    assert list(block.records()) == list(enumerate(written, base_lsn))


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=5), st.binary(max_size=5), st.integers(0, 9))
def test_runs_are_their_records(bodies: list[bytes], key: bytes, before: int) -> None:
    """A run is encoded in bulk as its records would be one by one."""
    builder = BlockBuilder(100)
    builder.stamp(5)
    for _ in range(before):
        builder.add(Record(23, heap=b"abc"))
    contents = [NATIVE.join(b"header", body) for body in bodies]
    prefix = content_prefix(key, (7,), 9, 0)
    ids = list(range(50, 50 + len(bodies)))
    lsn = builder.published(ids, prefix, NATIVE.columns(contents), arg=9, address_ids=3)
    assert builder.enqueued(7, ids, lsn, [len(body) for body in bodies], arg=9) == lsn + len(ids)
    builder.run(10, 7, ids, flags=DURABLE, consumer_id=4)
    block = read_block(memoryview(builder.encode(2, 0)), 0, 0)
    assert block is not None
    expected = [
        Record(PUBLISHED, 5, id_, 9, DURABLE, address_id=3, size=len(body), heap=prefix + content)
        for id_, body, content in zip(ids, bodies, contents)
    ]
    expected += [
        Record(ENQUEUED, 5, id_, 9, DURABLE, queue_id=7, size=len(body), link=len(ids))
        for id_, body in zip(ids, bodies)
    ]
    expected += [Record(10, 5, id_, 0, DURABLE, queue_id=7, consumer_id=4) for id_ in ids]
    assert [record for _, record in block.records()][before:] == expected


class Padded:
    """A framing of a frontend's own."""

    def split(self, content: bytes) -> tuple[bytes, bytes]:
        """Three octets of header."""
        return content[:3], content[3:-1]

    def body_sizes(self, contents: Sequence[bytes]) -> list[int]:
        return list(map(self.body_size, contents))

    def columns(self, contents: Sequence[bytes]) -> ContentColumns:
        parts = list(map(self.split, contents))
        return ContentColumns.of(
            [len(header).to_bytes(4, "big") + header for header, _ in parts], [body for _, body in parts]
        )

    def body_size(self, content: bytes) -> int:
        """The rest but one."""
        return len(content) - 4


def test_names_of_a_segment_are_their_records() -> None:
    """The head of a segment defines them in bulk: also ids that are retired, and names that are not ASCII."""
    names = Names()
    vhost_id, _ = names.new(VHOST, 0, "/")
    retired_id, _ = names.new(EXCHANGE, vhost_id, "prices")
    names.retire(retired_id, 77)
    names.new(QUEUE, vhost_id, "é" * 127)
    each, all_at_once = BlockBuilder(1), BlockBuilder(1)
    for builder in (each, all_at_once):
        builder.stamp(5)
        builder.add(Record(HEAD, heap=b"head"))
    queue = Define(QUEUE, vhost_id, "é" * 127)
    for id_, define in enumerate((Define(VHOST, 0, "/"), Define(EXCHANGE, vhost_id, "prices"), queue), vhost_id):
        retired_lsn = 77 if id_ == retired_id else 0
        each.add(Record(DEFINE, msg_id=retired_lsn, arg=id_, flags=DURABLE, heap=encode_define(define)))
    all_at_once.defined(*names.columns())
    assert all_at_once.encode(2, 0) == each.encode(2, 0)


def test_other_framings_are_stored_plain() -> None:
    """The journal knows nothing of frames."""
    builder = BlockBuilder(1)
    builder.published([1], content_prefix(b"", (), 0, 0), Padded().columns([b"hdrbody!"]))
    block = read_block(memoryview(builder.encode(0, 1)), 0, 0)
    assert block is not None
    (_, record), *_ = block.records()
    assert decode_content(record.heap).content == NATIVE.join(b"hdr", b"body") and record.size == 4


def test_content_that_is_far_back() -> None:
    """A link that does not fit 32 bits goes to the heap."""
    builder = BlockBuilder(2**33)
    builder.enqueued(7, [1, 2], 5, [0, 0])
    block = read_block(memoryview(builder.encode(0, 1)), 0, 0)
    assert block is not None
    assert [decode_link(record.heap) for _, record in block.records()] == [5, 6]


def test_a_key_that_is_too_long_changes_nothing() -> None:
    """255 octets is what AMQP allows."""
    with pytest.raises(BadRecord):
        content_prefix(b"k" * 256, (), 0, 0)


messages = st.builds(
    RecoveredMessage,
    st.integers(1, 50),
    st.integers(1, 10**6),
    st.integers(0, 3),
    st.sampled_from([0, 0, 5]),
    st.builds(MessageState, st.integers(0, 2), st.integers(0, 1), st.sampled_from([0, 9]), st.sampled_from([0, 3])),
)


@given(st.lists(messages, unique_by=lambda message: message.id))
def test_snapshots_come_back(drawn: list[RecoveredMessage]) -> None:
    """Runs, sizes, expiries, states."""
    drawn.sort()
    queue = RecoveredQueue()
    assert load_part(snapshot_record(7, drawn).heap, queue) == len(drawn)
    assert list(queue.messages()) == drawn


STEPS = st.sampled_from(["add", "extend", "remove", "move", "range", "long range", "change", "read"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 30))), st.sampled_from([0, 9]))
def test_a_queue_in_columns_is_a_dictionary(steps: list[tuple[str, int]], expires_ms: int) -> None:
    """Adds in any order, one by one and many, removals, moves, ranges."""
    queue, model = RecoveredQueue(), dict[int, int]()
    for lsn, (what, id_) in enumerate(steps, 1):
        if what == "add":
            queue.add(id_, lsn, 1, expires_ms)
            model[id_] = lsn
        elif what == "extend":
            queue.extend(range(id_, id_ + 5), 100 + id_, [1] * 5, None)
            model |= {other: 100 + other for other in range(id_, id_ + 5)}
        elif what == "remove":
            assert queue.remove(id_) == (model.pop(id_, None) is not None)
        elif what == "move":
            assert queue.move(id_, lsn) == (id_ in model)
            if id_ in model:
                model[id_] = lsn
        elif what in ("range", "long range"):
            last = id_ + (3 if what == "range" else 30)
            queue.remove_range(id_, last)
            model = {other: at for other, at in model.items() if not id_ <= other <= last}
        elif what == "change":
            queue.set_state(id_, MessageState(2, 0, 0, 0))
        else:
            assert list(queue.ids()) == sorted(model)
        assert len(queue) == len(model)
        assert all(other in queue for other in model)
        assert queue.states.keys() <= model.keys()
    assert {message.id: message.content_lsn for message in queue.messages()} == model
    told = [(first + at, lsn + at) for _, first, lsn, count in queue.runs() for at in range(count)]
    assert told == sorted(model.items())


def test_the_format_needs_no_event_loop() -> None:
    """Spark's workers import the format: neither trio nor sockets come with it."""
    code = "import sys, leveret.journal.format.block; print('trio' in sys.modules, 'socket' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_record_layout_knows_only_the_words() -> None:
    """Of the engine words and contents, by its door; beside that of the format only the like and each other."""
    for module in (record_module, block_module, heap_module):
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text())
        outside = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level >= 2]
        names = {(node.module, alias.name) for node in outside for alias in node.names}
        assert {name for room, name in names} <= {"EventKind", "TERMINAL", "ContentColumns"}
    inside = {
        node.module
        for node in ast.walk(ast.parse(Path(str(record_module.__file__)).read_text()))
        if isinstance(node, ast.ImportFrom) and node.level == 1
    }
    assert not inside


def test_fields_are_a_record() -> None:
    """What `RECORD.unpack` gives."""
    assert from_fields(RECORD.unpack(SAMPLE.pack(7)), b"heap!") == SAMPLE


def test_a_block_is_joined_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The octets are the same, however many parts are joined at once."""
    written = [Record(PUBLISHED, number, heap=bytes((number,)) * number) for number in range(1, 12)]
    whole = encode_records(1000, 2, written)
    for size in (1, 2, 5, 23, 24, 1000):
        monkeypatch.setattr(block_module, "JOIN_SLICE", size)
        assert encode_records(1000, 2, written) == whole
