"""The two brokers of a run, each with one virtual host per lane."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..brokers import peers
from ..brokers.follower import leveret_follower

PROFILE = "rabbitmq-3.10"
#: Without busy waiting of Erlang's schedulers, which would slow down the other processes.
ERLANG = "+sbwt none +sbwtdcpu none +sbwtdio none"


def lane_vhost(lane: int) -> str:
    """The virtual host of a lane."""
    return f"lane{lane}"


@dataclass(frozen=True, slots=True)
class Lanes:
    """A broker's virtual hosts as URLs, and its process if it was started here."""

    urls: list[str]
    peer: peers.Peer | None = None

    def diagnosis(self) -> str:
        """Why the broker cannot be reached, as far as is known."""
        return f"{self.urls[0]} is not ours" if self.peer is None else self.peer.diagnosis()


@contextmanager
def reference(url: str | None, lanes: int) -> Iterator[Lanes]:
    """The lanes of the reference broker: the one at `url`, with one lane, or a fresh RabbitMQ.

    Raises: FileNotFoundError: RabbitMQ is not on this machine.
    """
    if url is not None:
        yield Lanes([url])
        return
    with ExitStack() as stack:
        config = f"load_definitions = {stack.enter_context(_definitions(lanes))}\n"
        peer = stack.enter_context(peers.rabbitmq(config=config, erlang=ERLANG))
        yield Lanes([peer.url + lane_vhost(lane) for lane in range(lanes)], peer)


@contextmanager
def subject(url: str | None, lanes: int, profile: str = PROFILE, *, is_follower: bool = False) -> Iterator[Lanes]:
    """The lanes of the broker under test: the one at `url`, or a fresh leveret in RabbitMQ's profile.

    `is_follower`: it is a cluster, and each lane is connected to a follower.
    """
    if url is not None:
        yield Lanes([url])
        return
    with ExitStack() as stack:
        definitions = stack.enter_context(_definitions(lanes))
        keys = f"definitions = '{definitions}'\nprofile = '{profile}'\n"
        if is_follower:
            peer = stack.enter_context(leveret_follower(broker=keys))
        else:
            file = definitions.with_name("leveret.toml")
            file.write_text(f"[broker]\n{keys}")
            peer = stack.enter_context(peers.leveret("--config", str(file)))
        yield Lanes([peer.url + lane_vhost(lane) for lane in range(lanes)], peer)


@contextmanager
def _definitions(lanes: int) -> Iterator[Path]:
    """A definitions file for both brokers."""
    names = ["/", *(lane_vhost(lane) for lane in range(lanes))]
    permissions = {"user": "guest", "configure": ".*", "write": ".*", "read": ".*"}
    user = {"name": "guest", "password": "guest", "tags": "administrator", "limits": {}}
    text = json.dumps(
        {
            "users": [user],
            "vhosts": [{"name": name} for name in names],
            "permissions": [permissions | {"vhost": name} for name in names],
        }
    )
    with tempfile.TemporaryDirectory(prefix="leveret-differential-") as directory:
        path = Path(directory) / "definitions.json"
        path.write_text(text)
        yield path
