"""Recovery points: leased queues are built from the log, over starts of a whole broker. Queues page C.5, G.C.

Each start is after a power cut. What plays queues.ack is the argument `leveret recovery` of a queue's record.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from desk import load
from simulated_files import SimulatedFiles

from leveret.configured.typed_arguments import fields_of
from leveret.engine import (
    NATIVE,
    Envelope,
    Field,
    ManualClock,
    User,
    encode_header,
    publish_by_name,
    scan_properties,
)
from leveret.engine.leases import discarding, rebuilding
from leveret.engine.leases.state import leases_of
from leveret.engine.stores import topic_log as memory_log
from leveret.journal import JournalReader
from leveret.journal.format.record import PUBLISHED
from leveret.journal.recording import checkpoint as stating
from leveret.journal.recording import message_index as indexes
from leveret.journal.recording import topic_log
from leveret.serving.composition import Data, DataUnusable, build_broker

LOG = '[[logged-topic]]\nname = "t"\n[[logged-topic]]\nname = "q"\n[[logged-topic]]\nname = "dead"\n'
QUEUE = '[[queue]]\nname = "q"\ntype = "amps"\nunderlying-topic = "t"\n'
DLX = '[[queue]]\nname = "dead"\n'


class World:
    """A broker on simulated files, as `leveret serve` builds it; None: in memory."""

    def __init__(
        self,
        settings: str,
        files: SimulatedFiles | None,
        *,
        wall_ms: int | None = None,
        is_worked: bool = True,
        **options: Any,
    ) -> None:
        self.files = files
        self.clock = ManualClock()
        if wall_ms is not None:
            self.clock.jump_wall_ms(wall_ms - self.clock.wall_ms())
        data = None if files is None else Data("data", holds_reserve=False, files=files)
        self.built = build_broker(load(settings), self.clock, lambda: 0.5, data, **options)
        self.broker = self.built.broker
        if is_worked:
            self.work()

    def work(self) -> None:
        """Until there is nothing to do."""
        while self.broker.end_turn() or self.broker.scheduler.load():
            if self.built.supervisor is not None:
                self.built.supervisor.journal.commit()
        if self.built.supervisor is not None:
            journal = self.built.supervisor.journal
            journal.commit()
            assert journal.wait(journal.next_lsn)
            self.broker.release_awaiting()

    def advance_ms(self, ms: int) -> None:
        """Time goes by."""
        self.clock.advance_ns(ms * 1_000_000)
        self.broker.advance()
        self.work()

    def publish(self, *bodies: str, key: str = "t", **properties: Any) -> None:
        """One after the other, to the default exchange."""
        for body in bodies:
            header = encode_header(len(body), properties)
            envelope = Envelope("", key, scan_properties(header[12:]))
            publish_by_name(self.broker.virtual_hosts["/"].context, envelope, [NATIVE.join(header, body.encode())])
        self.work()

    def queue(self, name: str = "q") -> Any:
        """The engine's own."""
        return self.broker.virtual_hosts["/"].queues[name]

    def bodies(self, name: str = "q") -> str:
        """What is ready, in its order."""
        return "".join(message.body.decode() for message in self.queue(name).store)

    def ids(self) -> dict[str, int]:
        """Ids of what is ready, by body."""
        return {message.body.decode(): message.id for message in self.queue().store}

    def ack(self, *bodies: str) -> None:
        """Whoever has them."""
        ids = self.ids()
        marks = ",".join(f"1|{ids[body]}|" for body in bodies)
        for _ in discarding(self.queue(), marks, None, ""):
            pass
        self.work()

    def stamp(self, ms: int = 0) -> str:
        """The time now, or so much later, as AMPS writes it."""
        at = datetime.fromtimestamp((self.clock.wall_ms() + ms) / 1000, UTC)
        return at.strftime("%Y%m%dT%H%M%SZ")

    def restarted(self, settings: str, *, after_ms: int = 0, is_clean: bool = False, **options: Any) -> World:
        """A broker on what was safe, so much later. `is_clean`: after SIGTERM."""
        assert self.files is not None
        if is_clean:
            assert self.built.supervisor is not None
            self.built.supervisor.close()
        return World(settings, self.files.power_cut(), wall_ms=self.clock.wall_ms() + after_ms, **options)


