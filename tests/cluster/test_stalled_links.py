"""What a follower sends: to a leader that takes nothing for a while, and if its own status cannot be told."""

import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from leveret.cluster.link import leader_link
from leveret.cluster.link.introduction import LinkOptions
from leveret.cluster.link.leader_link import _Following

TERM = 2
OPTIONS = LinkOptions(beacon_s=0.5, silence_s=3.0)


class Bench:
    """A link from its Welcome on, without a leader."""

    def __init__(self, patch: pytest.MonkeyPatch, status: Callable[[], dict[str, object]] = dict) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        patch.setattr(leader_link, "as_socket", lambda stream: (self.ours, None))
        outer: Any = SimpleNamespace(
            copied=None, _options=OPTIONS, _wall_ms=lambda: 0, _status=status, _report=lambda event: None
        )
        link: Any = SimpleNamespace(take_rest=lambda: b"", stream=None)
        self.following = _Following(outer, link, TERM, None)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


def run(patch: pytest.MonkeyPatch, script: Any, **options: Any) -> None:
    """Run a script in virtual time."""

    async def main() -> None:
        bench = Bench(patch, **options)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.following._keep_telling)
            await script(bench)
            nursery.cancel_scope.cancel()
        bench.close()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_status_that_cannot_be_told_ends_the_link_and_not_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may refuse any question about itself for a moment."""

    def status() -> dict[str, object]:
        raise FileNotFoundError("no directory")

    async def script(bench: Bench) -> None:
        await later(1)
        assert bench.following._why == "the status of this node cannot be told: no directory"

    run(monkeypatch, script, status=status)


async def later(seconds: float) -> None:
    """Virtual time goes by."""
    with trio.move_on_after(seconds):
        await trio.sleep_forever()
