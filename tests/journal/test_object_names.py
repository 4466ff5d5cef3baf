"""Names and ids in the journal: a name of a thing has one id, and none when the thing is gone."""

from types import MappingProxyType

import pytest
from simulated_files import SimulatedFiles

from leveret.engine import User
from leveret.journal import Declared, JournalOptions, recover
from leveret.journal.format.heap import IS_DURABLE
from leveret.journal.format.record import EXCHANGE, QUEUE, VHOST
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recording.full_recorder import FullRecorder
from leveret.journal.recording.message_index import message_index
from leveret.journal.recording.recorder import Recorder
from leveret.testing.harness import Harness

ME = User("me", is_configured=True)


class Life(Harness):
    """A broker on a journal in memory, and the next one on what a kill leaves of it."""

    def __init__(self, recorder: type[Recorder] = Recorder) -> None:
        options = JournalOptions(segment_size=1 << 30, preallocate_size=0)
        super().__init__(journal=SimulatedFiles(), journal_options=options, recorder=recorder, user=ME)

    def begin(self) -> None:
        super().begin()
        self.broker.connections.replace_user(ME)

    def die(self) -> None:
        """Behind the answer to the last thing that was done."""
        self.settle()
        self.kill()

    def roll(self) -> None:
        """Another segment."""
        self.settle()
        self.journal.turns.roll()

    def state(self, *, rolls: bool = False) -> None:
        """`rolls`: a segment ends behind its first slice."""
        self.settle()
        for at, _ in enumerate(checkpoint(self.broker, self.journal, self.recorder)):
            self.journal.commit()
            if rolls and not at:
                self.journal.turns.roll()
        self.settle()
        self.journal.old_segments.reclaim()
        self.settle()

    def add(self) -> None:
        self.broker.connections.replace_user(User("admin", tags=("administrator",), permissions=MappingProxyType({})))
        self.settle()

    def delete(self) -> None:
        self.broker.connections.delete_user("admin")
        self.settle()

    def users(self) -> set[str]:
        return {user.name for user in self.broker.users} - {"me"}

    def send(self, exchange: str, key: str) -> None:
        self.publish("x", key=key, exchange=exchange, delivery_mode=2)

    def exchanges_of(self, queue: str) -> list[str]:
        return [message.envelope.exchange for message in self.named(queue).messages()]

    def names_of(self, what: int) -> list[str]:
        names = self.journal.names
        return sorted(names.text(id_) for id_ in names.ids_of(what))


def test_a_deleted_administrator_stays_deleted() -> None:
    """Made, deleted and made again around checkpoints that begin just before a segment's head, and killed each time.

    Recovery that gives names of before a checkpoint's begin has to take them, too: else a name gets a second id, and
    the deletion is written down of the wrong one.
    """
    life = Life()
    life.add()
    life.roll()
    life.delete()
    life.add()
    life.state()
    life.die()
    life.delete()
    life.state(rolls=True)
    life.die()
    life.add()
    life.die()
    assert life.users() == {"admin"}
    life.delete()
    life.die()
    assert life.users() == set()


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("recorder", [Recorder, FullRecorder])
def test_a_message_knows_its_exchange_when_that_is_gone(recorder: type[Recorder], durable: bool) -> None:
    """Also when another one of the name came, and when it was moved forward; the name goes with the last message."""
    life = Life(recorder)
    life.vhost.queues.declare("q", client=None, durable=True)
    for _ in range(2):
        life.vhost.exchanges.declare("x", "fanout", durable=durable)
        life.vhost.bindings.add("queue", "q", "x", "", {})
        life.send("x", "k")
        life.vhost.exchanges.delete("x")
        life.die()
        life.state()
        life.roll()
    assert life.exchanges_of("q") == ["x", "x"]
    moving = life.journal.old_segments.move_forward(
        1, message_index(life.broker, life.recorder.objects), life.recorder.messages.contents.move
    )
    assert sum(moving) == 1
    life.settle()
    life.state()
    life.die()
    assert life.exchanges_of("q") == ["x", "x"]
    life.vhost.queues.named("q").purge()
    life.settle()
    life.roll()
    assert "x" not in life.names_of(EXCHANGE)