@pytest.fixture(params=["journal", "memory"])
def files(request: pytest.FixtureRequest) -> SimulatedFiles | None:
    return SimulatedFiles() if request.param == "journal" else None


def declare(world: World, name: str = "q", **arguments: str) -> None:
    """A leased queue of topic t, declared while the broker runs."""
    lines = "".join(f'{key.replace("_", "-")} = "{value}"\n' for key, value in arguments.items())
    world.built.objects.apply(load(LOG + QUEUE.replace('"q"', f'"{name}"') + lines))
    world.work()


def test_from_the_beginning(files: SimulatedFiles | None) -> None:
    """Queues page, row C06: what was there before the queue is in it, with its old ids; bodies are once on disk."""
    world = World(LOG, files)
    world.publish(*"abcde")
    declare(world)
    assert world.bodies() == "abcde" and list(world.ids().values()) == sorted(world.ids().values())
    world.publish("f")
    assert world.bodies() == "abcdef"
    if files is not None:
        world.ack("b")
        again = world.restarted(LOG + QUEUE)
        assert again.bodies() == "acdef"
        records = JournalReader("data", again.files or files).records(trust_open=True)
        assert sum(record.kind == PUBLISHED for _, record in records) == 6


@pytest.mark.parametrize("runs_spare", [-10, 1000])
def test_what_comes_back_during_a_checkpoint_stays(monkeypatch: pytest.MonkeyPatch, runs_spare: int) -> None:
    """At whichever of its steps, also where it forgets contents, in both ways: a later restart has them all."""
    monkeypatch.setattr(stating, "EXAMINED_SLICE", 2)
    monkeypatch.setattr(stating, "RUNS_SPARE", runs_spare)
    monkeypatch.setattr(indexes, "KEEP_SLICE", 2)
    other = '[[queue]]\nname = "z"\n'
    step, is_over = 0, False
    while not is_over:
        world, is_over = World(LOG + other, SimulatedFiles()), True
        for key in "ttttzzz":
            world.publish(key, key=key, delivery_mode=2)
            world.publish("-", key="lost", delivery_mode=2)
        for _ in range(2):
            for at, _ in enumerate(checkpoint_of(world)):
                if at == step and "q" not in world.broker.virtual_hosts["/"].queues:
                    declare(world)
                    is_over = False
        assert is_over or world.restarted(LOG + QUEUE + other).bodies() == "tttt", f"declared at step {step}"
        step += 1
    assert step > 6


def test_what_came_back_and_is_gone_is_forgotten() -> None:
    """By the next checkpoint: memory has places of contents only of messages that are there."""
    world = World(LOG + '[[queue]]\nname = "z"\n', SimulatedFiles())
    for body, key in (("a", "t"), ("-", "lost"), ("b", "t"), ("-", "lost")):
        world.publish(body, key=key, delivery_mode=2)
    declare(world)
    ids = world.ids().values()
    world.ack(*"ab")
    world.publish("z", key="z", delivery_mode=2)
    list(checkpoint_of(world))
    supervisor = world.built.supervisor
    assert supervisor is not None and [supervisor.recorder.messages.contents.lsn_of(id_) for id_ in ids] == [None] * 2


def checkpoint_of(world: World) -> Iterator[None]:
    supervisor = world.built.supervisor
    assert supervisor is not None
    for _ in stating.checkpoint(world.broker, supervisor.journal, supervisor.recorder):
        supervisor.journal.commit()
        yield
    world.work()


def test_at_the_first_start() -> None:
    """Queues page, row C06: a queue that a configuration adds; the log is what the topic had before."""
    world = World(LOG, SimulatedFiles())
    world.publish(*"abcde", delivery_mode=1)
    again = world.restarted(LOG + QUEUE)
    assert again.bodies() == "abcde"
    assert again.restarted(LOG + QUEUE).bodies() == "abcde"


