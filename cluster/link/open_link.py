"""One open link of a follower to its leader: it appends the octets of the leader's journal, and acknowledges them.

Octets that come during an fsync are fsynced by the next one. Acknowledgements are sent only while `acknowledge` allows
them.
"""

import logging
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from ...journal import REAL, BadOctets, Files, JournalError
from ...journal.copying.copied_journal import CopiedJournal
from ...journal.disk.segment import segments_in
from ...journal.format.terms import FIRST_LSN
from ..agreement.events import Drain, Durable, Event, LeaderHeard, Revive
from ..copying import full_copy
from . import frames as f
from .options import LinkOptions
from .relay import as_socket
from .stream import READ_SIZE, Declined, LinkFault, LinkStream

logger = logging.getLogger("leveret.cluster")

#: About the most octets that are appended between two fsyncs. More would make others wait longer for the same disk.
SYNC_MAX = 2 * 1024 * 1024
#: Beacon periods after which the status is sent without a beacon.
WITHOUT_BEACON = 1.1
#: Orders that are events for the agreement.
ORDERS: Mapping[str, Event] = {"drain": Drain(), "revive": Revive()}
#: The order to read the configuration again.
RELOAD = "reload"


@dataclass(slots=True)
class FollowingNode:
    """The state that all links of a follower share. `copied`: None: the journal is damaged, or replaced by a full copy.

    `report` gets events of links. `reload` is called when the leader orders it. `leader_status`: from its last beacon.
    """

    path: str
    copied: CopiedJournal | None
    report: Callable[[Event], object]
    options: LinkOptions
    files: Files = REAL
    wall_ms: Callable[[], int] = lambda: 0
    status: Callable[[], Mapping[str, object]] = dict
    reload: Callable[[], object] = lambda: None
    leader_status: Mapping[str, object] = field(default_factory=dict)


