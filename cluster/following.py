"""The follower's part of a node: it keeps a link to the leader, and reopens the directory when the copy needs that."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import trio

from .agreement.events import DiskRecovered, DiskStalled, Event, LeaderHeard
from .agreement.view import Leader
from .copying.joining import JournalSummary
from .link.leader_link import Ending, LeaderLink
from .link.options import Address
from .node_directory import NodeDirectory
from .options import NodeOptions

logger = logging.getLogger("leveret.cluster")

#: A node warns when its clock differs from the leader's by at least CLOCK_NS in this many consecutive beacons.
CLOCK_BEACONS = 5
CLOCK_NS = 1_000_000_000


class Following:
    """Keeps the link to the leader. It alone uses the open copy in `directory`.

    report: gets the events of `LeaderLink`. begin_anew: called when the directory has a new node id. Other
    arguments are those of `LeaderLink`.
    """

    def __init__(
        self,
        options: NodeOptions,
        directory: NodeDirectory,
        report: Callable[[Event], object],
        begin_anew: Callable[[JournalSummary], Awaitable[None]],
        *,
        status: Callable[[], Mapping[str, object]],
        reload: Callable[[], object],
        site: Callable[[], Mapping[str, object]],
        wall_ms: Callable[[], int],
    ) -> None:
        self.link: LeaderLink | None = None
        self._options = options
        self._directory = directory
        self._report = report
        self._begin_anew = begin_anew
        self._status = status
        self._reload = reload
        self._site = site
        self._wall_ms = wall_ms
        self._leader: Leader | None = None
        self._changed = trio.Event()  # set by `follow` and `follow_again`
        self._scope: trio.CancelScope | None = None  # of the link while it runs
        self._idle = trio.Event()  # no thread uses the copy
        self._clock_ns: deque[int] = deque(maxlen=CLOCK_BEACONS)  # by which the leader's clock is ahead
        self._has_warned = False  # of the clocks' difference

    # -- the agreement's decisions ----------------------------------------------------------------------------------

    def begin(self, summary: JournalSummary) -> None:
        """Begin with the node id of this directory, without a leader and without acknowledgements."""
        self._leader = self.link = None
        self._directory.is_rolled_back = False
        self._make_link(summary)

    def follow(self, leader: Leader | None) -> None:
        """Follow this leader instead of the last one; None: there is no leader."""
        self._leader = leader
        self._changed.set()
        self.reconnect()

    def acknowledge(self, is_on: bool) -> None:
        """Start or stop acknowledging to the leader what is fsynced."""
        if self.link is not None:
            self.link.acknowledge(is_on)

    def reconnect(self) -> None:
        """Close the link, and open it again if there is a leader."""
        if self._scope is not None:
            self._scope.cancel()

    async def stop(self) -> None:
        """Close the link, and wait until no thread uses the copy. `follow(None)` must have come before."""
        self.reconnect()
        await self._idle.wait()

    async def rejoin_as_new(self) -> None:
        """Reopen the directory, whose disk was rolled back, under a new node id."""
        await self._idle.wait()
        if self._directory.is_rolled_back:  # else a link that failed has just opened it
            await self._reopen(is_copy=False)

    async def follow_again(self, summary: JournalSummary) -> bool:
        """Follow with the reopened directory. Returns whether its node id is the same as before."""
        is_same = summary.terms.node_id == self._directory.node_id
        if is_same:
            self._make_link(summary)
        else:
            await self._begin_anew(summary)
        self._changed.set()
        return is_same

    # -- the link ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a link to the current leader, until cancelled."""
        while True:
            leader, link = self._leader, self.link
            self._changed = trio.Event()
            if leader is None or link is None:
                self._idle.set()
                await self._changed.wait()
                continue
            self._idle = trio.Event()
            ending: Ending | None = None
            with trio.CancelScope() as self._scope:
                ending = await link.run(Address.parse(leader.address), leader.term)
            self._scope = None
            if ending is Ending.DECLINED:
                self._idle.set()
                await self._changed.wait()
            elif ending is not None:
                await self._reopen(is_copy=ending is Ending.COPIED)

    async def _reopen(self, *, is_copy: bool) -> None:
        """Open the directory again: a copy has replaced its journal, or it could not be written.

        While it cannot be opened, this node must not lead: it could not take over, and would keep the lead.
        """
        summary = await self._directory.reopen(is_copy=is_copy, failed=lambda why: self._report(DiskStalled(why)))
        self._report(DiskRecovered())
        if is_copy and summary.terms.node_id != self._directory.node_id:
            logger.info("a full copy is complete: node id %s", summary.terms.node_id.hex())
        await self.follow_again(summary)

    def _make_link(self, summary: JournalSummary) -> None:
        """Make the link. It acknowledges if the last one did: the agreement decides that once for each node id."""
        options, before, copied = self._options, self.link, self._directory.copied
        self._directory.summary = summary
        self.link = LeaderLink(
            options.credentials,
            options.name,
            options.path,
            copied,
            self._reported,
            damaged=summary if copied is None else None,
            level=options.level,
            options=options.link,
            tls=options.tls,
            files=options.files,
            wall_ms=self._wall_ms,
            status=self._status,
            reload=self._reload,
            site=self._site,
        )
        if before is not None:
            self.link.acknowledge(before.acknowledges)

    def _reported(self, event: Event) -> None:
        if isinstance(event, LeaderHeard):
            self._compare_clock(event.clock_difference_ns)
        self._report(event)

    def _compare_clock(self, difference_ns: int) -> None:
        """Warn once if the clock differs from the leader's in several beacons in a row: one beacon may be late."""
        self._clock_ns.append(difference_ns)
        least_ns = min(map(abs, self._clock_ns))
        if least_ns < CLOCK_NS:
            self._has_warned = False
        elif len(self._clock_ns) == self._clock_ns.maxlen and not self._has_warned:
            self._has_warned = True
            way = "behind" if difference_ns > 0 else "ahead of"
            text = "the clock of this node is %.0f s %s the leader's: message times move by that when this node leads"
            logger.warning(text, least_ns / 1e9, way)

    # -- for the status ----------------------------------------------------------------------------------------

    @property
    def followed(self) -> str | None:
        """The name of the leader whose link is open; None: no link is open."""
        leader, link = self._leader, self.link
        return leader.name if leader is not None and link is not None and link.is_open else None

    @property
    def trouble(self) -> str:
        """Why there is no link to the leader; "": there is one, or no reason is known yet."""
        return "" if self.link is None else self.link.why

    @property
    def received(self) -> int:
        """Octets of the journal that came by the link."""
        return 0 if self.link is None else self.link.received

    @property
    def leader_status(self) -> Mapping[str, object]:
        """The status of the leader's process, as its last beacon told it."""
        return {} if self.link is None else self.link.leader_status
