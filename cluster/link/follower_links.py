"""The leader's side of links: it sends the journal to each follower, and reports acknowledgements.

The journal's writer passes its octets to `written` before it fsyncs them. They are sent in the writer's thread (see
`FeedSender`), which never waits for a follower.
"""

import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import trio

from ...journal import REAL, Damaged, Files, JournalError, NotInJournal, TermTable
from ...journal.copying.octet_reader import damage_in, position_of
from ...journal.disk.segment import segments_in
from ...journal.format.terms import FIRST_LSN
from ..agreement.events import Acknowledged, Event, FollowerHeard, JournalDamaged, LinkClosed, LinkOpened
from ..copying.joining import CutTo, FullCopy, JournalSummary, Refuse, join
from . import frames as f
from .feed import Feed, Position
from .feed_sender import FeedSender, Pending
from .follower_segments import FollowerSegments
from .options import LinkOptions
from .pace import Pace
from .relay import as_socket
from .stream import READ_SIZE, Declined, LinkFault, LinkStream

logger = logging.getLogger("leveret.cluster")

#: Minimum seconds between two checks of the files for damage. A follower's No, or an error of the files, starts one,
#: unless damage was already found.
DAMAGE_CHECK_S = 60.0
#: Followers that may be linked at once; a cluster has three or five nodes.
FOLLOWERS_MAX = 32


@dataclass(slots=True, frozen=True)
class LeaderJournal:
    """What is known about a leader's journal when it is opened."""

    path: str
    journal_id: bytes
    terms: TermTable

    @property
    def term(self) -> int:
        """The leader's term."""
        return self.terms.last_term


@dataclass(slots=True, frozen=True)
class FollowerStatistics:
    """Figures of one follower's link. behind_octets: octets not sent yet; None: they span several segments."""

    node_id: bytes
    acknowledged_lsn: int
    behind_octets: int | None
    sent_octets: int
    is_from_files: bool
    is_full_copy: bool
    status: Mapping[str, object]


