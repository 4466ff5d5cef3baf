"""A user as the journal keeps it: what is written is read back."""

from types import MappingProxyType

import pytest

from leveret.engine import Grant, Permissions, TopicPermission, User
from leveret.journal.format.errors import BadRecord
from leveret.journal.recording.access_records import user_octets, user_of

TOPICS = MappingProxyType({"amq.topic": TopicPermission("^a", "^b")})
GRANT = Grant("^c", ".*", "", TOPICS)


def test_a_user_comes_back() -> None:
    """With the order of the tags, and topic permissions in force and waiting."""
    permissions = MappingProxyType({"/": Permissions(GRANT, user="a", vhost="/")})
    waiting = MappingProxyType({"other": TOPICS})
    user = User("a", tags=("b", "a"), permissions=permissions, max_channels=3, waiting_topics=waiting)
    found = user_of("a", user_octets(user))
    assert (found.tags, found.waiting_topics, found.max_channels) == (("b", "a"), waiting, 3)
    assert found.permissions is not None and found.permissions["/"].grant == GRANT


def test_a_user_of_an_older_journal() -> None:
    """Nothing waits in it."""
    octets = user_octets(User("a")).replace(b'"waiting_topics"', b'"unknown"')
    assert b"waiting_topics" not in octets
    assert user_of("a", octets) == User("a")


@pytest.mark.parametrize("wrong", [b"[]", b'{"v": 5}', b'{"v": {"e": ["w"]}}', b'{"v": {"e": "wrr"}}'])
def test_waiting_topics_that_are_none(wrong: bytes) -> None:
    """The record is bad, and nothing else."""
    octets = user_octets(User("a"))
    assert b'"waiting_topics":{}' in octets.replace(b": ", b":")
    with pytest.raises(BadRecord):
        user_of("a", octets.replace(b": ", b":").replace(b'"waiting_topics":{}', b'"waiting_topics":' + wrong))