def test_from_a_bookmark(files: SimulatedFiles | None) -> None:
    """Queues page, row C07: from the fourth on, which is included."""
    world = World(LOG, files)
    first = world.broker.context.next_id
    world.publish(*"abcde")
    declare(world, recovery_point=f"1|{first + 3}|")
    assert world.bodies() == "de"


@pytest.mark.parametrize(("ms", "expected"), [(-3_600_000, "abc"), (3_600_000, ""), (0, "c")])
def test_from_a_time(files: SimulatedFiles | None, ms: int, expected: str) -> None:
    """Queues page, row C08: a time before the log is its beginning, one that is to come is now."""
    world = World(LOG, files)
    world.publish(*"ab")
    world.advance_ms(60_000)
    point = world.stamp(ms)
    world.advance_ms(1000)
    world.publish("c")
    declare(world, recovery_point=point)
    assert world.bodies() == expected
    world.publish("d")
    assert world.bodies() == expected + "d"


@pytest.mark.parametrize("point", ["now", "creation"])
def test_from_now_on(files: SimulatedFiles | None, point: str) -> None:
    """Only what comes after the queue was there (C.5)."""
    world = World(LOG, files)
    world.publish(*"ab")
    declare(world, recovery_point=point)
    world.publish("c")
    assert world.bodies() == "c"


def test_of_what_another_queue_captured() -> None:
    """Without a list the log begins with the first queue; what that acknowledged is for the second one all the same."""
    world = World(QUEUE, SimulatedFiles())
    world.publish(*"abc")
    world.ack("b")
    vhost = world.broker.virtual_hosts["/"]
    arguments = {**world.queue().arguments}
    vhost.queues.declare("two", client=None, durable=True, arguments=arguments)
    world.work()
    assert (world.bodies("two"), world.bodies()) == ("abc", "ac")
    vhost.queues.remove(world.queue("two"))
    vhost.queues.remove(world.queue())
    vhost.queues.declare("q", client=None, durable=True, arguments=arguments)
    world.work()
    assert world.bodies() == ""


def test_what_is_known_is_not_reviewed() -> None:
    """Queues page, C.5: with the same recovery point the queue is as it was."""
    world = World(LOG + QUEUE, SimulatedFiles())
    world.publish(*"abc")
    world.ack("a")
    again = world.restarted(LOG + QUEUE)
    leases = leases_of(again.queue())
    assert leases.recovered_point == "epoch" and leases.rebuild is None
    assert again.bodies() == "bc"


def test_without_a_state_all_is_reviewed() -> None:
    """Queues page, rows C03, C04: as if nothing was known of the queue, the same state comes of the whole log; with
    `now` nothing does, and new messages enter."""
    world = World(LOG + QUEUE, SimulatedFiles())
    world.publish(*"abcd")
    world.ack("b")
    again = world.restarted(LOG + QUEUE, rebuilds_all=True)
    assert again.bodies() == "acd"
    again = again.restarted(LOG + QUEUE + 'recovery-point = "now"\n')
    assert again.bodies() == ""
    again.publish("e")
    assert again.restarted(LOG + QUEUE + 'recovery-point = "now"\n').bodies() == "e"
    assert again.restarted(LOG + QUEUE + 'recovery-point = "now"\n', rebuilds_all=True).bodies() == ""


