"""Tests that stop the clocks: the broker's waits go by the machine's all the same."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import time_machine
from consumers import channel_of
from freezegun import freeze_time

from leveret.testing import NotSettled, start_broker

#: A broker that is imported while time stands still.
IMPORTED_LATE = """
from freezegun import freeze_time
with freeze_time("2020-01-01"):
    from leveret.testing import start_broker
    with start_broker(clock="virtual") as broker:
        broker.clock.advance(hours=1)
        print(broker.clock.elapsed)
"""


@pytest.mark.parametrize("mode", ["real", "virtual"])
@pytest.mark.parametrize(
    "stopped",
    [freeze_time, lambda when: freeze_time(when, tick=True), lambda when: time_machine.travel(when, tick=False)],
    ids=["freezegun", "freezegun that ticks", "time-machine"],
)
def test_waits_end(mode: Any, stopped: "Callable[[str], AbstractContextManager[object]]") -> None:
    """A move of virtual time, an autojump, and a timeout, with a client that takes part."""
    with start_broker(clock=mode) as broker, channel_of(broker.url) as channel:
        channel.queue_declare("q")
        with stopped("2020-01-01"):
            channel.basic_publish("", "q", b"x")
            if mode == "virtual":
                broker.clock.advance(hours=1)
                with broker.clock.autojump():
                    channel.queue_declare("q", passive=True)
            with pytest.raises(NotSettled):
                broker.settled(timeout=0.05)
            broker.settled(ignore=["q"])
        assert broker.queue("q").bodies == [b"x"]


@pytest.mark.parametrize("mode", ["real", "virtual"])
def test_a_broker_that_starts_while_time_stands_still(mode: Any) -> None:
    """Connections are accepted, and the end does not wait."""
    with freeze_time("2020-01-01"), start_broker(clock=mode) as broker, channel_of(broker.url) as channel:
        channel.queue_declare("q")
        broker.inject(routing_key="q", body=b"x")
        broker.settled(ignore=["q"])


def test_a_broker_that_is_imported_while_time_stands_still() -> None:
    """The clocks that are patched already are not taken for the machine's."""
    done = subprocess.run([sys.executable, "-c", IMPORTED_LATE], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("3600.0\n", "")
