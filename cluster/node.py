"""A node: it tells its agreement what the coordinator, links and journal report, and carries out the decisions.

    node = Node(options, coordinator, listener, process)
    await node.run(link_listeners)                # until `stop`

Everything here runs in the event loop; the journal, requests to the coordinator and a broker's start run in threads.
Source: docs/cluster.md, the states of a node.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from socket import socket
from typing import Any

import trio

from ..engine import EventKind, Unreadable
from ..journal import Damaged, JournalError, WriterState
from ..journal.copying.copied_journal import has_disk_failed
from ..journal.format.needs import level_of
from .agreement import decisions as do
from .agreement import events as e
from .agreement.agreement import Agreement
from .agreement.context import ETCD_ROLLED_BACK
from .agreement.states import BROKER_RUNS, State
from .agreement.transactions import forget
from .agreement.view import NodeIdentity, NodeKey, View
from .coordinator import errors
from .coordinator.coordinator import Coordinator, Lease
from .copying import full_copy
from .copying.joining import JournalSummary
from .following import Following
from .history import History
from .leading import Leading
from .link.follower_segments import forget_readers, readers_of
from .link.listener import LinkListener
from .node_directory import NodeDirectory
from .node_process import LeadingBroker, NodeProcess
from .options import NodeOptions
from .reachability import Reachability
from .registration import Registration
from .requests import Requests

logger = logging.getLogger("leveret.cluster")

#: Seconds for which a node that stops waits for its handover, for its broker, and for the end of each of its leases.
LEAVE_S = 10.0
LEASE_END_S = 1.0
#: A node whose event loop stood still for longer than this many seconds no longer renews its leases.
STANDSTILL_S = 10.0
#: Seconds between two checks for that, while this node leads and while it does not.
BEAT_S, IDLE_BEAT_S = 0.5, 2.0
#: Later than any deadline.
FOREVER_NS = 2**63


@dataclass(slots=True)
class HandoverAttempt:
    """The last handover that an operator asked for. `to`: the successor. `refusal`: why it failed; "": it did not."""

    to: str | None = None
    refusal: str = ""


class Node:
    """The node of this process. `now_ns`: the monotonic clock, the same as the coordinator's.

    why: the reason for its state, in words. since_ms: when that state began (wall ms). held_ms: for how long earlier
    states have blocked publishers. takeovers: the number of times that this node has led.
    """

    def __init__(
        self,
        options: NodeOptions,
        coordinator: Coordinator,
        listener: LinkListener,
        process: NodeProcess,
        *,
        status: Callable[[], Mapping[str, object]] = dict,
        reload: Callable[[], object] = lambda: None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.options = options
        self.fingerprint = options.fingerprint  # of its configuration; registered when it changes
        self.view: View | None = None
        self.leading: Leading | None = None
        self.agreed_lsn = 0  # in the leader's last beacon, or of this leader
        self.why = "the node has just started"
        self.since_ms = wall_ms()
        self.history = History(self.since_ms)
        self.held_ms = self.takeovers = 0
        self.stopping = trio.Event()
        self.handover: HandoverAttempt | None = None  # of this leadership
        self.coordinator = coordinator
        self._listener = listener
        self._process = process
        self._status = status
        self._now_ns = now_ns
        self._wall_ms = wall_ms
        self._requests = Requests(coordinator, self._coordinator_reported, self._may_renew, now_ns)
        self._registration = Registration(coordinator, self.key)
        self.reachability = Reachability(options, self._registration.wake, self._refused, self._is_linked)
        self._events: deque[e.Event] = deque()
        self._is_handling = False
        self._moved = trio.Event()  # the agreement's next deadline is now earlier than `_sleeps_until_ns`
        self._sleeps_until_ns = FOREVER_NS
        self.directory = NodeDirectory(options.path, options.files)
        self.following = Following(
            options,
            self.directory,
            self._link_reported,
            self._begin_anew,
            status=status,
            reload=reload,
            site=process.site,
            wall_ms=wall_ms,
        )
        self._state = State.STARTING
        self._late_ns = options.timers.suspend_after_ns // 2
        self._beat_ns = now_ns()  # when the event loop last ran
        self._reopened: trio.Event | None = None
        self.is_open = False  # the directory was opened; before that this node has no status
        self._nursery: trio.Nursery
        self.agreement: Agreement

    # -- life -------------------------------------------------------------------------------------------------------

    async def run(
        self, link_listeners: list[socket], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run until `stop`. Raises: DirectoryRefused; whatever ends a broker."""
        self._agree_anew(await trio.to_thread.run_sync(self.directory.open))
        self.is_open = True
        self._process.hold_clients()
        async with trio.open_nursery() as self._nursery:
            start_soon = self._nursery.start_soon
            await self._nursery.start(self._requests.run)  # first: what the listener reports may ask for the keys
            await self._nursery.start(self._listener.serve, link_listeners)
            for task in (
                self._tick,
                self._registration.run,
                self.following.run,
                self.reachability.run,
                self._beat,
                partial(trio.to_thread.run_sync, self._process.preload),
            ):
                start_soon(task)
            task_status.started()
            self.handle(e.Tick())
            await self.stopping.wait()
            await self._leave()
            self._nursery.cancel_scope.cancel()
        await self.directory.close()

    def stop(self) -> None:
        """Hand over the lead and end. `run` returns when that is done."""
        self.stopping.set()

    async def _leave(self) -> None:
        """Hand over the lead, if this node has it, and end its leases."""
        with trio.move_on_after(LEAVE_S):
            if self.leading is not None and self.agreement.state in BROKER_RUNS:
                self._reopened = trio.Event()
                self.handle(e.HandOver(is_leaving=True))
                await self._reopened.wait()
        with trio.move_on_after(LEAVE_S) as resigning:
            if self.leading is not None:
                await self.leading.resign("this node stops")
                self.leading = None
        if resigning.cancelled_caught:
            logger.critical("the disk hangs: this node ends before its broker has ended")
        with trio.move_on_after(LEASE_END_S), suppress(errors.CoordinatorError):
            await self.coordinator.end_lease(Lease.LEADER)
        with trio.move_on_after(LEASE_END_S):
            await self._registration.end()

    def _agree_anew(self, summary: JournalSummary, *, is_drained: bool = False) -> None:
        """Make an agreement for this directory: at the start, and when the directory has a new node id."""
        options = self.options
        identity = NodeIdentity(
            options.name,
            summary.terms.node_id,
            str(options.address),
            options.level,
            options.min_in_sync,
            frozenset(options.nodes),
            os.urandom(16),
            "" if self.directory.copied is None else self.directory.copied.unknown,
        )
        self.agreement = Agreement(
            identity,
            options.timers,
            summary.terms,
            summary.end,
            summary.journal_id,
            self._now_ns(),
            is_drained=is_drained,
        )
        self.following.begin(summary)

    # -- the agreement ----------------------------------------------------------------------------------------------

    def handle(self, event: e.Event) -> None:
        """Pass an event to the agreement, and carry out what it decides."""
        leading = self.leading
        if leading is not None and (synced := leading.take_synced()) is not None:
            self._events.append(synced)
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                for decision in self.agreement.handle(self._events.popleft(), self._now_ns()):
                    _PERFORM[type(decision)](self, decision)
        finally:
            self._is_handling = False
        if self.agreement.state is not self._state:
            self._state_changed()
        if self.leading is not None:
            self.leading.is_calm, self.leading.catching_up = self.agreement.is_calm, self.agreement.catching_up
        due_ns = self.agreement.next_ns()
        if due_ns is not None and due_ns < self._sleeps_until_ns:
            self._moved.set()

    def _state_changed(self) -> None:
        before, self._state = self._state, self.agreement.state
        now_ms = self._wall_ms()
        if before is State.HELD:
            self.held_ms += now_ms - self.since_ms
        self.takeovers += before is State.TAKING_OVER and self._state in BROKER_RUNS
        if self._state is State.IN_SYNC:
            self._nursery.start_soon(trio.to_thread.run_sync, full_copy.drop_old, self.options.path)
        self.since_ms = now_ms
        why = f": {self.why}" if self._state in _EVENT_KINDS else ""
        logger.info("%s: %s (was %s)%s", self.options.name, self._state.name, before.name, why)
        if self.leading is not None and self._state in BROKER_RUNS and {before, self._state} & _EVENT_KINDS.keys():
            change = _EVENT_KINDS.get(self._state, EventKind.LED).value  # LED: publishers are no longer blocked
            self.history.add(now_ms, change, self.options.name, self.leading.term, self.why)
        if self.leading is not None and (kind := _EVENT_KINDS.get(self._state)) is not None:
            self.leading.note(kind, self.why)
        self._registration.wake()

    async def _tick(self) -> None:
        while True:
            self._moved = trio.Event()
            due_ns = self.agreement.next_ns()
            self._sleeps_until_ns = FOREVER_NS if due_ns is None else due_ns
            left_s = float("inf") if due_ns is None else max(0.0, (due_ns - self._now_ns()) / 1e9)
            with trio.move_on_after(left_s):
                await self._moved.wait()
            due_ns = self.agreement.next_ns()
            if due_ns is not None and due_ns <= self._now_ns():
                self.handle(e.Tick())
                await trio.lowlevel.checkpoint()

    def _link_reported(self, event: e.Event) -> None:
        if isinstance(event, e.Acknowledged):  # the frequent one
            self.handle(event)
            return
        if isinstance(event, e.LeaderHeard):
            self.agreed_lsn = event.agreed
        if isinstance(event, e.Joined | e.LinkOpened):
            self.reachability.note_link()
        if isinstance(event, e.LinkOpened) and self.leading is not None:
            self.leading.note(EventKind.FOLLOWED, "its link is open", self._name_of(event.node_id))
        if isinstance(event, e.JournalDamaged):
            self.directory.damage = event.damage
        if isinstance(event, e.LinkClosed) and (name := self._name_of(event.node_id)) is not None:
            self._nursery.start_soon(self.reachability.probe_eagerly, name)
        self.handle(event)
        if isinstance(event, e.JournalDamaged) and self.agreement.state is not State.RESIGNING:
            self.directory.damage = None  # it keeps the lead

    def _name_of(self, node_id: bytes) -> str | None:
        node = None if self.view is None else self.view.node_with_id(node_id)
        return None if node is None else node.name

    def _is_linked(self, name: str) -> bool:
        """Whether this node, as leader or follower, has an open link with the node of this name."""
        node = None if self.view is None else self.view.node_named(name)
        links = None if self.leading is None else self.leading.links
        if name == self.following.followed:
            return True
        return node is not None and links is not None and links.is_linked(node.node_id)

    def _refused(self, name: str) -> None:
        """Tell the agreement that no process listens for links at a node."""
        node = None if self.view is None else self.view.node_named(name)
        if self.leading is not None and node is not None:
            self.handle(e.FollowerRefused(node.node_id))

    # -- the coordinator --------------------------------------------------------------------------------------------

    def _coordinator_reported(self, event: e.Event) -> None:
        if isinstance(event, e.Read):
            self._tell_durable()
        if isinstance(event, e.Read | e.Answered) and (view := event.view) is not None:
            self._see_newer(view, event.asked_ns)
        self.handle(event)

    def _tell_durable(self) -> None:
        """Tell the agreement what is fsynced now. The link reports that only at beacons."""
        if self.directory.copied is not None:
            self.handle(e.Durable(self.directory.copied.end))

    def _see_newer(self, view: View, asked_ns: int | None) -> None:
        """See a view unless it is older than the last: answers and the watch may overtake each other."""
        if not self.agreement.context.is_older(view, asked_ns):
            self._see(view)

    def _see(self, view: View) -> None:
        before, self.view = self.view, view
        self.history.take_view(view, self._wall_ms())
        if not self.stopping.is_set():
            self._registration.take_view(view)
        known = None if before is None or before.insync is None else before.insync.nodes
        if self.leading is not None and view.insync is not None and view.insync.nodes != known:
            names = sorted(one.name for one in view.nodes if one.node_id in view.insync.nodes)
            self.leading.note(EventKind.IN_SYNC_CHANGED, f"in sync: {', '.join(names)}")

    def _may_renew(self, lease: Lease) -> bool:
        """Whether the event loop runs and, for the leader's lease, the disk does not hang. Called in another thread."""
        if self._now_ns() - self._beat_ns > STANDSTILL_S * 1e9:
            return False
        leading = self.leading
        return lease is not Lease.LEADER or leading is None or not leading.is_stalled

    def check_standstill(self) -> None:
        """After a standstill, check whether this node still leads. Called before each turn of the broker: 0.2 us."""
        now_ns, before_ns = self._now_ns(), self._beat_ns
        self._beat_ns = now_ns
        if now_ns - before_ns > self._late_ns:
            self.handle(e.Tick())

    async def _beat(self) -> None:
        while True:
            if self.leading is not None:
                self.check_standstill()
            self._beat_ns = self._now_ns()
            await trio.sleep(IDLE_BEAT_S if self.leading is None else BEAT_S)

    @property
    def etcd_trouble(self) -> str:
        """Why no other node could be elected now, as far as etcd is concerned; "": one could."""
        return self.coordinator.trouble or (ETCD_ROLLED_BACK if self.agreement.context.is_etcd_rolled_back else "")

    # -- this node's key --------------------------------------------------------------------------------------------

    def key(self) -> NodeKey:
        """The value of this node's key in etcd."""
        options, leading = self.options, self.leading
        journal = None if leading is None else leading.journal
        if journal is not None and leading is not None and leading.links is not None:
            journal_id: bytes | None = leading.links.journal.journal_id
            term, end = leading.term, journal.durable_lsn
        else:
            summary = self.directory.current()
            journal_id, term, end = summary.journal_id, summary.terms.last_term, summary.end
        return NodeKey(
            options.name,
            self.node_id,
            str(options.address),
            journal_id,
            term,
            end,
            options.level,
            options.version,
            self.fingerprint,
            self.agreement.state is State.DRAINED,
            self.reachability.reached,
            options.addresses,
        )

    def set_fingerprint(self, fingerprint: str) -> None:
        """Register the fingerprint of the configuration after it was read again."""
        self.fingerprint = fingerprint
        self._registration.wake()

    @property
    def node_id(self) -> bytes:
        """The id of this node's directory."""
        return self.directory.node_id

    # -- operators --------------------------------------------------------------------------------------------------

    def hand_over(self, to: NodeKey | None, *, drains: bool = False) -> str:
        """Begin to hand over the lead, to a node or to any. `drains`: drain this node afterwards.

        Returns why that is refused; "": it has begun, and `self.handover` will tell if it fails.
        """
        attempt = HandoverAttempt(None if to is None else to.name)
        before, self.handover = self.handover, attempt
        self.handle(e.Drain() if drains else e.HandOver(None if to is None else to.node_id))
        leadership = self.agreement.leadership
        if leadership is not None and leadership.handover is not None and not attempt.refusal:
            chosen = leadership.handover.to
            attempt.to = attempt.to if chosen is None else self._name_of(chosen)
        elif before is not None and not before.refusal:
            self.handover = before  # that one is still under way
        return attempt.refusal

    def _handover_refused(self, decision: do.HandoverRefused) -> None:
        logger.info("no handover: %s", decision.why)
        if self.handover is not None:
            self.handover.refusal = decision.why

    def raise_level(self, level: int) -> None:
        """Raise the level of the journal, in etcd first. For the node that leads."""
        self.handle(e.RaiseLevel(level))

    def forget(self, name: str) -> None:
        """Delete the key of a node whose process is gone, and stop keeping segments for it. For the node that leads."""
        self._nursery.start_soon(self._forget, name)

    async def _forget(self, name: str) -> None:
        path, files = self.options.path, self.options.files
        try:
            # Read before the key is deleted: if the node comes back, its new link has another reader, which stays.
            readers = await trio.to_thread.run_sync(readers_of, path, files, name)
            view = self.view
            if view is not None and view.leader is not None and view.node_named(name) is not None:
                await self._requests.send(forget(view.leader, name))
            await trio.to_thread.run_sync(forget_readers, path, readers, files)
        except (OSError, JournalError) as error:
            logger.warning("node %s is forgotten, but segments may stay for it: %s", name, error)

    # -- following --------------------------------------------------------------------------------------------------

    def _follow_leader(self, decision: do.Follow) -> None:
        self.following.follow(decision.leader)
        if decision.leader is not None:
            self._process.pass_clients_on(decision.leader)
        elif self.leading is None:
            self._process.hold_clients()

    def _acknowledge(self, decision: do.Acknowledge) -> None:
        self.following.acknowledge(decision.is_on)
        if not decision.is_on:
            self._tell_durable()  # before this node can win, its agreement must know everything that it acknowledged

    def _rejoin_as_new(self, decision: do.RejoinAsNew) -> None:
        self.directory.is_rolled_back = True
        self._nursery.start_soon(self.following.rejoin_as_new)

    async def _begin_anew(self, summary: JournalSummary) -> None:
        """Start a new agreement for a directory that has a new node id. Give up what the id before has just won."""
        self.agreement.follower.rejoins_as_new = True  # it begins no campaign while its key is deleted
        await self._registration.end()
        if (leading := self.leading) is not None:
            self.leading = None
            self._requests.end_lead()
            self._nursery.start_soon(leading.resign, "the directory of this node has a new node id")
        self._agree_anew(summary, is_drained=self.agreement.context.is_drained)
        self.handle(e.Tick())
        if self.view is not None:
            self.handle(e.Read(self.view))
        self._requests.read_keys()

    # -- leading ----------------------------------------------------------------------------------------------------

    def _take_over(self, decision: do.TakeOver) -> None:
        self._process.hold_clients()
        self.leading = Leading(
            self.options,
            decision.term,
            decision.level,
            self._process,
            self._listener,
            self._link_reported,
            self._status,
            self._wall_ms,
            self._now_ns,
        )
        for task in (self.leading.watch_disk, self.leading.probe_disk):
            self._nursery.start_soon(task)
        self._nursery.start_soon(self._open_broker, self.leading, decision)
        for name in self.options.others:  # a member whose process is gone leaves the set without `join_patience`
            self._nursery.start_soon(self.reachability.probe_eagerly, name)

    async def _open_broker(self, leading: Leading, decision: do.TakeOver) -> None:
        await self.following.stop()
        if leading is not self.leading:  # the directory was opened again meanwhile, and has a new node id
            leading.open_nothing()
            return
        copied = self.directory.take_copy(decision.journal_id)
        if copied is None:  # the directory was opened again during the campaign, and is damaged
            leading.open_nothing()
            self.handle(e.TakeoverFailed("its journal is damaged"))
            return
        self.following.link = None
        try:
            await leading.open(copied, decision.journal_id, min(self.agreed_lsn, copied.end))
        except Exception as error:
            logger.exception("this node cannot take over")
            self.directory.is_suspect = has_disk_failed(error) or has_disk_failed(error.__cause__)
            self.directory.damage = next((one for one in (error, error.__cause__) if isinstance(one, Damaged)), None)
            self.handle(e.TakeoverFailed(str(error)))
            return
        if leading.has_closed:
            return  # this node resigned meanwhile, which closed it
        assert leading.terms is not None and leading.journal is not None
        self.handle(e.TookOver(leading.terms, level_of(leading.journal.needs)))

    @property
    def _broker(self) -> LeadingBroker | None:
        """The broker of this node, while it leads."""
        return None if self.leading is None else self.leading.broker

    def _agree(self, decision: do.Agree) -> None:
        self.agreed_lsn = decision.lsn
        if self.leading is not None:
            # When calm, only an acknowledgement or an fsync causes this: no turn is under way, so answers may be sent.
            self.leading.agree(decision.lsn, at_once=self.agreement.is_calm)

    def _level_raised(self, decision: do.LevelRaised) -> None:
        logger.info("the journal is of level %d", decision.level)
        if self.leading is not None:
            self.leading.raise_level(decision.level)

    def _hold(self, decision: do.Hold) -> None:
        self.why = decision.reason
        if (broker := self._broker) is not None:
            broker.hold(decision.reason)
            self._serve()

    def _resume(self, decision: do.Resume) -> None:
        if self.agreement.leadership is not None:
            self.why = self.agreement.leadership.why
        if (broker := self._broker) is not None:
            broker.resume()
            self._serve()

    def _serve(self) -> None:
        """Start serving clients, unless that has begun."""
        leading = self.leading
        if leading is not None and not leading.is_served:
            leading.is_served = True
            self._nursery.start_soon(self._serve_broker, leading)
            self._nursery.start_soon(self._tell_led, leading)

    async def _serve_broker(self, leading: Leading) -> None:
        """Serve clients until this node resigns. It does so if the broker cannot read a message from its journal."""
        try:
            await leading.serve()
        except* Unreadable as group:
            self.directory.damage = damage = leaf_of(group)
            logger.critical("%s; this node no longer leads", damage)
            self.handle(e.DiskFailed())

    async def _tell_led(self, leading: Leading) -> None:
        logger.info("%s leads, in term %d", self.options.name, leading.term)
        leading.note(EventKind.LED, self.why)

    def _suspend(self, decision: do.Suspend) -> None:
        self.why = "a node in sync is silent, and etcd does not say that this node leads: another one may lead"
        if (broker := self._broker) is not None:
            broker.suspend()

    def _quiesce(self, decision: do.Quiesce) -> None:
        if (broker := self._broker) is not None:
            self._nursery.start_soon(self._quiesce_broker, broker, decision.attempt)

    async def _quiesce_broker(self, broker: LeadingBroker, attempt: int) -> None:
        end = await broker.quiesce()
        if broker is self._broker:
            self.handle(e.Quiesced(attempt, end))

    def _resign(self, decision: do.Resign) -> None:
        self.why, self.handover = decision.why, None
        logger.warning("%s no longer leads: %s", self.options.name, decision.why)
        self._process.hold_clients()
        self._nursery.start_soon(self._close_broker, self.leading, decision.why)

    async def _close_broker(self, leading: Leading | None, why: str) -> None:
        if leading is not None:
            await leading.resign(why)
            if (journal := leading.journal) is not None:
                self.directory.is_suspect = journal.state is WriterState.FAILED
        self.leading = None
        if self._reopened is not None:  # this node stops
            self._reopened.set()
            return
        summary = await self.directory.open_until_done()
        if await self.following.follow_again(summary):
            self.handle(e.DiskRecovered())  # a disk that hung works again: opening the directory has fsynced
            self.handle(e.Reopened(summary.terms, summary.end))

    def _refuse(self, decision: do.Refuse) -> None:
        self.why = decision.why
        logger.critical("this node cannot be one of the cluster: %s", decision.why)
        self._process.refuse_clients()

    def _note(self, decision: do.Note) -> None:
        logger.log(logging.ERROR if decision.is_grave else logging.INFO, "%s", decision.text)