class FollowerLinks:
    """The links of one leadership. `report` gets LinkOpened, FollowerHeard, Acknowledged, LinkClosed, JournalDamaged.

    position, end: the end of the journal when this is made, as position and LSN; `written` continues there. needs: see
    `Needs`. level: of the journal, according to etcd. on_joined, on_left: called for each link, also for a full copy,
    with the node's name; on_joined also with the description of its site. on_left is not called while the node has
    another link.
    `written`, `needed` and `unlinked` are for the journal's thread, `is_owed` is for any thread, and all other methods
    are for the event loop.
    """

    def __init__(
        self,
        journal: LeaderJournal,
        report: Callable[[Event], object],
        *,
        position: tuple[int, int],
        end: int,
        needs: frozenset[str] = frozenset(),
        options: LinkOptions | None = None,
        files: Files = REAL,
        wall_ms: Callable[[], int] = lambda: 0,
        status: Callable[[], Mapping[str, object]] = dict,
        level: Callable[[], int] = lambda: 0,
        on_joined: Callable[[str, Mapping[str, object]], object] = lambda name, site: None,
        on_left: Callable[[str], object] = lambda name: None,
    ) -> None:
        self.journal = journal
        self._on_joined, self._on_left = on_joined, on_left
        self.level = level
        self.report = report
        self.options = options or LinkOptions()
        self.files = files
        self.wall_ms = wall_ms
        self.status = status
        self.position = Position(*position)
        self.end = end
        self.written_octets = 0  # in total, by the journal's writer
        self.needs = needs
        self.agreed = 0
        self.is_closed = False
        self._followers: dict[bytes, _FollowerLink] = {}
        self._senders: tuple[FeedSender, ...] = ()  # of all followers
        self._acknowledging: tuple[_FollowerLink, ...] = ()  # all links but those whose `is_beside` is set
        self._lock = threading.Lock()  # of the senders, the position, the end, and the needs
        self._link_count = 0  # all links until now, also closed ones
        self._has_no_status = False
        self._status_sent: Mapping[str, object] = {}  # what beacons say until `_status_until_s`
        self._status_until_s = 0.0
        self._check_after_s = 0.0  # the earliest time of the next check for damage
        self._damage: Damaged | None = None

    def written(self, base_lsn: int, offset: int, octets: bytes | bytearray | memoryview, end_lsn: int) -> None:
        """Send octets that the journal's writer appended. They must not change later."""
        with self._lock:
            self.position = Position(base_lsn, offset + len(octets))
            self.end = end_lsn
            self.written_octets += len(octets)
            for sender in self._senders:
                sender.written(base_lsn, offset, octets)

    def needed(self, needs: frozenset[str]) -> None:
        """Tell followers which features a program must know to read the octets written after this call."""
        with self._lock:
            self.needs |= needs
        self._put(f.Needs(self.needs))

    def unlinked(self, base_lsns: Sequence[int]) -> None:
        """Tell followers up to which segment the leader has deleted its journal."""
        self._put(f.Unlink((max(base_lsns),)))

    def is_linked(self, node_id: bytes) -> bool:
        """Whether the link of a follower is open."""
        return node_id in self._followers

    def is_owed(self, lsn: int, catching_up: Container[bytes] = ()) -> bool:
        """Whether a follower has yet to acknowledge something below `lsn`, but for some nodes. For any thread."""
        return any(one.acknowledged < lsn and one.node_id not in catching_up for one in self._acknowledging)

    def _put(self, message: f.Needs | f.Unlink) -> None:
        with self._lock:
            for sender in self._senders:
                sender.put(message)

    def set_agreed(self, agreed: int) -> None:
        """Set the agreed LSN of the next beacons."""
        self.agreed = agreed

    def order(self, node_id: bytes, verb: str) -> bool:
        """Send an operator's order to a follower, see `Order`. False: it has no link."""
        follower = self._followers.get(node_id)
        if follower is None:
            return False
        follower.order(verb)
        return True

    def close_all(self, why: str) -> None:
        """Close all links, and refuse others."""
        self.is_closed = True
        for follower in list(self._followers.values()):
            follower.close(why)

    def statistics(self) -> list[FollowerStatistics]:
        """The statistics of each link."""
        return [follower.statistics() for follower in self._followers.values()]

    def beacon_status(self) -> Mapping[str, object]:
        """The status of this process, read once for the beacons to all followers.

        It is empty if it cannot be read or sent: the links are needed all the same.
        """
        now_s = trio.current_time()
        if now_s < self._status_until_s:
            return self._status_sent
        self._status_until_s = now_s + self.options.beacon_s * 0.9
        try:
            self._status_sent = self.status()
            f.check_status(self._status_sent)
        except (OSError, f.FrameFault) as error:
            if not self._has_no_status:
                logger.warning("the status of this node cannot be sent: %s", error)
            self._has_no_status, self._status_sent = True, {}
        else:
            self._has_no_status = False
        return self._status_sent

    async def serve(self, link: LinkStream, hello: f.Hello) -> None:
        """Serve a follower until its link ends. Raises: LinkFault, FrameFault."""
        self._link_count += 1
        follower = _FollowerLink(self, link, hello, self._link_count)
        try:
            try:
                answer = await trio.to_thread.run_sync(follower.answer_hello, self.position, self.end)
            except (OSError, JournalError) as error:
                follower.suspects_damage = True
                answer = f.No(f"the leader cannot read its journal: {error}")
            if self.is_closed:
                answer = f.No("this node no longer leads")
            elif len(self._followers) >= FOLLOWERS_MAX:
                answer = f.No(f"{FOLLOWERS_MAX} followers are connected")
            if isinstance(answer, f.No):
                with trio.move_on_after(1):
                    await link.send(answer)
                raise Declined(f"{hello.name} was refused: {answer.why}", is_final=True)
            if (former := self._followers.get(follower.node_id)) is not None:
                former.close("the node has connected again")
            await follower.serve(answer)
        finally:
            follower.close("the link ended")
            with trio.CancelScope(shield=True):
                await link.close()  # the node need not wait for the check of the files
                await trio.to_thread.run_sync(follower.segments.release)
            if follower.suspects_damage:
                await self._check_for_damage(follower.start.base_lsn)

    async def _check_for_damage(self, base_lsn: int) -> None:
        """Report damage in the segments from `base_lsn` on, which could not be read or which a follower refused.

        They are checked at most each `DAMAGE_CHECK_S`. Damage that an earlier check found is reported without a check.
        """
        if self._damage is None and trio.current_time() >= self._check_after_s:
            self._check_after_s = trio.current_time() + DAMAGE_CHECK_S
            where = self.journal.path, base_lsn, self.position, self.files
            self._damage = await trio.to_thread.run_sync(damage_in, *where, abandon_on_cancel=True)
            if self._damage is not None:
                logger.critical("the journal of this node is damaged: %s", self._damage)
        if self._damage is not None and not self.is_closed:
            self.report(JournalDamaged(self._damage))

    def add(self, follower: "_FollowerLink") -> None:
        """Send a follower whatever is written after this call."""
        self._followers[follower.node_id] = follower
        if not follower.is_beside:
            self._acknowledging += (follower,)
        with self._lock:
            if self.position > follower.feed.tail:  # octets were written during `answer_hello`: the files have them
                follower.sender.skip_to(self.position)
            if self.needs != follower.sent_needs:
                follower.sender.put(f.Needs(self.needs))
            self._senders += (follower.sender,)
        self._on_joined(follower.name, follower.site)

    def remove(self, follower: "_FollowerLink") -> None:
        """Send nothing more to a follower whose link is closed."""
        if self._followers.get(follower.node_id) is follower:
            del self._followers[follower.node_id]
        self._acknowledging = tuple(one for one in self._acknowledging if one is not follower)
        with self._lock:
            self._senders = tuple(one for one in self._senders if one is not follower.sender)
        if all(one.name != follower.name for one in self._followers.values()):  # it may be back, under another node id
            self._on_left(follower.name)


