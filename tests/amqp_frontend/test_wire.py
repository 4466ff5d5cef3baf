"""Content as frames: runs of the engine's own framed are rendered as one by one."""

from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp_frontend.wire.layout import ContentFraming, content_frames, plain_content_frames
from leveret.engine import CommonHeader, ContentColumns
from leveret.engine.messages.content import NATIVE, encode_header

CONTENTS = st.lists(st.tuples(st.binary(min_size=14, max_size=40), st.binary(max_size=300) | st.just(bytes(64))))


@given(CONTENTS, st.integers(1, 65535), st.integers(16, 200))
def test_a_run_of_plain_contents(contents: list[tuple[bytes, bytes]], channel: int, frame_max: int) -> None:
    """Any sizes, with and without body, in one frame and in several; and what is split again is what it was."""
    framed = [NATIVE.join(header, body) for header, body in contents]
    found = plain_content_frames(channel, framed, frame_max)
    assert found == [content_frames(channel, header, body, frame_max) for header, body in contents]
    assert [ContentFraming(channel, frame_max).split(one) for one in found] == contents


BODIES = st.lists(st.integers(0, 120) | st.just(64), min_size=1, max_size=6).flatmap(
    lambda sizes: st.tuples(*(st.binary(min_size=size, max_size=size) for size in sizes))
)


def _check(cut: ContentColumns, contents: list[tuple[bytes, bytes]]) -> None:
    joined = [b"".join(parts) for parts in zip(*cut.columns)]
    assert joined == [NATIVE.join(header, body) for header, body in contents]
    assert list(cut.sizes) == list(map(len, joined))
    assert list(cut.body_sizes) == [len(body) for _, body in contents]


@given(BODIES, st.lists(st.sampled_from([b"a", b"b", b"cc"]), min_size=6, max_size=6), st.sampled_from([40, 72, 200]))
def test_runs_are_cut_for_the_journal(bodies: tuple[bytes, ...], ids: list[bytes], frame_max: int) -> None:
    """Alike or not, in one frame and in several: the parts are of the engine's framing, and their sizes are right."""
    contents = [(encode_header(len(body), {"message_id": id_}), body) for id_, body in zip(ids, bodies)]
    framed = [content_frames(7, header, body, frame_max) for header, body in contents]
    _check(ContentFraming(7, frame_max).columns(framed), contents)
    _check(NATIVE.columns([NATIVE.join(header, body) for header, body in contents]), contents)


@given(BODIES)
def test_runs_with_one_header_are_cut_for_the_journal(bodies: tuple[bytes, ...]) -> None:
    """Where the bodies are all that differs."""
    header = encode_header(0)
    _check(CommonHeader(header).columns(bodies), [(header, body) for body in bodies])


def test_two_frames_may_be_as_large_as_one() -> None:
    """A run of one size, but not of one form."""
    contents = [(encode_header(64), bytes(64)), (encode_header(56), bytes(56))]
    framed = [content_frames(7, *contents[0], 72), content_frames(7, *contents[1], 36)]
    assert len(framed[0]) == len(framed[1])
    _check(ContentFraming(7, 72).columns(framed), contents)
