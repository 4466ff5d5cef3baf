"""The follower's side: the link to the leader, and the octets that come over it.

One thread appends and fsyncs, one call at a time; what came meanwhile goes with the next call. The link is read on
while the disk works, up to `INBOX_MAX` octets. Acknowledgements are sent only while `acknowledge` allows them.
"""

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

import trio

from ...journal import REAL, BadOctets, Files, JournalError, JournalFull, NotInJournal
from ...journal.copying.copied_journal import CopiedJournal
from ...journal.disk.segment import segments_in
from ...journal.format.terms import FIRST_LSN
from ..agreement.events import Drain, Durable, Event, Joined, JoinRefused, LeaderHeard, LeaderRefused, Revive
from ..copying import full_copy
from ..copying.joining import Held
from .challenge import ChallengeFault, Circle
from .frames import (
    VERSION,
    Ack,
    Beacon,
    Copy,
    Cut,
    FrameFault,
    Hello,
    Message,
    Needs,
    Octets,
    Order,
    Status,
    Unlink,
    Welcome,
)
from .introduction import Address, Declined, LinkFault, LinkOptions, LinkStream, Refused, connect

logger = logging.getLogger("leveret.cluster")

#: Octets that wait for the disk above which the link is not read.
INBOX_MAX = 8 * 1024 * 1024
#: Seconds until the next try after a fault that is not about the connection (a full disk, wrong octets).
FAULT_PAUSE_S = 1.0
#: Verb of an order -> event.
ORDERS: Mapping[str, Event] = {"drain": Drain(), "revive": Revive()}


class Ending(Enum):
    """Why a node follows no longer.

    COPIED: a full copy is in the journal's place, which is to be opened again, under the copy's node id. DECLINED: the
    leader refuses this node for good. FAILED: the journal's directory is to be opened again, or is lost.
    """

    COPIED = auto()
    DECLINED = auto()
    FAILED = auto()


@dataclass(slots=True, frozen=True)
class CopyProgress:
    """A full copy: octets that came, of about `size`."""

    octets: int
    size: int


