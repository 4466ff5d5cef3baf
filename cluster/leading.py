"""One leadership of this node: the broker and its journal, the links of followers, and checks of the disk.

The journal's thread sends what it writes and reports what it fsyncs; everything else runs in the event loop.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import trio

from ..engine import EventKind
from ..journal import ClusterJournal, Journal, TermTable, WriterState
from ..journal.copying.copied_journal import CopiedJournal
from ..journal.disk.segment_file import probe
from ..journal.format.needs import LEVEL_MIN
from .agreement.events import DiskFailed, DiskFull, DiskRecovered, DiskStalled, Durable, Event
from .link.follower_links import FollowerLinks, LeaderJournal
from .link.follower_segments import forget_readers, readers_of
from .link.listener import LinkListener
from .node_process import LeadingBroker, NodeProcess
from .options import NodeOptions

logger = logging.getLogger("leveret.cluster")

#: Seconds between two checks of the journal, and between two probes of the disk before there is a broker.
CHECK_S = 0.5
#: Octets that a disk must have free to count as one with room. A leader whose disk is full resigns only for a node with
#: room.
ROOM_OCTETS = 32 * 1024 * 1024
#: A full journal whose disk has room again retries by itself. If it is still full after this many checks that found
#: room, it is reported as full. The leader then resigns if another node with room can lead.
RETRY_CHECKS = 10


def has_room(status: Mapping[str, object]) -> bool:
    """Whether a node's status says that its disk has room enough to lead."""
    free = status.get("disk-free")
    return isinstance(free, int) and free >= ROOM_OCTETS


