"""The follower's side of links: it connects to the leader again and again, and serves one link at a time."""

import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto

import trio

from ...journal import REAL, BadOctets, Files, JournalError, JournalFull, NotInJournal
from ...journal.copying.copied_journal import CopiedJournal
from ..agreement.events import Event, Joined, JoinRefused, LeaderRefused
from ..copying.full_copy import NoRoom
from ..copying.joining import JournalSummary
from . import frames as f
from .challenge import ChallengeFault, Credentials
from .introduction import connect
from .open_link import FollowingNode, OpenLink
from .options import Address, LinkOptions, LinkTls
from .stream import Declined, LinkFault, LinkStream, Refused

logger = logging.getLogger("leveret.cluster")

#: Seconds until the next connection after a fault of the journal, such as a full disk or wrong octets.
FAULT_PAUSE_S = 1.0
#: Seconds until the next connection if the disk has no room for a full copy.
ROOM_PAUSE_S = 10.0
#: Seconds until the log has the same line again: the link of a node whose disk is full opens and ends each second.
SAME_LINE_S = 60.0
#: Seconds until the next connection after a link was lost, a connection was refused, or the node answered that it does
#: not lead yet. After three refusals this node may campaign.
SOON_S = 0.05


class Ending(Enum):
    """Why `LeaderLink.run` returned.

    COPIED: a full copy has replaced the journal: open the directory again, under the copy's node id. DECLINED: the
    leader refuses this node until an operator has changed something. FAILED: the journal failed: open the directory
    again.
    """

    COPIED = auto()
    DECLINED = auto()
    FAILED = auto()


class LeaderLink:
    """Connects to the leader again and again. `copied`: None: the journal is damaged; then `damaged` describes it.

    `report` gets LeaderRefused, LeaderHeard, Joined, JoinRefused, Durable, Drain, Revive. All methods are for the event
    loop. Threads use the journal only while `run` is under way.
    """

    def __init__(
        self,
        credentials: Credentials,
        name: str,
        path: str,
        copied: CopiedJournal | None,
        report: Callable[[Event], object],
        *,
        damaged: JournalSummary | None = None,
        level: int = 0,
        options: LinkOptions | None = None,
        tls: LinkTls | None = None,
        files: Files = REAL,
        wall_ms: Callable[[], int] = lambda: 0,
        status: Callable[[], Mapping[str, object]] = dict,
        reload: Callable[[], object] = lambda: None,
        site: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        assert (copied is None) != (damaged is None)
        self._options = options or LinkOptions()
        self._follower = FollowingNode(path, copied, report, self._options, files, wall_ms, status, reload)
        self.why = ""  # why the last link ended, or could not be opened
        self._logged, self._log_again_s = "", 0.0  # the last line in the log, and when it may be logged again
        self._credentials = credentials
        self._name = name
        self._damaged = damaged
        self._level = level
        self._tls = tls or LinkTls()
        self._site = site
        self.acknowledges = False  # see `acknowledge`
        self._wants_copy = copied is None
        self._is_copied = False  # a full copy has replaced the journal
        self._open: OpenLink | None = None

    @property
    def leader_status(self) -> Mapping[str, object]:
        """The status in the leader's last beacon."""
        return self._follower.leader_status

    @property
    def is_open(self) -> bool:
        """Whether a link is open, over which the leader sends its journal."""
        return self._open is not None

    @property
    def received(self) -> int:
        """Octets of the journal that came over the open link."""
        return 0 if self._open is None else self._open.received

    def acknowledge(self, is_on: bool) -> None:
        """Start or stop sending acknowledgements."""
        self.acknowledges = is_on
        if self._open is not None:
            self._open.acknowledge(is_on)

    async def run(self, address: Address, term: int) -> Ending:
        """Follow the leader of a term. Connect again whenever the link ends, until cancelled or an `Ending`."""
        while not self._is_copied:
            pause_s = self._options.retry_s
            try:
                link = await connect(address, self._credentials, self._tls.client, self._options)
                pause_s = SOON_S
                try:
                    await self._follow(link, term)
                finally:
                    await link.close()
            except Refused as fault:
                self._note(str(fault))
                self._follower.report(LeaderRefused())
                pause_s = SOON_S
            except Declined as fault:
                self._note(str(fault), logging.WARNING if fault.is_final else logging.INFO)
                if fault.is_final:
                    self._follower.report(JoinRefused(str(fault)))
                    return Ending.DECLINED
            except (LinkFault, f.FrameFault, ChallengeFault) as fault:
                self._note(f"{address}: {fault}{self._tls.doubt(self._follower.wall_ms())}")
            except NoRoom as fault:
                self._note(str(fault))
                pause_s = ROOM_PAUSE_S
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
        return Ending.COPIED

    def _note(self, why: str, level: int = logging.WARNING) -> None:
        """Log why there is no link, but not twice in a row.

        If a link was open since, the same line may be logged again, after `SAME_LINE_S`.
        """
        now_s = trio.current_time()
        if why != self.why and (why != self._logged or now_s >= self._log_again_s):
            logger.log(level, "link to the leader: %s", why)
            self._logged, self._log_again_s = why, now_s + SAME_LINE_S
        self.why = why

    async def _follow(self, link: LinkStream, term: int) -> None:
        """Serve one link, until a full copy has replaced the journal. Raises: what `run` catches.

        Also a link that breaks, or is cancelled, may end with a whole copy: with the last octets that came.
        """
        copied, silence_s = self._follower.copied, self._options.silence_s
        if copied is not None:
            await trio.to_thread.run_sync(copied.sync)
            summary = JournalSummary(copied.journal_id, copied.terms, copied.end)
        else:
            assert self._damaged is not None
            summary = self._damaged
        await link.send(
            f.Hello(
                f.VERSION, self._credentials.cluster, self._credentials.group, self._name, self._level, term,
                summary.journal_id, summary.terms, summary.end, self._wants_copy, self._site(),
            )
        )  # fmt: skip
        cut: f.Cut | None = None
        copy: f.Copy | None = None
        while not isinstance(message := await link.receive(f.Cut, f.Copy, f.Welcome, timeout_s=silence_s), f.Welcome):
            if isinstance(message, f.Cut):
                cut = message
            elif isinstance(message, f.Copy):
                copy = message
        if message.terms.last_term != term:
            raise f.FrameFault(f"it leads in term {message.terms.last_term}, not {term}")
        if message.level > self._level:
            logger.warning("the leader's journal needs a newer program than this one: it copies, but cannot lead")
        opened = OpenLink(self._follower, link, term, copy)
        try:
            await trio.to_thread.run_sync(opened.join, message, cut)
            if not opened.is_beside:
                assert opened.copied is not None
                self._follower.report(Joined(opened.copied.terms, opened.copied.end))
            self._open = opened
            opened.acknowledge(self.acknowledges)
            self.why = ""
            await opened.run()
        finally:
            self._open, self._is_copied = None, opened.is_whole
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(opened.close)