class LeaderLink:
    """Follows one leader after the other. `copied`: None, if the journal is damaged; `damaged` is what is known of it.

    report gets LeaderRefused, LeaderHeard, Joined, JoinRefused, Durable, Drain, Revive. All methods are for the event
    loop; the journal is used by threads while `run` is under way, and by none when it has ended.
    """

    def __init__(
        self,
        circle: Circle,
        name: str,
        path: str,
        copied: CopiedJournal | None,
        report: Callable[[Event], object],
        *,
        damaged: Held | None = None,
        level: int = 0,
        options: LinkOptions | None = None,
        tls: ssl.SSLContext | None = None,
        files: Files = REAL,
        wall_ms: Callable[[], int] = lambda: 0,
        status: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        assert (copied is None) != (damaged is None)
        self.copied = copied
        self.progress: CopyProgress | None = None
        self.leader_status: Mapping[str, object] = {}
        self.why = ""  # the last link ended, or could not be opened
        self._circle = circle
        self._name = name
        self._path = path
        self._report = report
        self._damaged = damaged
        self._level = level
        self._options = options or LinkOptions()
        self._tls = tls
        self._files = files
        self._wall_ms = wall_ms
        self._status = status
        self._acknowledges = False
        self._wants_copy = copied is None
        self._following: _Following | None = None

    def acknowledge(self, is_on: bool) -> None:
        """Send acknowledgements, or send none from now on."""
        self._acknowledges = is_on
        if is_on and self._following is not None:
            self._following.hurry()

    async def run(self, address: Address, term: int) -> Ending:
        """Follow the leader of a term: connect again whenever the link ends, until cancelled."""
        while True:
            pause_s = self._options.retry_s
            try:
                link = await connect(address, self._circle, self._tls, self._options)
                try:
                    if await self._follow(link, term):
                        return Ending.COPIED
                finally:
                    await link.close()
            except Refused as fault:
                self._note(str(fault))
                self._report(LeaderRefused())
            except Declined as fault:
                self._note(str(fault))
                if fault.is_final:
                    self._report(JoinRefused(str(fault)))
                    return Ending.DECLINED
            except (LinkFault, FrameFault, ChallengeFault) as fault:
                self._note(f"{address}: {fault}")
            except (BadOctets, JournalFull) as fault:
                self._note(f"{address}: {fault}")
                pause_s = FAULT_PAUSE_S
            except (NotInJournal, ValueError) as fault:
                self._note(f"{address}: {fault}; the next link asks for a full copy")
                self._wants_copy = True
                pause_s = FAULT_PAUSE_S
            except (JournalError, OSError) as fault:
                self._note(f"the journal failed: {fault}")
                return Ending.FAILED
            await trio.sleep(pause_s)

    def _obey(self, verb: str) -> None:
        event = ORDERS.get(verb)
        if event is None:
            logger.warning("an order of the leader that this release does not know: %s", verb)
        else:
            self._report(event)

    def _note(self, why: str) -> None:
        if why != self.why:
            logger.warning("link to the leader: %s", why)
            self.why = why

    async def _follow(self, link: LinkStream, term: int) -> bool:
        """Serve one link. Returns: whether a full copy is in the journal's place. Raises: see `run`."""
        copied, silence_s = self.copied, self._options.silence_s
        if copied is not None:
            await trio.to_thread.run_sync(copied.sync)
            held = Held(copied.journal_id, copied.terms, copied.end)
        else:
            assert self._damaged is not None
            held = self._damaged
        await link.send(
            Hello(
                VERSION, self._circle.cluster, self._circle.group, self._name, self._level, term,
                held.journal_id, held.terms, held.end, self._wants_copy,
            )
        )  # fmt: skip
        cut: Cut | None = None
        copy: Copy | None = None
        while not isinstance(said := await link.receive(Cut, Copy, Welcome, timeout_s=silence_s), Welcome):
            if isinstance(said, Cut):
                cut = said
            elif isinstance(said, Copy):
                copy = said
        if said.terms.last_term != term:
            raise FrameFault(f"it leads in term {said.terms.last_term}, not {term}")
        if said.level > self._level:
            logger.warning("the leader's journal needs a newer program than this one: it copies, but cannot lead")
        following = _Following(self, link, term, copy)
        try:
            await trio.to_thread.run_sync(following.join, said, cut)
            if not following.is_beside:
                assert following.copied is not None
                self._report(Joined(following.copied.terms, following.copied.end))
            self._following = following
            self.why = ""
            return await following.run()
        finally:
            self._following = None
            self.progress = None
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(following.close)


class _Following:
    """One link to the leader, from its Welcome on."""

    def __init__(self, leader_link: LeaderLink, link: LinkStream, term: int, copy: Copy | None) -> None:
        self._leader_link = leader_link
        self._link = link
        self._term = term
        self._copy = copy
        self.is_beside = copy is not None and copy.is_beside
        self.copied = None if self.is_beside else leader_link.copied
        self._inbox: list[Message] = []
        self._inbox_octets = 0
        self._received = 0
        self._arrived = trio.Event()
        self._has_room = trio.Event()
        self._hurried = trio.Event()
        self._fsynced = 0
        self._acknowledged = 0
        self._is_whole = False  # the copy is in the journal's place
        self._fault: Exception | None = None

    # -- in a thread ---------------------------------------------------------------------------------------------------

    def join(self, welcome: Welcome, cut: Cut | None) -> None:
        """Do what the leader said before its octets come. Raises: JournalError, OSError, LinkFault."""
        outer = self._leader_link
        if self.is_beside:
            self.copied = full_copy.begin(outer._path, outer._files)
        copied = self.copied
        if copied is None:
            raise LinkFault("the leader sends octets, but the journal is damaged")
        if copied.journal_id is None:
            copied.begin(welcome.journal_id)
        elif copied.journal_id != welcome.journal_id:
            raise LinkFault(f"the leader answered for another journal, {welcome.journal_id.hex()}")
        elif self._copy is None or copied.end > FIRST_LSN:
            copied.upgrade()
            if cut is not None:
                copied.cut(cut.lsn)
            if copied.position != (welcome.base_lsn, welcome.offset):
                there = (welcome.base_lsn, welcome.offset)
                raise LinkFault(f"the leader goes on at {there}, this journal at {copied.position}")
        copied.add_needs(welcome.needs)
        copied.set_terms(copied.terms.with_starts_of(welcome.terms))
        if old := [base_lsn for base_lsn in segments_in(outer._files, copied.path) if base_lsn < welcome.oldest]:
            copied.unlink(old)
        self._fsynced = copied.end

    def _write(self, messages: list[Message]) -> int:
        """Append what came, fsync, and return the LSN up to which all is fsynced. Raises: JournalError, OSError."""
        copied = self.copied
        assert copied is not None
        for message in messages:
            if isinstance(message, Octets):
                copied.append(message.base_lsn, message.offset, message.octets)
            elif isinstance(message, Unlink):
                copied.sync()  # a checkpoint that makes the segments needless is on this disk, too
                copied.unlink(message.base_lsns)
            elif isinstance(message, Needs):
                copied.add_needs(message.needs)
        lsn = copied.sync()
        if self._copy is not None and self.is_beside and lsn >= self._copy.until:
            outer = self._leader_link
            self.close()
            if outer.copied is not None:
                outer.copied.close()
                outer.copied = None
            full_copy.swap(outer._path, outer._files)
            self._is_whole = True
        return lsn

    def close(self) -> None:
        """Close the copy beside, if there is one."""
        if self.is_beside and self.copied is not None:
            self.copied.close()
            self.copied = None

    # -- the event loop ------------------------------------------------------------------------------------------------

    async def run(self) -> bool:
        """Receive and write until the link ends. Returns: whether a full copy is whole. Raises: as `LeaderLink.run`."""
        async with trio.open_nursery() as nursery:
            for task in (self._receive, self._keep_writing, self._keep_telling):
                nursery.start_soon(self._until_fault, task, nursery.cancel_scope)
        if self._fault is not None:
            raise self._fault
        return self._is_whole

    async def _until_fault(self, task: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        try:
            await task()
        except (LinkFault, FrameFault, JournalError, OSError, ValueError) as fault:
            self._fault = self._fault or fault
        scope.cancel()

    async def _receive(self) -> None:
        """Raises: LinkFault, FrameFault."""
        outer, link = self._leader_link, self._link
        silence_s = outer._options.silence_s
        while True:
            message = await link.receive(Octets, Beacon, Unlink, Needs, Order, timeout_s=silence_s)
            if isinstance(message, Beacon):
                if message.term != self._term:
                    raise FrameFault(f"a beacon of term {message.term}")
                outer.leader_status = message.status
                difference_ms = message.wall_ms - outer._wall_ms()
                outer._report(LeaderHeard(message.term, message.agreed, difference_ms * 1_000_000))
                continue
            if isinstance(message, Order):
                outer._obey(message.verb)
                continue
            self._inbox.append(message)
            if isinstance(message, Octets):
                size = len(message.octets)
                self._inbox_octets += size
                self._received += size
                if self._copy is not None:
                    outer.progress = CopyProgress(self._received, self._copy.size)
            self._arrived.set()
            if self._inbox_octets > INBOX_MAX:
                self._has_room = trio.Event()
                await self._has_room.wait()

    async def _keep_writing(self) -> None:
        """Raises: JournalError, OSError, LinkFault."""
        outer = self._leader_link
        while not self._is_whole:
            if not self._inbox:
                self._arrived = trio.Event()
                await self._arrived.wait()
            messages, self._inbox, self._inbox_octets = self._inbox, [], 0
            self._has_room.set()
            lsn = await trio.to_thread.run_sync(self._write, messages)
            if lsn > self._fsynced:
                self._fsynced = lsn
                if not self.is_beside:
                    outer._report(Durable(lsn))
                    await self._tell_fsynced()

    async def _tell_fsynced(self) -> None:
        lsn = self._fsynced
        if self._leader_link._acknowledges and lsn > self._acknowledged and not self.is_beside:
            self._acknowledged = lsn
            await self._link.send(Ack(self._term, lsn))

    async def _keep_telling(self) -> None:
        """The status at each beacon, and an acknowledgement as soon as they are allowed. Raises: LinkFault."""
        outer = self._leader_link
        while True:
            self._hurried = trio.Event()
            await self._tell_fsynced()
            await self._link.send(Status(outer._wall_ms(), outer._status()))
            with trio.move_on_after(outer._options.beacon_s):
                await self._hurried.wait()

    def hurry(self) -> None:
        """Acknowledge now what was fsynced while that was not allowed."""
        self._hurried.set()
