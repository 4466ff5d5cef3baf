"""What a follower is sent: every octet of the journal once and in order, from memory or from the files."""

from hypothesis import given
from hypothesis import strategies as st

from leveret.cluster.link import feed as feed_module
from leveret.cluster.link.feed import BATCH, NEAR, Feed, Position
from leveret.cluster.link.frames import PIECE_MAX, Decoder, Needs, Octets, Unlink

LIMIT = 64 * 1024 * 1024


class Journal:
    """Octets of segments, as a writer appends them."""

    def __init__(self) -> None:
        self.segments: dict[int, bytearray] = {1: bytearray()}
        self.base_lsn = 1

    @property
    def position(self) -> Position:
        return Position(self.base_lsn, len(self.segments[self.base_lsn]))

    def write(self, octets: bytes) -> tuple[int, int, bytes]:
        """Returns: what `Feed.written` takes."""
        segment = self.segments[self.base_lsn]
        offset = len(segment)
        segment += octets
        return self.base_lsn, offset, octets

    def roll(self) -> None:
        self.base_lsn += 100
        self.segments[self.base_lsn] = bytearray()

    def read(self, start: Position, end: Position, size: int) -> tuple[Position, bytes]:
        """As an `OctetReader` does: of one segment, or the beginning of the next one."""
        base_lsn, offset = start
        limit = end.offset if base_lsn == end.base_lsn else len(self.segments[base_lsn])
        octets = bytes(self.segments[base_lsn][offset : min(limit, offset + size)])
        if octets or base_lsn == end.base_lsn:
            return Position(base_lsn, offset + len(octets)), octets
        return Position(base_lsn + 100, 0), b""


def octets_of(frames: bytes) -> list[Octets | Unlink | Needs]:
    decoder = Decoder(Octets, Unlink, Needs)
    decoder.receive(frames)
    return list(decoder.messages())  # type: ignore[arg-type]


class Follower:
    """Puts together what a feed sends, and fails if an octet is missing or comes twice."""

    def __init__(self, position: Position) -> None:
        self.position = position
        self.segments: dict[int, bytearray] = {}
        self.others: list[Unlink | Needs] = []

    def take(self, base_lsn: int, offset: int, octets: bytes) -> None:
        if base_lsn != self.position.base_lsn:
            assert offset == 0
        else:
            assert offset == self.position.offset
        self.segments.setdefault(base_lsn, bytearray()).extend(octets)
        self.position = Position(base_lsn, offset + len(octets))

    def take_frames(self, frames: bytes) -> None:
        for message in octets_of(frames):
            if isinstance(message, Octets):
                assert len(message.octets) <= PIECE_MAX
                self.take(message.base_lsn, message.offset, bytes(message.octets))
            else:
                self.others.append(message)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 300)),
        st.tuples(st.just("roll"), st.just(0)),
        st.tuples(st.just("send"), st.just(0)),
        st.tuples(st.just("read"), st.integers(1, 400)),
        st.tuples(st.just("unlink"), st.integers(1, 50)),
        st.tuples(st.just("unheard"), st.integers(1, 100)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(0, 5), st.integers(1, 500), st.integers(0, 300))
def test_each_octet_comes_once_and_in_order(steps: list[tuple[str, int]], before: int, limit: int, near: int) -> None:
    """However writing, sending, reading and rolling alternate, and wherever the follower began."""
    journal = Journal()
    for number in range(before):
        journal.write(bytes([number]) * 50)
        if number % 2:
            journal.roll()
    start = Position(1, min(20, len(journal.segments[1])))
    old, feed_module.NEAR = feed_module.NEAR, near
    try:
        feed, follower = Feed(start, journal.position, limit), Follower(start)
        unlinked = []
        for step, number in steps:
            if step == "write":
                feed.written(*journal.write(bytes([number % 256]) * number))
            elif step == "unheard":  # written while the feed was being made
                journal.write(b"u" * number)
                feed.skip_to(journal.position)
            elif step == "roll":
                if journal.segments[journal.base_lsn]:
                    journal.roll()
            elif step == "unlink":
                feed.put(Unlink((number,)))
                unlinked.append(Unlink((number,)))
            elif step == "send":
                follower.take_frames(b"".join(feed.take_frames()))
            elif (span := feed.to_read) is not None:
                read(journal, feed, follower, number, span)
            assert feed.queued_octets <= limit
        while feed.to_read is not None or feed.position < feed.tail or len(follower.others) < len(unlinked):
            if (span := feed.to_read) is not None:
                read(journal, feed, follower, 1000, span)
            else:
                assert (frames := feed.take_frames())
                follower.take_frames(b"".join(frames))
    finally:
        feed_module.NEAR = old
    assert follower.others == unlinked
    for base_lsn, octets in journal.segments.items():
        assert follower.segments.get(base_lsn, b"") == octets[start.offset if base_lsn == 1 else 0 :]
    assert feed.take_frames() == []