class _FollowerLink:
    """Serves the link of one follower."""

    def __init__(self, links: FollowerLinks, link: LinkStream, hello: f.Hello, number: int) -> None:
        self._links = links
        self._link = link
        self._hello = hello
        self._scope = trio.CancelScope()
        self._woken = trio.Event()
        self.segments = FollowerSegments(links.journal.path, hello.name, number, links.files)
        self.is_beside = False  # the follower gets a full copy beside its journal, so it acknowledges nothing
        self._is_open = False
        self._why = ""
        self._orders: list[f.Message] = []
        self._has_orders = trio.Event()
        self._pace = Pace(links.options.copy_rate)
        self._read_after_s = 0.0
        self._status: f.Status | None = None
        self._silent_beacons = 0  # beacons sent since something was heard
        self.suspects_damage = False  # the files could not be read, or the follower refused their octets
        self._decoder = f.Decoder(f.No, f.Ack, f.Status)
        self._socket: socket.socket
        self.acknowledged = 0
        self.node_id = hello.terms.node_id
        self.name = hello.name
        self.site = hello.site or {}
        self.start = Position(FIRST_LSN, 0)  # of the first octet that is sent
        self.feed: Feed
        self.sender: FeedSender
        self.sent_needs: frozenset[str] = frozenset()

    # -- joining -------------------------------------------------------------------------------------------------------

    def answer_hello(self, tail: Position, end: int) -> list[f.Message] | f.No:
        """Decide how the follower joins. For a thread.

        Returns the messages for it, or a No that refuses it. Raises: OSError, JournalError.
        """
        links, hello, journal, files = self._links, self._hello, self._links.journal, self._links.files
        if hello.term != journal.term:
            return f.No(f"this node leads in term {journal.term}, not {hello.term}")
        follower = JournalSummary(hello.journal_id, hello.terms, hello.end)
        oldest = segments_in(files, journal.path)[0]
        answer = join(
            JournalSummary(journal.journal_id, journal.terms, end), oldest, follower, wants_copy=hello.wants_copy
        )
        if isinstance(answer, Refuse):
            return f.No(answer.why, is_final=True)
        messages: list[f.Message] = []
        if not isinstance(answer, FullCopy):
            self.segments.keep_from(answer.lsn)
            try:
                position = Position(*position_of(journal.path, answer.lsn, files))
            except NotInJournal as error:
                answer = FullCopy(is_beside=True, why=str(error))
            else:
                lsn = answer.lsn
                if isinstance(answer, CutTo):
                    messages.append(f.Cut(lsn))
        if isinstance(answer, FullCopy):
            self.segments.keep_from(1)
            oldest = segments_in(files, journal.path)[0]
            lsn, position = oldest, Position(oldest, 0)
            self.is_beside = answer.is_beside
            messages.append(f.Copy(end, self.segments.size_between(position, tail), answer.is_beside))
            logger.info("%s gets a full copy: %s", hello.name, answer.why)
        self.start = position
        self.feed = Feed(position, max(tail, position), links.options.backlog_octets)
        self.sent_needs = links.needs
        messages.append(
            f.Welcome(
                f.VERSION, links.level(), journal.journal_id, journal.terms,
                position.base_lsn, position.offset, lsn, oldest, self.sent_needs,
            )
        )  # fmt: skip
        self.acknowledged = lsn
        return messages

    # -- the event loop ------------------------------------------------------------------------------------------------

    def close(self, why: str) -> None:
        """End the link: report that at once, and cancel its tasks."""
        if self._is_open:
            self._is_open = False
            self._why = why
            self._links.remove(self)
            if not self.is_beside:
                self._links.report(LinkClosed(self.node_id))
            self._scope.cancel()

    async def serve(self, first: Sequence[f.Message]) -> None:
        """Send `first` and the journal, and receive, until the link ends. Raises: LinkFault, FrameFault."""
        links, token = self._links, trio.lowlevel.current_trio_token()

        def wake() -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._woken.set, idempotent=True)

        self._decoder.receive(self._link.take_rest())
        self._socket, relaying = as_socket(self._link.stream)
        self.sender = FeedSender(self._socket, self.feed, wake, b"".join(map(f.encode, first)))
        try:
            links.add(self)
            self._is_open = True
            if not self.is_beside:
                links.report(LinkOpened(self.node_id, self.acknowledged))
            with self._scope:
                async with trio.open_nursery() as nursery:
                    if relaying is not None:
                        nursery.start_soon(relaying)
                    for task in (self._send, self._beacon, self._receive):
                        nursery.start_soon(self._until_fault, task)
        finally:
            self.sender.close()
            if relaying is not None:
                relaying.close()
        raise LinkFault(f"{self._hello.name}: {self._why}")

    async def _until_fault(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except (LinkFault, f.FrameFault, NotInJournal, OSError) as fault:
            self.suspects_damage |= isinstance(fault, (Declined, NotInJournal, OSError))
            self.close(str(fault))

    async def _send(self) -> None:
        """Send what the `FeedSender` left unsent. Raises: LinkFault, NotInJournal, OSError."""
        while True:
            self._woken = trio.Event()
            pending, span = self.sender.send_pending()
            if pending is Pending.LOST:
                raise LinkFault("the connection was lost")
            if pending is Pending.SOCKET:
                await trio.lowlevel.wait_writable(self._socket)
            elif span is not None:
                await self._read_from_files(*span)
            elif self.segments.are_kept and not self.is_beside:
                await trio.to_thread.run_sync(self.segments.release)
            else:
                await self._woken.wait()

    async def _read_from_files(self, start: Position, end: Position) -> None:
        await trio.sleep_until(self._read_after_s)
        now_s, written = trio.current_time(), self._links.written_octets
        read = await trio.to_thread.run_sync(self.segments.read, start, end)
        if read.behind is not None:
            self._pace.begin(read.behind, written, now_s)
        self._read_after_s = self._pace.next_read_s(len(read.frames), self._links.written_octets, now_s)
        self.sender.was_read(read.end, read.frames)

    def order(self, verb: str) -> None:
        """Send an order at once, with a beacon."""
        self._orders.append(f.Order(verb))
        self._has_orders.set()

    async def _beacon(self) -> None:
        """Send beacons. Raises: LinkFault: the follower was silent for `silence_s`.

        Silence is counted in beacons: a time would include standstills of this process.
        """
        links, beacon_s, silence_s = self._links, self._links.options.beacon_s, self._links.options.silence_s
        while True:
            orders, self._orders, self._has_orders = self._orders, [], trio.Event()
            beacon = f.Beacon(links.journal.term, links.agreed, links.wall_ms(), links.beacon_status())
            self.sender.beacon(f.encode(beacon), b"".join(map(f.encode, orders)))
            with trio.move_on_after(beacon_s):
                await self._has_orders.wait()
                continue
            self._silent_beacons += 1
            if self._silent_beacons * beacon_s > silence_s:
                raise LinkFault(f"nothing was heard for {silence_s:g} s")

    async def _receive(self) -> None:
        """Receive acknowledgements and status. Raises: LinkFault, FrameFault."""
        self._handle_all()
        raise LinkFault(await self._links.options.until_readable(self._socket.fileno(), self._take))

    def _take(self) -> str | None:
        """Take what has come. Returns: why the link ends, if it does. Raises: FrameFault, Declined."""
        try:
            data = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:
            return "the connection was lost"
        if not data:
            self._decoder.end()
            return "the other node closed the connection"
        self._silent_beacons = 0
        self._decoder.receive(data)
        self._handle_all()
        return None

    def _handle_all(self) -> None:
        """Raises: FrameFault, Declined."""
        for message in self._decoder.messages():
            if not self._is_open:
                return
            self._handle(message)

    def _handle(self, message: f.Message) -> None:
        """Raises: FrameFault, Declined."""
        links = self._links
        if isinstance(message, f.Status):
            self._status = message
            links.report(FollowerHeard(self.node_id))
        elif isinstance(message, f.Ack):
            if message.term != links.journal.term or message.lsn > links.end or self.is_beside:
                raise f.FrameFault(f"it acknowledges {message.lsn} of term {message.term}, which it was not sent")
            self.acknowledged = message.lsn
            links.report(Acknowledged(self.node_id, message.term, message.lsn))
        elif isinstance(message, f.No):
            raise Declined(message.why, is_final=message.is_final)

    def statistics(self) -> FollowerStatistics:
        """The figures of this link."""
        feed = self.feed
        position, tail = feed.position, feed.tail
        return FollowerStatistics(
            self.node_id,
            self.acknowledged,
            tail.offset - position.offset if position.base_lsn == tail.base_lsn else None,
            self.sender.sent,
            feed.to_read is not None,
            self.is_beside,
            self._status.status if self._status is not None else {},
        )
