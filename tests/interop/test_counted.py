"""Each figure that is counted is that of a RabbitMQ under the same load, or it is known why not."""

import re

import pytest

from leveret.interop.brokers.peers import WITHOUT_RABBITMQ, find_rabbitmq
from leveret.interop.tools.counted import KNOWN, LETTERS, compared, differences, loaded


def test_the_load_and_its_figures() -> None:
    """On Leveret alone: what is dead, delayed and out is there, and consumers have room or have not."""
    with loaded("leveret") as found:
        pass
    assert found["queue letters messages"] == LETTERS
    assert (found["queue delayed messages_ready"], found["queue over messages"]) == (3, 0)
    assert (found["queue first messages_unacknowledged"], found["queue first head_message_timestamp"]) == (2, 1001)
    assert [found[f"queue {name} consumer_utilisation"] for name in ("idle", "busy", "empty", "fan2")] == [0, 0, 0, 1]
    assert not differences(found, dict(found))


def test_what_differs_is_told_unless_it_is_known() -> None:
    """By name, with both values."""
    name = "overview disk_writes"
    assert any(re.fullmatch(known, name) for known in KNOWN)
    assert differences({"a": 1, name: 1, "c": 2}, {"a": 2, "c": 2}) == {"a": "1, RabbitMQ 2"}


@pytest.mark.peer
@pytest.mark.skipif(find_rabbitmq() is None, reason=WITHOUT_RABBITMQ)
def test_figures_are_those_of_a_rabbitmq() -> None:
    """All of them; 519 when this was written."""
    found, count = compared()
    assert not found
    assert count > 400