def read(journal: Journal, feed: Feed, follower: Follower, size: int, span: tuple[Position, Position]) -> None:
    end, octets = journal.read(*span, size)
    if octets:
        follower.take(end.base_lsn, end.offset - len(octets), octets)
    feed.was_read(end)


def test_a_follower_that_keeps_up_reads_no_file() -> None:
    """Each block goes from memory, large ones in pieces."""
    journal = Journal()
    feed = Feed(journal.position, journal.position, LIMIT)
    feed.written(*journal.write(b"x" * (3 * PIECE_MAX + 5)))
    assert feed.to_read is None
    follower = Follower(Position(1, 0))
    batches = 0
    while frames := b"".join(feed.take_frames()):
        batches += 1
        assert len(frames) < BATCH + PIECE_MAX
        follower.take_frames(frames)
    assert bytes(follower.segments[1]) == b"x" * (3 * PIECE_MAX + 5)
    assert batches == 4
    assert feed.queued_octets == 0


def test_memory_is_bounded_and_taken_again() -> None:
    """Above the limit all goes; near the tail later octets wait in memory again."""
    journal = Journal()
    feed = Feed(journal.position, journal.position, LIMIT)
    block = bytes(16 * 1024 * 1024)
    for _ in range(4):
        feed.written(*journal.write(block))
    assert feed.queued_octets == LIMIT
    feed.written(*journal.write(b"!"))
    assert feed.queued_octets == 0
    assert feed.to_read == (Position(1, 0), Position(1, LIMIT + 1))
    feed.written(*journal.write(b"not kept"))
    assert not feed.is_queued
    feed.was_read(Position(1, LIMIT + 9 - NEAR))
    assert feed.is_queued
    feed.written(*journal.write(b"kept"))
    assert feed.queued_octets == 4
    assert feed.take_frames() == []  # what is before it is in the file
    feed.was_read(Position(1, LIMIT + 9))
    assert [bytes(one.octets) for one in octets_of(b"".join(feed.take_frames())) if isinstance(one, Octets)] == [
        b"kept"
    ]


def test_what_was_written_before_the_feed_is_not_sent_again() -> None:
    """The writer's news come later than the position that the feed began with."""
    journal = Journal()
    first = journal.write(b"first")
    feed = Feed(Position(1, 0), journal.position, LIMIT)
    feed.written(*first)
    assert feed.to_read == (Position(1, 0), Position(1, 5))
    assert feed.queued_octets == 0


def test_octets_that_were_not_told_are_read_from_the_files() -> None:
    """Those behind them do not come first."""
    feed = Feed(Position(1, 0), Position(1, 0), 10_000)
    feed.written(1, 0, b"a" * 100)
    feed.written(1, 200, b"c" * 100)
    assert feed.to_read == (Position(1, 0), Position(1, 300)) and feed.take_frames() == []


def test_octets_that_are_told_twice_are_sent_once() -> None:
    """The writer may tell what a thread has found in the files already."""
    feed = Feed(Position(1, 100), Position(1, 100), 10_000)
    feed.written(1, 0, b"a" * 50)
    feed.written(1, 50, b"b" * 50)
    assert feed.tail == Position(1, 100) and feed.to_read is None and feed.take_frames() == []
    feed.written(1, 100, b"c" * 10)
    assert bytes(feed.take_frames()[1]) == b"c" * 10


def test_many_small_writes_are_sent_in_calls_that_the_kernel_accepts() -> None:
    """`sendmsg` takes 1024 parts; with more the link would end."""
    journal, feed = Journal(), Feed(Position(1, 0), Position(1, 0), LIMIT)
    for _ in range(2_000):
        feed.written(*journal.write(b"x"))
    sent = b""
    while parts := feed.take_frames():
        assert len(parts) <= 1024
        sent += b"".join(parts)
    assert b"".join(bytes(one.octets) for one in octets_of(sent) if isinstance(one, Octets)) == b"x" * 2_000
