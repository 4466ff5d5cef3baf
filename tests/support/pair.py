"""A harness whose clients are peers: octets go in by hand, and octets that come out are parsed by pamqp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from peer import OPTIONS, Cut, Peer, PeerFacts, whole

from leveret.amqp_frontend.options import FrontendOptions
from leveret.settings import NO_SETTINGS
from leveret.testing.harness import Harness


class Pair(Harness):
    """No client is too slow, unless `unsent_max` says so. What is due happens when time passes, not before."""

    has_client = False

    def __init__(
        self, options: FrontendOptions = OPTIONS, *, unsent_max: int = 1 << 30, broker: dict[str, Any] | None = None
    ) -> None:
        self.options = options
        self.peers: list[Peer] = []
        super().__init__(**{"settings": NO_SETTINGS, "unsent_max": unsent_max, **(broker or {})})

    def open(
        self, channels: int | None = 1, *, cut: Cut = whole, facts: PeerFacts | None = None,
        frontend: Mapping[str, Any] | None = None, **agreed: Any,
    ) -> Peer:  # fmt: skip
        """A client that is logged in, with channels 1 to this one open; None: nothing was said yet.

        `cut`: how its bursts become reads. `facts`: who connects; a loopback peer by default.
        `frontend`: other options of the frontend. `agreed`: see `handshake`.
        """
        facts = facts or PeerFacts(f"peer {len(self.peers) + 1}", is_loopback=True)
        peer = Peer(self, facts, replace(self.options, **(frontend or {})), whole if channels is not None else cut)
        self.peers.append(peer)
        if channels is not None:
            peer.log_in(channels, **agreed)
            peer.cut = cut
        return peer

    def end_turn(self) -> None:
        self.finish_turns()

    def settle(self) -> None:
        """Until no connection has anything left to do, either."""
        self.end_turn()
        while busy := [peer for peer in self.peers if not peer.is_closed and peer.session.backlog.has_more]:
            for peer in busy:
                peer.go_on()
            self.end_turn()

    def follow_up(self) -> None:
        self.settle()
