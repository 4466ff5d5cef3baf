"""A world: one broker after the other on one disk, clients, and what goes wrong, all of it from one seed."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from time import perf_counter, process_time
from unittest.mock import patch

import trio

from leveret.amqp_frontend.wire import publish_cache
from leveret.engine import EventKind, Unreadable
from leveret.settings import load_configuration

from .answers import Answers
from .books import Books
from .calm import calm_left_ns
from .clients import make_client
from .clients.client import Client, Mood, is_silenced
from .clients.knowledge import Knowledge
from .coverage import counting
from .disk import Disk
from .faults import FAULTS
from .faults.messages import MESSAGE_FAULTS
from .faults.operators import OPERATOR_FAULTS
from .fingerprint import Fingerprint
from .host import Host
from .ledger import Broken, Ledger
from .lives import Lives
from .loop import SECOND, SimulatedClock, now_ns, pass_time, run
from .loop import schedule as current_schedule
from .network import Network
from .objects import Objects
from .parts import COUNTS_DELIVERIES
from .past import Past
from .plan import FaultPlan, Plan
from .planted import planted
from .reader import Reader
from .rest import Rest
from .schedule import Schedule
from .swarm import limited


@dataclass
class Report:
    """How a world went."""

    seed: int
    hash: str = ""
    operations: int = 0  # methods that clients sent
    deliveries: int = 0
    confirms: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    real_s: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)  # kind, see `coverage` -> times
    fault: str | None = None


def retained_ns(configuration: str) -> int:
    """How long the journal keeps segments that nobody needs."""
    found = re.search(r'(?m)^retain = "(\d+)(m?s)"$', configuration)
    return int(found[1]) * (SECOND if found[2] == "s" else SECOND // 1000) if found else 0


class _Errors(logging.Handler):
    """An internal error that the broker logged and survived is a fault as well."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._world.note(f"log {text}")
        if "missed heartbeats" in text:
            self._world.knowledge.happened["log: missed heartbeats"] += 1
            if not is_silenced(self._world.plan):
                self._world.fail(Broken(f"nothing silences connections, and the broker says: {text}"))
        if record.exc_info is not None and record.exc_info[1] is not None:
            if self._world.host is not None and not self._world.host.is_alive:
                return  # the process is gone, in the middle of something
            if isinstance(record.exc_info[1], Unreadable) and self._world.disk.is_troubled:
                return  # of the connection for which it was to be read; the broker stops
            self._world.fail(Broken(f"{record.getMessage()}: {record.exc_info[1]!r}"), record.exc_info[1])