class OpenLink:
    """A link to the leader, from Welcome to its end.

    One thread receives, checks, writes, fsyncs and acknowledges: each switch between it and the event loop would cost
    more than everything else that is done for a block. The event loop sends the status, and acknowledgements that were
    not allowed before, or that the socket did not accept. Both hold the lock `_sending` while they send, so that no
    acknowledgement is sent after `acknowledge(False)` returns (rule R6).
    """

    def __init__(self, follower: FollowingNode, link: LinkStream, term: int, copy: f.Copy | None) -> None:
        self._follower = follower
        self._term = term
        self._copy = copy
        self.is_beside = copy is not None and copy.is_beside  # the octets become a full copy beside the journal
        self.copied = None if self.is_beside else follower.copied
        self._first = link.take_rest()  # octets that came with the leader's answer
        self._socket, self._relaying = as_socket(link.stream)
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._decoder = f.Decoder(f.No, f.Octets, f.Beacon, f.Unlink, f.Needs, f.Order)
        self._token = trio.lowlevel.current_trio_token()
        self._sending = threading.Lock()
        self._may_acknowledge = False
        self.received = 0  # octets of the journal
        self._fsynced = 0
        self._acknowledged = 0
        self._unsent = b""  # the rest of a message of which the socket accepted only the beginning
        self._unsent_statuses = 0  # statuses since the socket last accepted a message
        self._has_heard = trio.Event()  # set by a beacon of the leader
        self._told_s = 0.0  # when the status was sent last
        self._has_no_status = False
        self._reported = 0
        self.is_whole = False  # the full copy has replaced the journal
        self._why = ""  # why this node ended the link

    # -- in a thread ---------------------------------------------------------------------------------------------------

    def join(self, welcome: f.Welcome, cut: f.Cut | None) -> None:
        """Prepare the journal for the leader's octets: begin or cut it. Raises: JournalError, OSError, LinkFault."""
        follower = self._follower
        if self._copy is not None and self.is_beside:
            self.copied = full_copy.begin(follower.path, follower.files, self._copy.size)
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
                raise LinkFault(f"the leader continues at {there}, this journal at {copied.position}")
        copied.add_needs(welcome.needs)
        copied.set_terms(copied.terms.with_starts_of(welcome.terms))
        if old := [base_lsn for base_lsn in segments_in(follower.files, copied.path) if base_lsn < welcome.oldest]:
            self._unlink(copied, old)
        self._fsynced = self._reported = copied.end

    def _unlink(self, copied: CopiedJournal, base_lsns: Sequence[int]) -> None:
        """Delete segments; none, if the file of a reader is damaged: the link is needed all the same.

        Raises: JournalError.
        """
        try:
            copied.unlink(base_lsns)
        except JournalError as error:
            if type(error) is not JournalError:
                raise
            logger.error("%s", error)

    def _copy_on(self) -> None:
        """Copy until the link ends, or a full copy is whole. Raises: as `run`."""
        data: bytes | None = self._first
        try:
            while not self.is_whole:
                octets = 0
                while data is not None and octets < SYNC_MAX:
                    octets += self._handle_data(data)
                    data = self._read()
                self._fsync()
                if data is None:
                    self._wait_for_octets()
                    data = self._read()
        except (LinkFault, f.FrameFault):
            self._fsync()  # this node may need the blocks that have come in order to lead
            raise

    def _wait_for_octets(self) -> None:
        """Raises: LinkFault."""
        silence_s = self._follower.options.silence_s
        if not self._readable.poll(silence_s * 1000):
            raise LinkFault(f"nothing was heard for {silence_s:g} s")

    def _read(self) -> bytes | None:
        """The octets that have come; None: none have. Raises: LinkFault, FrameFault."""
        try:
            data = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return None
        except OSError as error:
            raise LinkFault(self._why or "the connection was lost") from error
        if not data:
            self._decoder.end()
            raise LinkFault(self._why or "the other node closed the connection")
        return data

    def _handle_data(self, data: bytes) -> int:
        """Handle the messages in `data`. Returns the number of octets appended. Raises: as `run`."""
        copied = self.copied
        assert copied is not None
        self._decoder.receive(data)
        size = 0
        for message in self._decoder.messages():
            if self._why:
                raise LinkFault(self._why)
            if isinstance(message, f.Octets):
                copied.append(message.base_lsn, message.offset, message.octets)
                size += len(message.octets)
            elif isinstance(message, f.Unlink):
                copied.sync()  # the checkpoint that replaces the segments must be on this disk, too
                self._unlink(copied, message.base_lsns)
            elif isinstance(message, f.Needs):
                copied.add_needs(message.needs)
            elif isinstance(message, f.No):
                raise Declined(message.why, is_final=message.is_final)
            elif isinstance(message, f.Beacon) and message.term != self._term:
                raise f.FrameFault(f"a beacon of term {message.term}")
            else:
                self._soon(message)
        self.received += size
        return size

    def _fsync(self) -> None:
        """Fsync and acknowledge if more blocks are complete. A full copy that is whole replaces the journal.

        Raises: JournalError, OSError.
        """
        copied, copy = self.copied, self._copy
        if copied is None or copied.written_lsn == self._fsynced:
            return
        lsn = copied.sync()
        self._fsynced = lsn
        if not self.is_beside:
            self._acknowledge()
        elif copy is not None and lsn >= copy.until:
            follower = self._follower
            self._close_copy()
            if follower.copied is not None:
                follower.copied.close()
                follower.copied = None
            full_copy.swap(follower.path, follower.files)
            self.is_whole = True

    def close(self) -> None:
        """Close the connection, and drop a copy beside the journal that is not whole: the next link may need none."""
        self._socket.close()
        if self._relaying is not None:
            self._relaying.close()
        if self.is_beside:
            self._close_copy()
            full_copy.drop_unfinished(self._follower.path)

    def _close_copy(self) -> None:
        if self.copied is not None:
            self.copied.close()
            self.copied = None

    # -- any thread ----------------------------------------------------------------------------------------------------

    def _acknowledge(self) -> None:
        """Acknowledge what is fsynced, if that is allowed."""
        with self._sending:
            lsn = self._fsynced
            if self._may_acknowledge and lsn > self._acknowledged and not self.is_beside:
                is_sent = self._send(f.Ack(self._term, lsn))
                self._acknowledged = lsn if is_sent else self._acknowledged  # else it goes with the next one

    def _send(self, message: f.Message) -> bool:
        """Send a small message; the caller holds `_sending`. False: the socket accepts none now."""
        try:
            if self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            if self._unsent:
                return False
            octets = f.encode(message)
            self._unsent = octets[self._socket.send(octets) :]
        except BlockingIOError:
            return False
        except OSError:
            self.end("the connection was lost")
            return False
        self._unsent_statuses = 0
        return True

    def _complain(self, why: str) -> None:
        """Tell the leader that its octets are not a journal, so that it checks its files for damage."""
        with self._sending:
            self._send(f.No(why[:1000]))  # the leader refuses texts of more than 4096 characters

    def end(self, why: str) -> None:
        """End the link: the thread ends when it next reads from the socket."""
        self._why = self._why or why
        with suppress(OSError):  # the connection may be gone
            self._socket.shutdown(socket.SHUT_RDWR)

    def _soon(self, message: f.Message) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._handle, message)

    # -- the event loop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Copy until the link ends, or a full copy has replaced the journal. Raises: what `LeaderLink.run` catches."""
        fault: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                if self._relaying is not None:
                    nursery.start_soon(self._relaying)
                nursery.start_soon(self._keep_telling)
                nursery.start_soon(self._end_when_cancelled)
                try:
                    await trio.to_thread.run_sync(self._copy_on)
                except (LinkFault, f.FrameFault, JournalError, OSError, ValueError) as error:
                    fault = error
                if isinstance(fault, BadOctets):
                    self._complain(str(fault))
                nursery.cancel_scope.cancel()
        finally:
            self._tell_durable()
        if fault is not None:
            raise fault

    async def _end_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.end("this node no longer follows it")

    def acknowledge(self, is_on: bool) -> None:
        """Allow acknowledgements, and acknowledge at once what is fsynced; or forbid them."""
        with self._sending:
            self._may_acknowledge = is_on
        self._acknowledge()

    async def _keep_telling(self) -> None:
        """Send the status, acknowledge, and report what is fsynced: after a beacon of the leader, because the event
        loop is awake then, or when none comes for `WITHOUT_BEACON` periods. End the link if the status cannot be read.
        """
        follower = self._follower
        while True:
            self._has_heard = trio.Event()
            with trio.move_on_after(follower.options.beacon_s * WITHOUT_BEACON):
                await self._has_heard.wait()
            self._told_s = trio.current_time()
            try:
                status = follower.status()
                f.check_status(status)
            except OSError as error:  # raised, it would end the process; the link can be opened again
                self.end(f"the status of this node cannot be sent: {error}")
                return
            except f.FrameFault as fault:  # each later link would fail, too, and the copy is needed
                if not self._has_no_status:
                    logger.warning("the status of this node cannot be sent: %s", fault)
                self._has_no_status, status = True, {}
            self._tell_status(f.Status(follower.wall_ms(), status))
            self._acknowledge()
            self._tell_durable()

    def _tell_status(self, status: f.Status) -> None:
        """Send the status. End the link if the leader has read nothing for `silence_s`.

        Silence is counted in statuses: a time would include standstills of this process.
        """
        options = self._follower.options
        with self._sending:
            self._unsent_statuses += 1
            self._send(status)
            if self._unsent_statuses * options.beacon_s > options.silence_s:
                self.end("the leader reads no messages")

    def _tell_durable(self) -> None:
        """Report what is fsynced. Called at beacons: a report for each block would wake the event loop too often."""
        if self._fsynced > self._reported and not self.is_beside:
            self._reported = self._fsynced
            self._follower.report(Durable(self._reported))

    def _handle(self, message: f.Message) -> None:
        follower = self._follower
        if isinstance(message, f.Beacon):
            if trio.current_time() - self._told_s > follower.options.beacon_s / 2:
                self._has_heard.set()
            follower.leader_status = message.status
            difference_ms = message.wall_ms - follower.wall_ms()
            self._tell_durable()  # first: a node in sync has acknowledged everything that the beacon says is agreed
            follower.report(LeaderHeard(message.term, message.agreed, difference_ms * 1_000_000))
        elif isinstance(message, f.Order):
            self._carry_out(message.verb)

    def _carry_out(self, verb: str) -> None:
        """Carry out an operator's order that the leader has passed on."""
        event = ORDERS.get(verb)
        if verb == RELOAD:
            self._follower.reload()
        elif event is None:
            logger.warning("an order of the leader that this release does not know: %s", verb)
        else:
            self._follower.report(event)
