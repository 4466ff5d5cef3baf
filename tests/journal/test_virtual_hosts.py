"""A virtual host that was deleted does not come back with a restart, nor does anything that was in it."""

from functools import partial

import pytest
from simulated_files import SimulatedFiles

from leveret.engine import Envelope, publish_by_name
from leveret.journal import JournalOptions
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recording.recorder import Recorder
from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import GUEST, Harness, messages


class Restarted(Harness):
    """A broker on the same files, again and again."""

    def __init__(self) -> None:
        options = JournalOptions(segment_size=100_000, preallocate_size=0)
        super().__init__(journal=SimulatedFiles(), journal_options=options, recorder=partial(Recorder, counts_max=-1))

    def again(self) -> None:
        """Everything safe, then a restart."""
        self.end_turn()
        self.journal.close()
        self.begin()

    def write(self) -> None:
        """What was recorded so far is safe, in the middle of a turn."""
        self.journal.commit()
        assert self.journal.wait(self.journal.next_lsn)

    def killed(self) -> None:
        """What was recorded so far is safe, and nothing else happens before the end."""
        self.write()
        self.kill()

    def furnish(self) -> None:
        """The virtual host `v` with an exchange, a queue bound to it, and a message."""
        vhost = self.broker.virtual_hosts.create("v")
        vhost.exchanges.declare("e", "topic", durable=True, auto_delete=True)
        vhost.queues.declare("q", client=None, durable=True)
        vhost.bindings.add("queue", "q", "e", "#", {})
        session = self.broker.connections.open("v", self.user, name="c", flush=lambda: None).open_session()
        summary, contents = messages(["x"], {"delivery_mode": 2})
        session.publish(vhost.router.route("e", "k", self.user), Envelope("e", "k", summary), contents, mandatory=False)


def test_it_comes_back_until_it_is_deleted() -> None:
    """With its queue and message; and then without, also under the same name."""
    one = Restarted()
    one.furnish()
    one.again()
    assert list(one.broker.virtual_hosts["v"].queues) == ["q"]
    assert one.broker.virtual_hosts["v"].queues["q"].store.in_memory == 1
    one.broker.virtual_hosts.delete("v")
    one.again()
    assert "v" not in one.broker.virtual_hosts
    one.furnish()
    one.broker.virtual_hosts.delete("v")
    vhost = one.broker.virtual_hosts.create("v")  # in the same turn: what is left of the old one goes first
    vhost.queues.declare("q", client=None, durable=True)
    one.again()
    vhost = one.broker.virtual_hosts["v"]
    assert list(vhost.queues) == ["q"] and "e" not in vhost.exchanges
    assert vhost.queues["q"].store.in_memory == 0


def test_who_made_it_waits_until_it_is_recorded() -> None:
    """As for a queue: the answer waits for the journal if the turn recorded something."""
    one = Restarted()
    before = one.broker.context.turn.records
    one.broker.virtual_hosts.create("v")
    assert one.broker.context.turn.records > before
    one.killed()
    assert "v" in one.broker.virtual_hosts


def test_a_kill_behind_the_answer_does_not_bring_it_back() -> None:
    """Its queues go at the ends of turns; it is gone when it was said to be, with everything, and may be made anew."""
    one = Restarted()
    one.furnish()
    one.again()
    before = one.broker.context.turn.records
    one.broker.virtual_hosts.delete("v")
    assert one.broker.context.turn.records > before  # the answer waits for the journal
    one.killed()
    assert "v" not in one.broker.virtual_hosts
    one.furnish()
    one.again()
    vhost = one.broker.virtual_hosts["v"]
    assert list(vhost.queues) == ["q"] and vhost.queues["q"].store.in_memory == 1


def test_a_checkpoint_that_was_under_way_does_not_bring_its_messages_back() -> None:
    """The queue is stated, the virtual host goes, the queue's messages are stated, then the kill."""
    one = Restarted()
    one.furnish()
    one.again()
    slices = checkpoint(one.broker, one.journal, one.recorder)
    for _ in range(3):
        next(slices)
        one.journal.commit()
    one.broker.virtual_hosts.delete("v")
    for _ in slices:
        one.journal.commit()
    one.killed()
    assert "v" not in one.broker.virtual_hosts
    assert not one.journal.usage.segments or not sum(row.live for row in one.journal.usage.segments)


def test_a_message_that_came_while_it_was_going_keeps_no_segment() -> None:
    """A client that is not disconnected yet publishes; no record left says that the virtual host is gone."""
    one = Restarted()
    one.ends_turns = False
    vhost = one.broker.virtual_hosts.create("v")
    vhost.queues.declare("q", client=None, durable=True)
    late = one.broker.connections.open("v", one.user, name="late", flush=lambda: None).open_session()
    one.broker.virtual_hosts.delete("v")
    one.queue("fill")
    while len(one.journal.usage.segments) < 3:
        one.publish("x" * 50_000, key="fill", delivery_mode=2)
        one.take(1, "fill")
        one.write()
    for _ in checkpoint(one.broker, one.journal, one.recorder):
        one.write()
    one.write()
    assert 1 in one.journal.old_segments.reclaim()  # the segment that says so
    one.write()
    summary, contents = messages(["late"], {"delivery_mode": 2})
    late.publish(vhost.router.route("", "q", one.user), Envelope("", "q", summary), contents, mandatory=False)
    one.killed()
    assert "v" not in one.broker.virtual_hosts
    assert sum(row.live for row in one.journal.usage.segments) == 0


@pytest.mark.parametrize("makes_resources", [True, False])
def test_dead_letters_that_wait_do_not_bring_a_deleted_virtual_host_back(makes_resources: bool) -> None:
    """They go with it: they create neither a queue nor an exchange, of which a restart would make it anew."""
    rules = entry("q", dead_letter_address="dead", auto_create_dead_letter_resources=makes_resources)
    world = Harness(SettingsRepository([rules]), journal=SimulatedFiles())
    vhost = world.broker.virtual_hosts.create("v")
    queue = vhost.queues.declare("q", client=None, durable=True)
    session = world.broker.connections.open("v", GUEST, name="v", flush=lambda: None).open_session()
    summary, contents = messages("a" * 300, {"delivery_mode": 2})
    publish_by_name(vhost.context, Envelope("", "q", summary), contents)
    session.consume(queue, "c", no_ack=False, exclusive=False, arguments={})
    world.end_turn()
    session.reject(0, multiple=True, requeue=False)
    assert len(world.broker.dead_letters.waiting) == 300
    world.broker.virtual_hosts.delete("v")
    world.finish_turns()
    assert not vhost.queues
    assert "dead" not in vhost.exchanges
    world.settle()
    world.kill()
    assert list(world.broker.virtual_hosts) == ["/"]


@pytest.mark.parametrize("durable", [True, False])
def test_a_client_of_a_virtual_host_that_is_being_deleted_may_still_declare(durable: bool) -> None:
    """Until it is disconnected. Nothing of that is there after a restart."""
    world = Harness(journal=SimulatedFiles())
    vhost = world.broker.virtual_hosts.create("v")
    client = world.broker.connections.open("v", GUEST, name="v", flush=lambda: None)
    world.broker.virtual_hosts.delete("v")
    vhost.exchanges.declare("x", "fanout", durable=durable, client=client)
    vhost.queues.declare("q", durable=durable, client=client)
    vhost.bindings.add("queue", "q", "x", "", {}, client)
    world.finish_turns()
    assert client.closed
    world.settle()
    world.kill()
    assert list(world.broker.virtual_hosts) == ["/"]
