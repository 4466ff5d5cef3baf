"""Mixed runs: when a channel's publishes are read in one go though they are not alike, and when no longer.

That they mean what single frames mean is in tests/fuzz/test_publish_streams.py.
"""

from __future__ import annotations

import pytest
from publish_streams import publish_of

from leveret.amqp_frontend.wire.channel_reader import ChannelReader
from leveret.amqp_frontend.wire.events import MixedReceived, PublishReceived
from leveret.amqp_frontend.wire.frames import Connection
from leveret.amqp_frontend.wire.publish_cache import FORMS_MAX, KINDS_MAX
from leveret.amqp_frontend.wire.runs import ALIKE_MIN
from leveret.amqp_frontend.wire.states import ConnectionState
from leveret.engine.messages.field_table import Field
from leveret.engine.messages.shapes import SIZE_MAX


class Reader:
    """A frame reader with channels 1 and 2, whose session remembers every kind but that of routing key "?"."""

    def __init__(self) -> None:
        self.connection = Connection()
        self.connection.state = ConnectionState.RUNNING
        self.connection.frame_max = 4096
        for number in (1, 2):
            self.connection.channels[number] = ChannelReader(
                number, self.connection.publish_cache, frame_max=4096, message_size_max=300
            )

    def read(self, text: str, channel: int = 1) -> list[str]:
        """One read with a message for each letter, which is its routing key. Returns: events as such texts."""
        return self.read_octets(b"".join(message(letter, channel) for letter in text))

    def read_octets(self, octets: bytes) -> list[str]:
        """One read. Returns: its events; those of mixed runs in brackets."""
        self.connection.receive_bytes(octets)
        found = []
        for event in self.connection.events():
            if isinstance(event, PublishReceived):
                letter = event.kind.method_frame[-3:-2].decode()
                found.append(letter * len(event.contents))
                event.kind.known_route = None if letter == "?" else letter
            elif isinstance(event, MixedReceived):
                assert len(event.kinds) == len(event.contents)
                found.append("[" + "".join(kind.method_frame[-3:-2].decode() for kind in event.kinds) + "]")
        return found


def message(letter: str, channel: int = 1, body: bytes = b"x") -> bytes:
    """A publish of the kind of a letter."""
    return publish_of(channel, letter.encode(), {"delivery_mode": 2}, body)


@pytest.fixture
def mixed() -> Reader:
    """Channel 1 is mixed, and knows a, b and c."""
    reader = Reader()
    for _ in range(3):
        reader.read("abcabc")
    assert reader.connection.channels[1].is_mixed
    return reader


def test_short_runs_make_a_channel_mixed() -> None:
    """Kinds are taken together from their third time on: the first shows them to the session, the second is learnt."""
    reader = Reader()
    assert reader.read("ababab") == ["a", "b", "a", "b", "[ab]"]
    assert reader.read("abba") == ["[abba]"]


@pytest.mark.parametrize("text", ["aaaabbbbaaaabbbb", "aaaaaaa", "a"])
def test_longer_runs_do_not(text: str) -> None:
    """Four in a row are worth a run of their own, and the end of a read says nothing."""
    reader = Reader()
    for _ in range(3):
        reader.read(text)
        assert not reader.connection.channels[1].is_mixed


def test_only_runs_of_one_read_are_compared() -> None:
    """A run that a read ended may have gone on."""
    reader = Reader()
    for letter in "ababab":
        assert reader.read(letter) == [letter]
    assert not reader.connection.channels[1].is_mixed


def test_channels_are_mixed_each_for_itself(mixed: Reader) -> None:
    """Also with the same connection's memory."""
    assert mixed.read("ab", channel=2) == ["a", "b"]
    assert mixed.connection.channels[2].is_mixed
    octets = message("a") + message("b") + message("a", 2) + message("b", 2) + message("b") + message("c")
    assert mixed.read_octets(octets) == ["[ab]", "a", "b", "[bc]"]


def test_what_nobody_remembers_is_read_by_itself(mixed: Reader) -> None:
    """As often as it comes."""
    for _ in range(4):
        assert mixed.read("ab?cb") == ["[ab]", "?", "[cb]"]


def test_a_kind_that_is_forgotten_is_shown_again(mixed: Reader) -> None:
    """The session's word counts at that moment."""
    for alike in mixed.connection.publish_cache.kinds.values():
        for kind in alike.values():
            if kind.method_frame[-3:-2] == b"b":
                kind.known_route = None
    assert mixed.read("abcab") == ["a", "b", "[cab]"]