def test_a_checkpoint_spares_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues page, row C12: what plays queue.cache is the checkpoint; the state is the same with it and without, and
    with it nothing of the log is read."""
    looks: list[int] = []
    look = topic_log.JournalLog.entered
    monkeypatch.setattr(topic_log.JournalLog, "entered", lambda *call: looks.append(1) or look(*call))
    settings = LOG + QUEUE + "file-backed = true\n"
    world = World(settings, SimulatedFiles())
    world.publish(*(f"{number:04d}" for number in range(500)))
    world.ack("0007", "0123")
    expected = world.bodies()
    world.built.close()
    again = world.restarted(settings)
    assert again.bodies() == expected and not looks
    reviewed = world.restarted(settings, rebuilds_all=True)
    assert reviewed.bodies() == expected and looks


def test_topics_within_topics() -> None:
    """A message to an exchange is of its topic and of EXCHANGE/KEY: queues of both have it."""
    world = World("", SimulatedFiles())
    vhost = world.broker.virtual_hosts["/"]
    vhost.exchanges.declare("e", "topic", durable=True)

    def declare_one(name: str, topic: str) -> None:
        arguments = fields_of({"x-queue-type": "amps", "x-underlying-topic": topic})
        vhost.queues.declare(name, client=None, durable=True, arguments=arguments)
        world.work()

    declare_one("narrow", "e/k")
    content = NATIVE.join(encode_header(1), b"a")
    publish_by_name(vhost.context, Envelope("e", "k"), [content])
    world.work()
    declare_one("wide", "e")
    declare_one("other", "e/l")
    assert [world.bodies(name) for name in ("narrow", "wide", "other")] == ["a", "a", ""]
    declare_one("again", "e/k")
    assert world.bodies("again") == "a"


def test_another_recovery_point_at_a_start() -> None:
    """Queues page, C.5: the queue is built from the new one; what was in it once does not come again."""
    world = World(LOG, SimulatedFiles())
    world.publish(*"ab")
    first = world.broker.context.next_id
    declare(world, recovery_point="now")
    world.publish(*"cdef")
    world.ack("d")
    assert world.bodies() == "cef"
    later = world.restarted(LOG + QUEUE + f'recovery-point = "1|{first + 2}|"\n')
    assert later.bodies() == "ef"
    earlier = later.restarted(LOG + QUEUE)
    assert earlier.bodies() == "abef"
    assert earlier.restarted(LOG + QUEUE).bodies() == "abef"
    assert earlier.restarted(LOG + QUEUE + f'recovery-point = "{earlier.stamp(3_600_000)}"\n').bodies() == ""


def test_another_recovery_time_at_a_start() -> None:
    """What is in the queue and was published before that time goes, though it is in the same segment (C.5)."""
    world = World(LOG + QUEUE, SimulatedFiles())
    world.publish(*"ab")
    world.advance_ms(60_000)
    point = world.stamp()
    world.advance_ms(1000)
    world.publish(*"cd")
    assert world.restarted(LOG + QUEUE + f'recovery-point = "{point}"\n').bodies() == "cd"


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_bookmark_from_before_the_last_start(is_clean: bool) -> None:
    """Of a queue that was made when all was acknowledged, and of one that is reviewed: the segments are known."""
    world = World(LOG + DLX, SimulatedFiles())
    first = world.broker.context.next_id
    world.publish(*"abcde")
    point = f'recovery-point = "1|{first + 2}|"\n'
    later = world.restarted(LOG + DLX, is_clean=is_clean).restarted(LOG + QUEUE + point, is_clean=is_clean)
    assert later.bodies() == "cde"
    again = later.restarted(LOG + QUEUE + point, is_clean=is_clean, rebuilds_all=True)
    assert again.bodies() == "cde"
    again.ack("d")
    assert again.restarted(LOG + QUEUE + point, is_clean=is_clean, rebuilds_all=True).bodies() == "ce"


def test_a_reload_changes_it_with_the_next_start() -> None:
    """And says so."""
    world = World(LOG + QUEUE, SimulatedFiles())
    world.publish("a")
    report = world.built.objects.apply(load(LOG + QUEUE + 'recovery-point = "now"\n'))
    assert any("x-recovery-point: " in line and "starts anew" in line for line in report.warnings)
    assert world.bodies() == "a"
    assert world.restarted(LOG + QUEUE + 'recovery-point = "now"\n').bodies() == ""


def test_a_bookmark_that_the_log_does_not_have() -> None:
    """Queues page, C.5, E-RP-UNKNOWN: no start, unless it is forced: then it is now."""
    settings = LOG + QUEUE + 'recovery-point = "1|1099511627776|"\n'
    world = World(LOG, SimulatedFiles())
    world.publish("a")
    with pytest.raises(
        DataUnusable, match=r"harness.toml:11: recovery-point: E-RP-UNKNOWN: .*'1\|1099511627776\|'.*--force"
    ):
        world.restarted(settings)
    forced = world.restarted(settings, is_forced=True)
    assert forced.bodies() == ""
    assert forced.restarted(settings).bodies() == ""


def test_lifetimes_count_from_publishing(files: SimulatedFiles | None) -> None:
    """What expired before the queue was there becomes a dead letter once; the rest lives on (C.5, C11)."""
    world = World(LOG + DLX, files)
    world.publish("a")
    world.advance_ms(1500)
    world.publish("b")
    world.advance_ms(700)
    lines = 'message-ttl = "2s"\narguments = { x-dead-letter-exchange = "", x-dead-letter-routing-key = "dead" }\n'
    world.built.objects.apply(load(LOG + DLX + QUEUE + lines))
    world.work()
    assert (world.bodies(), world.bodies("dead")) == ("b", "a")
    world.advance_ms(1400)
    assert (world.bodies(), world.bodies("dead")) == ("", "ab")


def test_filters_priorities_and_deferred_acknowledgements_hold(files: SimulatedFiles | None) -> None:
    """They are asked of what the log has, as of what comes."""
    world = World(LOG, files)
    world.publish('{"p": 1}', '{"p": 3}', "{}", '{"p": 2}')
    declare(world, queue_filter="/p > 0", priority_expr="/p")
    assert world.bodies() == '{"p": 3}{"p": 2}{"p": 1}'


@pytest.mark.parametrize("octets", [1, 100_000])
def test_what_comes_meanwhile_stands_behind(
    monkeypatch: pytest.MonkeyPatch, files: SimulatedFiles | None, octets: int
) -> None:
    """A review takes many turns; nobody gets anything before its end (C.5), and a crash in between begins it again."""
    monkeypatch.setattr(topic_log, "EXAMINED_OCTETS", octets)
    monkeypatch.setattr(rebuilding, "REBUILD_OCTETS", octets)
    monkeypatch.setattr(memory_log, "RUNS_MAX", 2)
    world = World(LOG, files)
    world.publish(*"abcdefgh")
    world.built.objects.apply(load(LOG + QUEUE))
    world.broker.end_turn()
    world.broker.scheduler.load()
    if octets == 1 or files is None:
        assert leases_of(world.queue()).rebuild is not None and world.queue().is_busy()
        assert leases_of(world.queue()).recovered_point == ""
        publish_by_name(
            world.broker.virtual_hosts["/"].context, Envelope("", "t"), [NATIVE.join(encode_header(1), b"i")]
        )
        assert world.queue().pop() is None
        if files is not None:
            assert world.built.supervisor is not None
            world.built.supervisor.journal.commit()
            world.built.supervisor.journal.wait(world.built.supervisor.journal.next_lsn)
            assert world.restarted(LOG + QUEUE).bodies() == "abcdefghi"
        world.work()
        assert world.bodies() == "abcdefghi"
    world.work()
    assert leases_of(world.queue()).rebuild is None and not world.queue().is_busy()
    assert world.bodies().startswith("abcdefgh")


#: Of another order -> bodies as they are delivered.
ORDERS = {
    'priority-expr = "/p"\n': ["4", "2", "1", "3"],
    'priority-expr = "0 - /p"\n': ["1", "3", "2", "4"],
    "": ["1", "2", "3", "4"],
    "target-depth = 1000\n": ["1", "2", "3", "4"],
    'semantics = "at-most-once"\n': ["1", "2", "3", "4"],
}
PRIORITIES = {"1": 1, "2": 2, "3": 1, "4": 3}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("memory", ["", '[limits]\nmemory = "1KiB"\n'])
@pytest.mark.parametrize("before", ORDERS)
@pytest.mark.parametrize("after", ORDERS)
def test_another_order_with_the_next_start(before: str, after: str, memory: str, is_clean: bool) -> None:
    """Priority, semantics and depth: a reload says when, the state is built again at a start (queues page A.3)."""
    if before == after:
        return
    world = World(memory + QUEUE + before, SimulatedFiles())
    world.publish(*(f'{{"n": {n}, "p": {p}}}' + " " * 300 for n, p in PRIORITIES.items()))
    report = world.built.objects.apply(load(memory + QUEUE + after))
    assert any("takes effect when the broker starts anew" in line for line in report.warnings)
    for _ in range(2):  # what the journal knows by then
        world = world.restarted(memory + QUEUE + after, is_clean=is_clean)
        queue = world.queue()
        assert leases_of(queue).rules.settings.is_at_most_once == ("at-most-once" in after)
        assert queue.ready_count == 4
    if queue.pageable is not None:
        queue.pageable.load()
    assert [message.body.decode()[6] for message in queue.store] == ORDERS[after]


@pytest.mark.parametrize("before", ORDERS)
@pytest.mark.parametrize("after", ORDERS)
@pytest.mark.parametrize("memory", ["", '[limits]\nmemory = "1KiB"\n'])
def test_lifetimes_go_on_in_another_order(before: str, after: str, memory: str) -> None:
    """Each message expires at its own time, counted from its publish, whatever order it has since then (A.3, A.5)."""
    world = World(memory + QUEUE + before, SimulatedFiles())
    for n, p in PRIORITIES.items():
        lifetime = {"expiration": str(6000 - 1000 * p).encode()}
        world.publish(f'{{"n": {n}, "p": {p}}}' + " " * 300, delivery_mode=2, **lifetime)
    world = world.restarted(memory + QUEUE + after, after_ms=2000)
    queue = world.queue()
    for left in (4, 3, 2):  # at their second, third and fourth second
        assert queue.ready_count == left
        world.advance_ms(1000)
    assert queue.ready_count == 0


def test_other_barriers_with_the_next_start() -> None:
    """What was one is none, and holds nobody; what was none is one, and holds what stands behind it (A.9)."""
    more = QUEUE + "max-backlog-per-consumer = 10\n"
    world = World(more + 'barrier-expr = "/s"\n', SimulatedFiles())
    world.publish('{"n": 1}', '{"s": 1}', '{"n": 2}', '{"t": 1}', '{"n": 3}')
    world = world.restarted(more + 'barrier-expr = "/t"\n')
    queue = world.queue()
    session = world.broker.connections.open("/", User("guest"), name="c", flush=lambda: None).open_session()
    session.set_prefetch(0, total=False)
    session.consume(queue, "t", no_ack=False, exclusive=False, arguments={})
    world.work()
    assert (queue.unacked, queue.ready_count) == (3, 2)
    session.ack(3, multiple=True)
    world.work()
    assert (queue.counters.acknowledged, queue.unacked, queue.ready_count) == (4, 1, 0)


def test_barriers_with_the_next_start() -> None:
    """What was a message is a barrier, whose lifetime goes on, and is none after another start."""
    barriers = 'barrier-expr = "/s"\nmessage-ttl = 5000\n'
    world = World(QUEUE + "message-ttl = 5000\n", SimulatedFiles())
    world.publish('{"n": 1}', '{"s": 1}', '{"n": 2}')
    world = world.restarted(QUEUE + barriers, after_ms=1000)
    queue = world.queue()
    assert leases_of(queue).gate_position() is not None and queue.ready_count == 3
    world.advance_ms(4000)
    assert queue.ready_count == 0
    world.publish('{"s": 1}', '{"n": 3}')
    again = world.restarted(QUEUE).queue()
    assert leases_of(again).gate_position() is None
    assert [again.pop().body.decode() for _ in range(2)] == ['{"s": 1}', '{"n": 3}']


@pytest.mark.parametrize("settings", ["", '[journal]\nscope = "all"\n'], ids=["durable", "all"])
def test_what_comes_back_while_the_disk_is_full_keeps_its_segment(settings: str) -> None:
    """Until it is gone: the checkpoint that follows states it with the content that is there already."""
    world = World(LOG + settings, SimulatedFiles())
    world.publish(*"abc", delivery_mode=2)
    supervisor = world.built.supervisor
    assert supervisor is not None
    usage = supervisor.journal.usage
    supervisor.recorder.fail(for_good=False)
    declare(world)
    assert world.bodies() == "abc"
    supervisor.recorder.recover()
    supervisor.journal.begin_segment()
    checkpointed(world)
    assert world.restarted(LOG + QUEUE + settings).bodies() == "abc"
    assert [row.live for row in usage.segments] == [3, 0]
    world.queue().purge()
    world.work()
    supervisor.journal.begin_segment()
    checkpointed(world)
    assert [row.live for row in usage.segments] == [0], "and no longer"


@pytest.mark.parametrize("settings", ["", '[journal]\nscope = "all"\n'], ids=["durable", "all"])
@pytest.mark.parametrize("when", ["full", "behind"])
def test_what_comes_back_and_goes_while_the_disk_is_full_keeps_no_segment(settings: str, when: str) -> None:
    """The queue was declared at that time, so that the journal has no name of it yet."""
    world = World(LOG + settings, SimulatedFiles())
    world.publish(*"abc", delivery_mode=2)
    supervisor = world.built.supervisor
    assert supervisor is not None
    supervisor.recorder.fail(for_good=False)
    declare(world)
    if when == "behind":
        supervisor.recorder.recover()
    world.ack(*"abc")
    if when == "full":
        supervisor.recorder.recover()
    assert [row.live for row in supervisor.journal.usage.segments] == [0]
    supervisor.journal.begin_segment()
    checkpointed(world)
    assert world.restarted(LOG + QUEUE + settings).bodies() == ""


@pytest.mark.parametrize("settings", ["", '[journal]\nscope = "all"\n'], ids=["durable", "all"])
@pytest.mark.parametrize("when", ["behind", "full again"])
@pytest.mark.parametrize("goes", ["at once", "when all is stated"])
def test_a_late_dead_letter_that_comes_back_keeps_its_segment_until_it_is_gone(
    settings: str, when: str, goes: str
) -> None:
    """It died while the disk was full, and a checkpoint has written it for another queue. Each counts it once."""
    other = QUEUE.replace('"q"', '"t"')
    world = World(LOG + other + settings, SimulatedFiles())
    vhost, supervisor = world.broker.virtual_hosts["/"], world.built.supervisor
    assert supervisor is not None
    letters = {"x-dead-letter-exchange": Field("S", b""), "x-dead-letter-routing-key": Field("S", b"t")}
    vhost.queues.declare("s", client=None, durable=True, arguments=letters)
    session = world.broker.connections.open("/", User("guest"), name="c", flush=lambda: None).open_session()
    world.publish("A", key="s", delivery_mode=2)
    supervisor.recorder.fail(for_good=False)
    session.get(world.queue("s"), no_ack=False)
    session.reject(1, requeue=False)
    world.work()
    supervisor.recorder.recover()
    stating_all = checkpoint_of(world)
    while not supervisor.recorder.messages.late:
        next(stating_all)
    assert supervisor.journal.wait(supervisor.journal.next_lsn)
    if when == "full again":
        supervisor.recorder.fail(for_good=False)
    world.built.objects.apply(load(LOG + other + QUEUE))
    world.work()
    assert (world.bodies("t"), world.bodies()) == ("A", "A")
    if goes == "at once":
        world.ack("A")
    for _ in stating_all:
        pass
    if when == "full again":
        supervisor.recorder.recover()
    supervisor.journal.begin_segment()
    checkpointed(world)
    assert sum(row.live for row in supervisor.journal.usage.segments) == 1 + (goes != "at once")
    again = world.restarted(LOG + other + QUEUE + settings)
    assert (again.bodies("t"), again.bodies()) == ("A", "" if goes == "at once" else "A")
    for queue in ("t", "q"):
        world.queue(queue).purge()
    world.work()
    assert sum(row.live for row in supervisor.journal.usage.segments) == 0


@pytest.mark.parametrize("settings", ["", '[journal]\nscope = "all"\n'], ids=["durable", "all"])
def test_what_comes_back_before_its_queue_is_stated_keeps_its_segment(settings: str) -> None:
    """The queue was declared on a full disk, and is built when there is room, before the checkpoint comes to it."""
    world = World(LOG + settings, SimulatedFiles())
    world.publish(*"abc", delivery_mode=2)
    supervisor = world.built.supervisor
    assert supervisor is not None
    supervisor.recorder.fail(for_good=False)
    world.built.objects.apply(load(LOG + QUEUE))
    supervisor.recorder.recover()
    world.work()
    assert world.bodies() == "abc"
    supervisor.journal.begin_segment()
    checkpointed(world)
    assert [row.live for row in supervisor.journal.usage.segments] == [3, 0]
    assert world.restarted(LOG + QUEUE + settings).bodies() == "abc"
    world.ack("b")
    assert supervisor.journal.usage.segments[0].live == 2


@pytest.mark.parametrize("starts", [0, 2])
def test_messages_of_a_deleted_exchange_stay_in_the_log(starts: int) -> None:
    """As long as their segment does. Its name was forgotten with the first segment after its last live message."""
    topic = '[[logged-topic]]\nname = "x"\n[[logged-topic]]\nname = "q"\n'
    world = World(topic, SimulatedFiles())
    vhost = world.broker.virtual_hosts["/"]
    vhost.exchanges.declare("x", "fanout", durable=True)
    for body in "ab":
        header = encode_header(1, {"delivery_mode": 2})
        envelope = Envelope("x", "k", scan_properties(header[12:]))
        publish_by_name(vhost.context, envelope, [NATIVE.join(header, body.encode())])
    world.work()
    vhost.exchanges.delete("x")
    world.work()
    for _ in range(starts):
        world = world.restarted(topic)
    assert world.built.supervisor is not None
    for _ in range(3):
        world.publish("later", key="elsewhere")
        world.built.supervisor.journal.begin_segment()
    world.built.objects.apply(load(topic + QUEUE.replace('"t"', '"x"')))
    world.work()
    assert world.bodies() == "ab"


def checkpointed(world: World) -> None:
    """All is stated, which is safe, and what nobody needs is deleted."""
    supervisor = world.built.supervisor
    assert supervisor is not None
    list(checkpoint_of(world))
    supervisor.recorder.checkpoint_done()
    world.advance_ms(25 * 3_600_000)  # longer than logged messages are kept in any case
    for _ in range(2):
        supervisor.journal.old_segments.reclaim()
        world.work()


@pytest.mark.parametrize("was_there", [False, True])
def test_a_virtual_host_is_deleted_while_a_queue_of_it_is_rebuilt(was_there: bool) -> None:
    """The steps that come before the queue is deleted too do not end the broker."""
    world = World(LOG + QUEUE if was_there else LOG, SimulatedFiles())
    world.publish(*"abc", delivery_mode=2)
    if was_there:
        world = World(
            LOG + QUEUE + 'recovery-point = "20000101T000000Z"\n', world.files and world.files.crash(), is_worked=False
        )
    else:
        world.built.objects.apply(load(LOG + QUEUE))
    queue, vhosts = world.queue(), world.broker.virtual_hosts
    assert queue.wants_load()
    vhosts.delete("/")
    while queue.wants_load() and not queue.deleted:
        queue.load()
    assert not queue.wants_load()
    world.work()
    assert "/" not in vhosts and queue.deleted
