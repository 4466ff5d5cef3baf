"""Content as frames: runs of the engine's own blobs are rendered as one by one."""

from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp_frontend.wire import ContentFraming, content_frames, plain_content_frames
from leveret.engine.messages.content import PLAIN

CONTENTS = st.lists(st.tuples(st.binary(min_size=14, max_size=40), st.binary(max_size=300) | st.just(bytes(64))))


@given(CONTENTS, st.integers(1, 65535), st.integers(16, 200))
def test_a_run_of_plain_blobs(contents: list[tuple[bytes, bytes]], channel: int, frame_max: int) -> None:
    """Any sizes, with and without body, in one frame and in several; and what is split again is what it was."""
    blobs = [PLAIN.join(header, body) for header, body in contents]
    found = plain_content_frames(channel, blobs, frame_max)
    assert found == [content_frames(channel, header, body, frame_max) for header, body in contents]
    assert [ContentFraming(channel, frame_max).split(blob) for blob in found] == contents