def test_a_mixed_run_of_one_kind_is_a_run(mixed: Reader) -> None:
    """So that it is handled as one."""
    assert mixed.read("aaa") == ["aaa"]
    assert mixed.read("b") == ["b"]


def test_many_alike_end_it(mixed: Reader) -> None:
    """Runs of one kind are read as such again."""
    assert mixed.read("ab" + "c" * 2 * ALIKE_MIN)[0].startswith("[abcc")
    assert not mixed.connection.channels[1].is_mixed
    assert mixed.read("aaaaabbbbbaaaaa") == ["aaaaa", "bbbbb", "aaaaa"]


def test_many_alike_that_are_new_end_it(mixed: Reader) -> None:
    """Also when they were not read in one go."""
    assert mixed.read("ab" + "n" * ALIKE_MIN) == ["[ab]", "n" * ALIKE_MIN]
    assert not mixed.connection.channels[1].is_mixed


@pytest.mark.parametrize("body", [b"", bytes(301)], ids=["empty", "oversized"])
def test_bodies_of_other_forms_are_read_with_care(mixed: Reader, body: bytes) -> None:
    """Between others."""
    octets = message("a") + message("b") + message("c", body=body) + message("b") + message("a")
    assert mixed.read_octets(octets) == ["[ab]", "c", "[ba]"]


def test_a_message_cut_short_begins_the_next_read(mixed: Reader) -> None:
    """Wherever it is cut, if any of it is there that could be read."""
    octets = message("b") + message("c")
    for place in range(1, len(message("b"))):
        assert mixed.read_octets(message("a") + message("c") + octets[:place]) == ["[ac]"]
        assert mixed.connection.channels[1].assembly is None
        assert mixed.read_octets(octets[place:]) == ["[bc]"]


def test_kinds_that_begin_alike_are_told_apart() -> None:
    """By their property lists, also when there are more of them than are looked for at once."""
    connection = Reader().connection
    priorities = [(at * 7) % (FORMS_MAX + 4) for at in range(40)]
    octets = b"".join(publish_of(1, b"a", {"priority": priority}, b"x") for priority in priorities)
    mixed = 0
    for _ in range(6):
        connection.receive_bytes(octets)
        found: list[int | None] = []
        for event in connection.events():
            if isinstance(event, MixedReceived):
                mixed += len(event.kinds)
                found += [kind.summary.priority for kind in event.kinds]
            elif isinstance(event, PublishReceived):
                event.kind.known_route = True
                found += [event.kind.summary.priority] * len(event.contents)
        assert found == priorities
    assert mixed > 3 * len(priorities)


def test_more_kinds_than_are_remembered_are_read_all_the_same() -> None:
    """Memories begin anew."""
    reader = Reader()
    keys = [b"%04d" % number for number in range(2 * KINDS_MAX)]
    for _ in range(4):
        reader.connection.receive_bytes(b"".join(publish_of(1, key, {}, b"x") for key in keys))
        count = 0
        for event in reader.connection.events():
            assert isinstance(event, PublishReceived | MixedReceived)
            count += len(event.contents)
            if isinstance(event, PublishReceived):
                event.kind.known_route = True
        assert count == len(keys)
        memory = reader.connection.publish_cache
        assert max(len(memory.heads), sum(map(len, memory.kinds.values()))) <= KINDS_MAX


def test_property_lists_of_ever_new_lengths_are_read() -> None:
    """What is remembered of them is bounded."""
    reader = Reader()
    for size in range(0, 3_900, 3):
        properties = {"headers": {"k": Field("S", bytes(size))}}
        for _ in range(3):
            octets = publish_of(1, b"a", dict(properties), b"x") + publish_of(1, b"b", dict(properties), b"x")
            assert "".join(reader.read_octets(octets)).strip("[]") == "ab"
    memory = reader.connection.publish_cache
    assert len(memory.heads) > 500 and len(memory.shapes.by_length) <= SIZE_MAX + 1


def test_routing_keys_of_any_length_are_read() -> None:
    """Those whose frames are longer than one octet can tell are read one by one."""
    reader = Reader()
    keys = [bytes(size) for size in (0, 1, 235, 238, 239, 240, 241, 242, 243, 244, 245, 246, 254, 255)]
    for _ in range(5):
        reader.connection.receive_bytes(b"".join(publish_of(1, key, {}, b"x") for key in keys))
        found = []
        for event in reader.connection.events():
            if isinstance(event, PublishReceived):
                event.kind.known_route = True
                found += [event.kind] * len(event.contents)
            elif isinstance(event, MixedReceived):
                found += event.kinds
        assert [kind.method_frame[15:-2] for kind in found] == keys