class World:
    """See the module."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.fingerprint = Fingerprint()
        self.schedule: Schedule
        self.network: Network
        self.knowledge: Knowledge
        self.ledger: Ledger
        self._fault: BaseException | None = None
        self.report = Report(plan.seed)

    def chance(self, name: str) -> Random:
        """Chance for one purpose: what one part draws changes nothing for the others."""
        return Random(f"{self.plan.seed} {name}")

    def note(self, text: str) -> None:
        """Something that two runs of one seed have in common."""
        self.fingerprint.note(text, now_ns())

    def fail(self, error: BaseException, cause: BaseException | None = None) -> None:
        """A rule was broken: the world ends."""
        if self._fault is None:
            error.__cause__ = cause
            self._fault = error
            self._over.set()

    def run(self) -> Report:
        """To its end."""
        handler = _Errors(self)
        logger = logging.getLogger("leveret")
        logger.addHandler(handler)
        logger.propagate = False
        cpu, real = process_time(), perf_counter()
        try:
            with (
                counting(self.report.happened),
                planted(self.plan.planted, self.plan.seed),
                limited(self.plan.limits),
                patch.object(publish_cache, "_INTERNED", {}),  # an earlier world's would be full at another time
            ):
                run(self._main, self.plan.seed)
        finally:
            logger.removeHandler(handler)
        report = self.report
        report.cpu_s, report.real_s = process_time() - cpu, perf_counter() - real
        report.hash = self.fingerprint.hexdigest()
        if self._fault is not None:
            report.fault = f"{type(self._fault).__name__}: {self._fault}"
        return report

    @property
    def fault(self) -> BaseException | None:
        """What went wrong."""
        return self._fault

    async def _main(self) -> None:
        self._over = trio.Event()
        self.schedule = schedule = current_schedule()
        schedule.failed = lambda error: self.fail(error, error.__cause__)
        self.network = Network(schedule, self.chance("network"), self.fingerprint.received)
        self.ledger = Ledger()
        self.ledger.features = {queue.name: queue.features for queue in self.plan.queues}
        self.ledger.counts_deliveries = COUNTS_DELIVERIES in self.plan.configuration
        self.knowledge = Knowledge(self.ledger)
        self.clock = SimulatedClock()
        self.disk = Disk(self.chance("disk"))
        if not any(fault.kind == "clock jump" for fault in self.plan.faults):  # by the wall clock
            self.disk.retain_ns = retained_ns(self.plan.configuration)
        self.objects = Objects()
        self.answers = Answers(self.ledger, self.objects, self.disk, self.knowledge.happened)
        self.past = Past.load(self.plan.past) if self.plan.past else None
        if self.past is not None:
            self.past.restore(self.disk.files, self.ledger, self.knowledge)
        self.configure("")
        self.host: Host | None = None
        self.lives = Lives(self)
        self.books = Books(self.plan, self.clock, self.knowledge.happened)
        self.clients: list[Client] = [make_client(self, one) for one in self.plan.clients]
        self.rest = Rest(self)
        if self.plan.read_every:
            Reader(self, self.plan.read_every, self.chance("reader"))
        self._postponed: list[FaultPlan] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._guarded, self.lives.run)
            nursery.start_soon(self._guarded, self._story)
            await self._over.wait()
            nursery.cancel_scope.cancel()
        report = self.report
        report.operations, report.deliveries = self.knowledge.operations, self.knowledge.deliveries
        report.confirms = self.knowledge.happened["confirm"]
        report.virtual_s = trio.current_time()
        report.happened.update(self.knowledge.happened)
        report.happened.update({f"event: {EventKind[name].value}": count for name, count in self.ledger.kinds.items()})
        report.happened.update(f"client: {client.kind}" for client in self.plan.clients)
        self.note("the end")

    def configure(self, more: str, change: Callable[[str], str] = lambda text: text) -> None:
        """The configuration's file is another one: what it was at first, with a change, and this."""
        text = f"{change(self.plan.configuration)}\n{more}"
        self.configuration, faults = load_configuration([("world.toml", text)])
        assert not faults, faults

    async def _guarded(self, task) -> None:  # type: ignore[no-untyped-def]
        try:
            await task()
        except BaseExceptionGroup as group:
            ours, others = group.split(Exception)
            while isinstance(ours, BaseExceptionGroup):
                ours = ours.exceptions[0]
            if ours is not None:
                self.fail(ours, ours.__cause__)
            if others is not None:
                raise others from None
        except Exception as error:
            self.fail(error, error.__cause__)

    async def _story(self) -> None:
        """Clients act and faults strike, then everything comes to rest and is looked at."""
        while self.plan.punctual and self.network.accept is None:
            await pass_time(0.001)
        for client in self.clients:
            self._wake(client)
            if self.plan.punctual and client.comes_and_goes:  # its user and virtual host come first
                self.schedule.after(SECOND // 50, client.connect)
            else:
                client.connect()
        for fault in self.plan.faults:
            self.schedule.at(int(fault.at_s * SECOND), partial(self._strike, fault))
        for at_s in self.plan.pauses:
            if at_s > trio.current_time():
                await trio.sleep_until(at_s)
                await self.rest.come(Mood.PAUSING)
                self.knowledge.happened["pause of everything"] += 1
                self.rest.end()
                postponed, self._postponed = self._postponed, []
                for fault in postponed:
                    self._strike(fault)
        await trio.sleep_until(max(self.plan.seconds, trio.current_time()))
        await self.rest.come(Mood.ENDING)
        self.lives.goes_on = False
        assert self.host is not None
        self.host.stop()
        await pass_time(10)
        self._over.set()

    def _strike(self, fault: FaultPlan) -> None:
        if self.rest.is_on:
            self._postponed.append(fault)
            return
        if self.schedule.stands_still and fault.kind in (OPERATOR_FAULTS | MESSAGE_FAULTS):
            self.schedule.in_the_process(partial(self._strike, fault))
            return
        self.note(fault.kind)
        self.knowledge.happened[f"fault: {fault.kind}"] += 1
        FAULTS[fault.kind](self, Random(fault.seed))

    def _wake(self, client: Client) -> None:
        if left_ns := calm_left_ns(self.plan, now_ns()):
            self.schedule.after(left_ns, lambda: self._wake(client))
            return
        client.act()
        self.schedule.after(int(client.chance.expovariate(self.plan.pace) * SECOND), lambda: self._wake(client))