class Leading:
    """Carries out one leadership, from a campaign's success on.

    `report` gets events of the journal, its disk and the links.
    """

    def __init__(
        self,
        options: NodeOptions,
        term: int,
        level: int,
        process: NodeProcess,
        listener: LinkListener,
        report: Callable[[Event], object],
        status: Callable[[], Mapping[str, object]],
        wall_ms: Callable[[], int],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.term = term
        self.level = level  # of the journal: what may be written
        self.terms: TermTable | None = None
        self.broker: LeadingBroker | None = None
        self.links: FollowerLinks | None = None
        self.is_served = False
        self.ended = trio.Event()  # the broker that served is closed
        self._opened = trio.Event()  # `open` has ended: there is a broker, or the directory is free
        self.has_closed = False  # nothing is reported after this
        self.is_calm = False  # see `Agreement.is_calm`
        self.catching_up: frozenset[bytes] = frozenset()  # see `Agreement.catching_up`
        self._options = options
        self._process = process
        self._listener = listener
        self._report = report
        self._status = status
        self._wall_ms = wall_ms
        self._now_ns = now_ns
        self._probed_ns: int | None = None  # when the probe under way began; only before there is a broker
        self._is_stalled = False
        self._state = WriterState.RUNNING  # of the journal at the last check
        self._checks_with_room = 0  # checks that found room on the disk, since the journal has been full
        self._needs: frozenset[str] = frozenset()  # features that the journal began to use before there were links
        self._agreed = 0
        self._synced_lsn = self._reported_lsn = 0
        self._sites: dict[str, Mapping[str, object]] = {}  # node name -> site, of nodes with links
        self._token = trio.lowlevel.current_trio_token()

    # -- taking over ------------------------------------------------------------------------------------------------

    async def open(self, copied: CopiedJournal, journal_id: bytes, agreed_lsn: int) -> None:
        """Write the term table, recover the journal, restore the broker. Raises: JournalError, OSError, DataUnusable.

        If this node resigns meanwhile, `resign` closes what was opened. If it has resigned already, nothing is opened.
        """
        self._agreed = agreed_lsn
        level = self.level
        try:
            if self.has_closed:
                await trio.to_thread.run_sync(copied.close)
            else:
                self.broker = await trio.to_thread.run_sync(self._build, copied, journal_id, agreed_lsn)
                if not self.has_closed:
                    self.broker.set_sites(self._sites)
                    if self.level != level:  # raised meanwhile, perhaps after the journal was made
                        self.broker.journal.raise_level(self.level)
        finally:
            self._opened.set()

    def open_nothing(self) -> None:
        """For a leadership without a journal: call this instead of `open`."""
        self._opened.set()

    def _build(self, copied: CopiedJournal, journal_id: bytes, agreed_lsn: int) -> LeadingBroker:
        try:
            if copied.journal_id is None:
                copied.begin(journal_id)
            copied.upgrade()
            copied.set_terms(copied.terms.with_term(self.term, copied.sync()))  # all blocks are of earlier terms
            files = self._options.files
            forget_readers(copied.path, readers_of(copied.path, files), files)  # of earlier leaderships
            directory = copied.hand_over()
        except BaseException:
            copied.close()  # so that the directory can be opened again
            raise
        self.terms = copied.terms
        journal, needs = LeaderJournal(copied.path, journal_id, copied.terms), copied.needs

        def written(base_lsn: int, offset: int, octets: bytearray, end_lsn: int) -> None:
            if self.links is None:
                self._begin_links(journal, needs, (base_lsn, offset + len(octets)), end_lsn)
            else:
                self.links.written(base_lsn, offset, octets, end_lsn)

        cluster = ClusterJournal(
            directory,
            agreed_lsn,
            written,
            self._note_synced,
            self._unlinked,
            self._needed,
            max(self.level, LEVEL_MIN),  # an earlier release's `leveret cluster recover` wrote 0 into etcd
        )
        try:
            return self._process.build(cluster)
        except BaseException:
            directory.close()  # the error may have come before there was a journal
            raise

    # -- in the journal's thread ------------------------------------------------------------------------------------

    def _begin_links(self, journal: LeaderJournal, needs: frozenset[str], position: tuple[int, int], end: int) -> None:
        """Let followers join when the journal's first octets are written, while the broker is being restored."""
        self.links = FollowerLinks(
            journal,
            self._tell,
            position=position,
            end=end,
            needs=needs | self._needs,
            options=self._options.link,
            files=self._options.files,
            wall_ms=self._wall_ms,
            status=self._status,
            level=lambda: self.level,
            on_joined=self._node_joined,
            on_left=self._node_left,
        )
        # The previous leader's agreed LSN: a follower in sync that ends below it has a disk that was rolled back.
        self.links.set_agreed(self._agreed)
        self._soon(self._accept_followers)

    def _note_synced(self, lsn: int) -> None:
        """Wake the event loop, unless an acknowledgement will: its event takes this LSN along, see `take_synced`."""
        self._synced_lsn = lsn
        if not (self.is_calm and self.links is not None and self.links.is_owed(lsn, self.catching_up)):
            self._soon(self._tell_synced)

    def _needed(self, needs: frozenset[str]) -> None:
        self._needs |= needs
        if self.links is not None:
            self.links.needed(needs)

    def _unlinked(self, base_lsns: Sequence[int]) -> None:
        if self.links is not None and base_lsns:
            self.links.unlinked(base_lsns)

    # -- any thread -------------------------------------------------------------------------------------------------

    def _soon(self, action: Callable[..., object], *arguments: object) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(action, *arguments)

    # -- the event loop ---------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        if not self.has_closed:
            self._report(event)

    def _tell_synced(self) -> None:
        if (synced := self.take_synced()) is not None:
            self._report(synced)

    def take_synced(self) -> Durable | None:
        """What was fsynced since the last call, as an event; None: nothing, or this leadership has ended.

        Handle it before any other event.
        """
        if self.has_closed or self._synced_lsn == self._reported_lsn:
            return None
        self._reported_lsn = self._synced_lsn
        return Durable(self._reported_lsn)

    def _accept_followers(self) -> None:
        if not self.has_closed:
            self._listener.links = self.links

    def _node_joined(self, name: str, site: Mapping[str, object]) -> None:
        self._sites[name] = site
        if self.broker is not None and not self.has_closed:
            self.broker.add_site(name, site)

    def _node_left(self, name: str) -> None:
        self._sites.pop(name, None)
        if self.broker is not None and not self.has_closed:
            self.broker.remove_site(name)

    # -- leading ----------------------------------------------------------------------------------------------------

    @property
    def journal(self) -> Journal | None:
        """The journal, once it is open."""
        return None if self.broker is None else self.broker.journal

    def agree(self, lsn: int, *, at_once: bool) -> None:
        """Tell broker and followers that everything below `lsn` is agreed. `at_once`: no turn of the broker is under
        way, so it may send now.
        """
        self._agreed = lsn
        if self.broker is not None:
            self.broker.agree(lsn, at_once=at_once)
        if self.links is not None:
            self.links.set_agreed(lsn)

    def raise_level(self, level: int) -> None:
        """Let the journal write records of this level."""
        self.level = level
        if self.broker is not None:
            self.broker.journal.raise_level(level)

    def note(self, kind: EventKind, why: str, name: str | None = None) -> None:
        """Record an event of the cluster, if there is a broker. `name`: of the node concerned; None: this one."""
        if self.broker is not None and not self.has_closed:
            self.broker.note(kind, name or self._options.name, self.term, why)

    async def serve(self) -> None:
        """Serve clients until `resign`. Raises: as `LeadingBroker.serve`."""
        assert self.broker is not None
        self.is_served = True
        try:
            await self.broker.serve()
        finally:
            self._close("the broker has ended")
            self.ended.set()

    async def watch_disk(self) -> None:
        """Report a disk that hangs, is full or has failed, until this leadership ends. An idle journal is probed."""
        while True:
            await trio.sleep(CHECK_S)
            journal = self.journal
            if self.has_closed:
                return
            is_stalled = self.is_stalled
            if is_stalled != self._is_stalled:
                self._is_stalled = is_stalled
                self._tell(DiskStalled() if is_stalled else DiskRecovered())
            if journal is not None:
                if not is_stalled:
                    journal.probe()
                self._check_state(journal)

    async def probe_disk(self) -> None:
        """Probe the disk until there is a broker: opening a journal may take minutes, and a disk may hang meanwhile."""
        while self.broker is None and not self.has_closed:
            self._probed_ns = self._now_ns()
            with suppress(OSError):  # opening the journal reports it
                await trio.to_thread.run_sync(probe, self._options.path, self._options.files, abandon_on_cancel=True)
            self._probed_ns = None
            await trio.sleep(CHECK_S)

    def _check_state(self, journal: Journal) -> None:
        """Report a journal that has failed, or that was full at the last check and still is.

        A full one is not reported while it retries (`RETRY_CHECKS`), nor before followers can join.
        """
        state, self._state = self._state, journal.state
        if journal.state is WriterState.FAILED:
            self._tell(DiskFailed())
        if not journal.state is state is WriterState.FULL:
            self._checks_with_room = 0
            return
        self._checks_with_room += has_room(self._status())
        is_tried_again = 0 < self._checks_with_room < RETRY_CHECKS  # a quota may refuse what seems free
        if self.links is not None and not is_tried_again:
            linked = self.links.statistics()
            roomy = (one.node_id for one in linked if not one.is_full_copy and has_room(one.status))
            self._tell(DiskFull(frozenset(roomy)))

    @property
    def is_stalled(self) -> bool:
        """Whether a write, an fsync or, before there is a broker, a probe hangs for too long. For any thread."""
        broker, probed_ns = self.broker, self._probed_ns
        if broker is not None:
            return broker.journal.stalled_s() > self._options.disk_stall_s
        return probed_ns is not None and self._now_ns() - probed_ns > self._options.disk_stall_s * 1e9

    # -- its end ----------------------------------------------------------------------------------------------------

    async def resign(self, why: str) -> None:
        """Close the broker and the links. Waits for the end of `open`, and returns when both are closed."""
        self._close(why)
        await self._opened.wait()
        self._close(why)  # the links that `open` began meanwhile
        if self.broker is None:
            return
        self.broker.resign()
        if self.is_served:
            await self.ended.wait()
        else:
            await self.broker.close_unserved()

    def _close(self, why: str) -> None:
        self.has_closed = True
        if self.links is not None:
            if self._listener.links is self.links:
                self._listener.links = None
            self.links.close_all(why)