def leaf_of(group: BaseExceptionGroup[Unreadable]) -> Unreadable:
    """The first error in a group."""
    first = group.exceptions[0]
    return leaf_of(first) if isinstance(first, BaseExceptionGroup) else first


_PERFORM: dict[type[Any], Callable[[Node, Any], Awaitable[None] | None]] = {
    do.Register: lambda node, decision: node._registration.begin(),
    do.ReadKeys: lambda node, decision: node._requests.read_keys(),
    do.Transact: lambda node, decision: node._requests.transact(decision.transaction),
    do.EndLease: lambda node, decision: node._requests.end_lead(),
    do.Follow: Node._follow_leader,
    do.Acknowledge: Node._acknowledge,
    do.RejoinAsNew: Node._rejoin_as_new,
    do.TakeOver: Node._take_over,
    do.Agree: Node._agree,
    do.LevelRaised: Node._level_raised,
    do.Hold: Node._hold,
    do.Resume: Node._resume,
    do.Suspend: Node._suspend,
    do.Quiesce: Node._quiesce,
    do.Resign: Node._resign,
    do.Refuse: Node._refuse,
    do.HandoverRefused: Node._handover_refused,
    do.Note: Node._note,
}
_EVENT_KINDS = {State.HELD: EventKind.HELD, State.SUSPENDED: EventKind.SUSPENDED}