@pytest.mark.parametrize("recorder", [Recorder, FullRecorder])
def test_an_exchange_that_is_declared_again_stays(recorder: type[Recorder]) -> None:
    """When the last message of the deleted exchange of its name has gone, and the broker is killed."""
    life = Life(recorder)
    life.vhost.queues.declare("q", client=None, durable=True)
    life.vhost.exchanges.declare("x", "fanout", durable=True)
    life.vhost.bindings.add("queue", "q", "x", "", {})
    life.send("x", "k")
    life.settle()
    life.vhost.exchanges.delete("x")
    life.settle()
    life.vhost.exchanges.declare("x", "fanout", durable=True)
    life.settle()
    life.vhost.queues.named("q").purge()
    life.state()
    life.roll()
    life.die()
    assert "x" in life.vhost.exchanges


@pytest.mark.parametrize("recorder", [Recorder, FullRecorder])
def test_names_of_the_dead_do_not_pile_up(recorder: type[Recorder]) -> None:
    """Neither of transient exchanges, nor of virtual hosts, nor of those that every virtual host has in them."""
    life = Life(recorder)
    life.vhost.queues.declare("q", client=None, durable=True)
    life.settle()
    for at in range(20):
        name = f"x{at}"
        life.vhost.exchanges.declare(name, "fanout", durable=False)
        life.vhost.exchanges.declare(f"{name}d", "fanout", durable=True)
        life.vhost.bindings.add("exchange", f"{name}d", "amq.direct", "k", {})
        life.vhost.bindings.add("queue", "q", name, "", {})
        life.send(name, "")
        life.vhost.exchanges.delete(name)
        life.vhost.exchanges.delete(f"{name}d")
        inner = life.broker.virtual_hosts.create("v")
        inner.queues.declare("q", client=None, durable=True)
        inner.bindings.add("queue", "q", "amq.topic", "#", {})
        life.broker.virtual_hosts.delete("v")
        life.vhost.queues.named("q").purge()
        life.settle()
    life.roll()
    assert life.names_of(VHOST) == ["/"]
    assert life.names_of(EXCHANGE) == ["amq.direct"]
    life.die()
    assert life.names_of(VHOST) == ["/"]


def test_a_virtual_host_of_the_same_name_is_another_one() -> None:
    """What binds to an exchange that every virtual host has: the broker starts, and the binding is there."""
    life = Life()
    for _ in range(2):
        if "v" in life.broker.virtual_hosts:
            life.broker.virtual_hosts.delete("v")
            life.settle()
        vhost = life.broker.virtual_hosts.create("v")
        vhost.queues.declare("q", client=None, durable=True)
        vhost.bindings.add("queue", "q", "amq.topic", "#", {})
        life.settle()
    life.die()
    topic = life.broker.virtual_hosts["v"].exchanges.named("amq.topic")
    assert [binding.destination.name for binding in topic.bindings.values()] == ["q"]


def test_segments_that_a_power_cut_brings_back_leave_no_hole() -> None:
    """Of several that were being deleted any may be there again; a journal with a hole would not start."""
    for struck in range(1, 12):
        life = Life()
        for _ in range(4):
            life.add()
            life.roll()
        left = struck

        def fault(operation: str, path: str) -> None:
            nonlocal left
            left -= operation in ("unlink", "sync_directory")
            if not left:
                raise KeyboardInterrupt

        life.settle()
        for _ in checkpoint(life.broker, life.journal, life.recorder):
            life.journal.commit()
        life.settle()
        assert len(life.journal.old_segments.reclaim()) == 4
        life.files.fault = fault
        try:
            while life.journal.writer.run_once():
                pass
        except KeyboardInterrupt:
            pass
        files = life.files
        gone = sorted(files.names_durable.keys() - files.names_now.keys())
        for mask in range(1 << len(gone)):
            after = files.power_cut()
            for at, name in enumerate(gone):
                if mask >> at & 1:
                    after.unlink(name)
            life.files = after
            life.begin()
            assert life.users() == {"admin"}


def test_a_name_with_two_ids_is_that_of_the_later_object() -> None:
    """A head says so that a version wrote which did not retire names: the earlier queue goes, with its messages."""
    life = Life()
    life.queue("q")
    life.publish("old")
    life.settle()
    names = life.journal.names
    (vhost,) = names.ids_of(VHOST)
    later, _ = names.new(QUEUE, vhost, "q")
    life.journal.objects.declared(later, Declared(QUEUE, IS_DURABLE, "", b""))
    life.roll()
    life.settle()
    found = recover(life.files.power_cut(), life.path)
    assert found.names.id_of(QUEUE, vhost, "q") == later
    assert [id_ for id_, one in found.objects.items() if one.object_type == QUEUE] == [later] and not found.queues
