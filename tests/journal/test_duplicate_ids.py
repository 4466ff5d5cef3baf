"""`persist-id-cache`: a duplicate id is remembered over a restart if the message that brought it was safe."""

from typing import Any

import pytest
from durable_desk import PATH, DurableDesk
from simulated_files import SimulatedFiles
from toml_text import settings

from leveret.cli.journal_commands import record_fields
from leveret.journal import JournalReader
from leveret.journal.format.errors import BadRecord
from leveret.journal.format.heap import IdsSeen, decode_ids_seen, encode_ids_seen
from leveret.journal.format.record import IDS_SEEN, RESTATED, Record
from leveret.journal.recording import duplicate_ids
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recovery.check import verify
from leveret.journal.recovery.recovered import SPARE, RecoveredIds
from leveret.journal.recovery.replay import Replay
from leveret.testing.harness import Harness, messages


def make(files: SimulatedFiles | None = None, text: str = "", **options: Any) -> DurableDesk:
    return DurableDesk(files or SimulatedFiles(), text, **options)


def cut(desk: DurableDesk, text: str = "", **options: Any) -> DurableDesk:
    """A broker on what was safe: kill -9 and a power cut at once."""
    return make(desk.files.power_cut(), text, **options)


def send(desk: DurableDesk, id_: str, body: str = "A", *, key: str = "q", persistent: bool = True) -> list[str]:
    """Publish with a duplicate id; what its publisher has heard when the journal has done its work."""
    heard = desk.publish(
        body, key=key, headers={"_AMQ_DUPL_ID": id_}, delivery_mode=2 if persistent else 1, mandatory=True
    )
    desk.settle()
    return [*filter(None, heard), *(word.lower() for word in map(_word, desk.confirms()))]


def drained(desk: DurableDesk, queue: str = "q") -> str:
    """Bodies of everything that is ready; they are gone for good."""
    bodies = desk.all(queue)
    desk.settle()
    return bodies


def _word(confirm: str) -> str:
    return confirm.removeprefix("Basic.")


def records(desk: DurableDesk) -> list[Record]:
    reader = JournalReader(PATH, desk.files)
    return [record for _, record in reader.records(trust_open=True) if record.kind == IDS_SEEN]


def state_all(desk: DurableDesk) -> int:
    """A checkpoint; how many slices it had."""
    count = 0
    for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
        desk.journal.commit()
        count += 1
    desk.settle()
    return count


def test_a_confirmed_publish_is_not_taken_again_after_a_kill() -> None:
    """Its duplicate is confirmed and dropped, also if the message was consumed; other ids and addresses are not."""
    desk = make()
    for queue in ("q", "other"):
        desk.declare(queue)
    assert send(desk, "one") == ["ack"]
    desk = cut(desk)
    assert send(desk, "one", "B") == ["ack"]
    assert drained(desk) == "A"
    desk = cut(desk)
    assert [send(desk, "one", "C"), send(desk, "two", "D"), send(desk, "one", "E", key="other")] == [["ack"]] * 3
    assert (drained(desk), drained(desk, "other")) == ("D", "E")
    assert len(records(desk)) == 3


def test_a_lost_publish_may_be_tried_again() -> None:
    """What was not committed is lost with its id."""
    desk = make()
    desk.declare()
    desk.publish("A", headers={"_AMQ_DUPL_ID": "one"}, delivery_mode=2)
    desk = cut(desk)
    assert drained(desk) == ""
    assert send(desk, "one", "B") == ["ack"]
    assert drained(desk) == "B"


@pytest.mark.parametrize("persistent, key", [(False, "q"), (True, "nowhere"), (True, "transient")])
def test_ids_of_what_no_restart_brings_back_go_with_it(persistent: bool, key: str) -> None:
    """A transient message, one that no queue took, one in a queue that is not durable: nothing is written."""
    desk = make()
    desk.declare()
    desk.vhost.queues.declare("transient", client=None, durable=False)
    send(desk, "one", key=key, persistent=persistent)
    assert not records(desk)
    desk = cut(desk)
    desk.declare(key)
    assert send(desk, "one", "B", key=key) == ["ack"]
    assert drained(desk, key) == "B"


def test_a_duplicate_is_confirmed_when_the_first_is_safe() -> None:
    """Not sooner, by another connection neither, whether ids are kept or not: a kill would lose the message."""
    for keeps_ids in (True, False):
        desk = make(keeps_ids=keeps_ids)
        desk.declare()
        other = desk.other()
        headers = {"_AMQ_DUPL_ID": "one"}
        assert desk.publish("A", headers=headers, delivery_mode=2) == [""]
        assert other.publish("A", headers=headers, delivery_mode=2) == [""]
        desk.settle()
        assert desk.confirms() == ["Ack"] and [one.frame.name for one in other.peer.take()] == ["Basic.Ack"]
        assert other.publish("A", headers=headers, delivery_mode=2) == ["ack"]  # nothing to wait for any more
        assert drained(desk) == "A"


def test_a_refused_publish_may_be_tried_again() -> None:
    """A full queue refused it, and then there is room; in memory and over a kill."""
    desk = make()
    desk.declare(x_max_length=1, x_overflow="reject-publish")
    assert [send(desk, "one", "A"), send(desk, "two", "B")] == [["ack"], ["nack"]]
    assert drained(desk) == "A"
    assert send(desk, "two", "B") == ["ack"]
    assert send(cut(desk), "two", "C") == ["ack"]
    assert drained(desk) == "B"


def test_the_cache_goes_round() -> None:
    """Of five ids the last three are remembered, in their order, also behind a checkpoint and more ids."""
    text = settings(q={"id_cache_size": 3})
    desk = make(text=text)
    desk.declare()
    for id_ in "12345":
        send(desk, id_, id_)
    state_all(desk)
    send(desk, "6", "6")
    desk = cut(desk, text)
    for id_ in "456":
        send(desk, id_, "-")
    assert drained(desk) == "123456"
    send(desk, "7", "7")  # 4 is forgotten
    send(desk, "5", "-")
    send(desk, "4", "4")
    assert drained(desk) == "74"


@pytest.mark.parametrize("size, known", [(2, "cd"), (9, "abcd"), (0, "")])
def test_another_size_after_a_restart(size: int, known: str) -> None:
    """Smaller: the newest ones; larger: all; 0: none."""
    text = settings(q={"id_cache_size": 4})
    desk = make(text=text)
    desk.declare()
    for id_ in "abcd":
        send(desk, id_, id_)
    assert drained(desk) == "abcd"
    desk = cut(desk, settings(q={"id_cache_size": size}))
    cache = desk.vhost.context.id_caches.get("q")
    assert ("".join(id_[-3] for id_ in cache.ids()) if cache is not None else "") == known
    for id_ in known:
        send(desk, id_, id_)
    assert drained(desk) == ""
    if not size:
        assert [send(desk, "a", "a") for _ in "12"] == [["ack"], ["ack"]]
        assert drained(desk) == "aa"


def test_off_nothing_is_written_and_a_restart_forgets() -> None:
    """Also what was written before it was off."""
    desk = make()
    desk.declare()
    send(desk, "one", "A")
    desk = cut(desk, keeps_ids=False)
    assert (send(desk, "one", "B"), drained(desk)) == (["ack"], "AB")
    send(desk, "two", "C")
    send(desk, "two", "D")  # while the broker runs, it is remembered
    assert len(records(desk)) == 1
    state_all(desk)
    desk = cut(desk, keeps_ids=False)
    assert drained(desk) == "C"
    send(desk, "two", "E")
    assert drained(desk) == "E"


def test_a_transaction_keeps_its_ids() -> None:
    """With its messages, or neither."""
    desk = make()
    desk.declare()
    desk.select()
    for end in (desk.roll_back, desk.commit):
        for body in "AA":
            desk.peer.send(_in_transaction(body))
        if end == desk.commit:
            desk.peer.send(_commit())
        else:
            end()
    before = cut(desk)
    desk.settle()
    after = cut(desk)
    for one, expected in ((before, "B"), (after, "A")):
        send(one, "one", "B")
        assert drained(one) == expected


def _in_transaction(body: str) -> bytes:
    from peer import publish

    return publish(1, "q", body.encode(), headers={"_AMQ_DUPL_ID": "one"}, delivery_mode=2)


def _commit() -> bytes:
    from pamqp import commands
    from peer import method

    return method(1, commands.Tx.Commit)


def test_virtual_hosts_are_apart_and_end_with_their_ids() -> None:
    """The same address in two; one is deleted and made again."""
    desk = make()
    broker = desk.pair.broker
    broker.virtual_hosts.create("v")
    desk.declare()
    send(desk, "one")
    desk.recorder.messages.contents.add(10**6, 1, 1)  # as if a message had come there, too
    assert desk.recorder.keep_id("v", "q", "id", 10**6, 5)
    desk.settle()
    there = cut(desk).pair.broker
    assert {name: list(vhost.context.id_caches) for name, vhost in there.virtual_hosts.items()} == {
        "/": ["q"],
        "v": ["q"],
    }
    assert there.virtual_hosts["v"].context.id_caches["q"].ids() == ["id"]
    broker.virtual_hosts.delete("v")
    desk.settle()
    broker.virtual_hosts.create("v")
    desk.settle()
    there = cut(desk).pair.broker
    assert {name: list(vhost.context.id_caches) for name, vhost in there.virtual_hosts.items()} == {"/": ["q"], "v": []}


def test_a_checkpoint_carries_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slice by slice, while others come and go; then nothing before it is needed."""
    monkeypatch.setattr(duplicate_ids, "RECORDED_SLICE", 2)
    monkeypatch.setattr("leveret.journal.recovery.recovered.SPARE", 0)
    text = settings(q={"id_cache_size": 6})
    desk = make(text=text)
    desk.declare()
    for id_ in "abcdef":
        send(desk, id_, id_)
    assert drained(desk) == "abcdef"
    desk.journal.turns.roll()
    octets = desk.journal.turns.ids_bytes
    for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
        desk.journal.commit()
        if desk.journal.turns.ids_bytes < octets:  # the first ids are stated
            send(desk, "g", "g")
    desk.settle()
    assert 0 < desk.journal.turns.ids_bytes < octets
    # The room that a checkpoint needs on a full disk: of those that are remembered, not of all that came.
    assert desk.recorder.duplicate_ids.octets == 6 * (16 + len("('string', b'a')"))
    stated = [record for record in records(desk) if record.flags & RESTATED]
    assert sum(record.size for record in stated) == 6 and max(record.size for record in stated) == 2
    assert drained(desk) == "g"
    state_all(desk)
    assert desk.journal.old_segments.reclaim()
    desk.settle()
    again = cut(desk, text)
    assert again.journal.turns.ids_bytes >= 6 * 16, "checkpoints do not become more frequent by a restart"
    before, after = desk.vhost.context.id_caches["q"], again.vhost.context.id_caches["q"]
    assert after.ids() == before.ids() and all(map(before.message_id_of, before.ids()))
    for id_ in "bcdefg":
        send(again, id_, "-")
    assert drained(again) == ""
    send(again, "a", "a")
    assert drained(again) == "a"


def test_cut_anywhere_an_id_is_there_with_its_message() -> None:
    """The segment ends at any octet of the block that has both: either both come back or none."""
    desk = make()
    desk.declare()
    desk.settle()
    (path,) = [f"{PATH}/{name}" for name in desk.files.names(PATH) if name.endswith(".log")]
    before = _end(desk.files.content(path))
    send(desk, "one")
    data = desk.files.content(path)
    end = _end(data)
    found = set()
    for length in range(before, end + 1):
        files = desk.files.power_cut()
        files.put(path, data[:length])
        again = make(files)
        cache = again.vhost.context.id_caches.get("q")
        has_id = cache is not None and len(cache.ids()) == 1
        assert has_id == (again.declare() == 1), length
        found.add(has_id)
    assert found == {False, True}


def _end(data: bytes) -> int:
    return len(data.rstrip(b"\0"))


def test_a_reader_that_does_not_know_the_record_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older broker: messages are as they were, ids are forgotten."""
    desk = make()
    desk.declare()
    send(desk, "one", "A")
    init = Replay.__init__

    def older(self: Replay, *arguments: Any) -> None:
        init(self, *arguments)
        del self._handlers[IDS_SEEN]

    monkeypatch.setattr(Replay, "__init__", older)
    desk = cut(desk)
    send(desk, "one", "B")
    assert drained(desk) == "AB"


def test_long_ids_are_known_by_their_hash() -> None:
    """They take no more room than others."""
    desk = make()
    desk.declare()
    for last in "xyx":
        send(desk, "a" * 60_000 + last, last)
    assert len(records(desk)) == 2 and all(len(record.heap) < 200 for record in records(desk))
    desk = cut(desk)
    send(desk, "a" * 60_000 + "y", "-")
    assert drained(desk) == "xy"


def test_the_commands_know_the_record() -> None:
    """`journal verify` reads it, `journal cat` shows it."""
    desk = make()
    desk.declare()
    send(desk, "one")
    reader = JournalReader(PATH, desk.files)
    (shown,) = (
        record_fields(lsn, record, reader.names)
        for lsn, record in reader.records(trust_open=True)
        if record.kind == IDS_SEEN
    )
    assert (shown["kind"], shown["vhost"], shown["address"], shown["id_cache_size"]) == ("ids_seen", "/", "q", 20_000)
    assert shown["ids"] == [{"id": "('string', b'one')", "msg_id": 1}]
    desk.journal.turns.append(Record(IDS_SEEN, arg=1, heap=b"\1\0\7\0cut short"))
    desk.settle()
    (fault,) = verify(PATH, desk.files).faults[:1]
    assert "ids seen" in fault.what


def test_the_layout_of_the_heap() -> None:
    """As the page of the format has it; what is cut short or newer is refused."""
    seen = IdsSeen("q", 9, [("one", 2), ("ü", 3)])
    octets = "01 00 0100 09000000 02000000 71 0200000000000000 0300 6f6e65 0300000000000000 0200 c3bc"
    assert encode_ids_seen(seen).hex() == octets.replace(" ", "")
    assert decode_ids_seen(encode_ids_seen(seen)) == seen
    for heap in (encode_ids_seen(seen)[:-1], b"\2" + bytes(40), b""):
        with pytest.raises(BadRecord):
            decode_ids_seen(heap)


def test_replay_keeps_no_more_than_is_remembered() -> None:
    """However many records there are since the last checkpoint, and in whatever order."""
    recovered = RecoveredIds()
    for number in range(1, 5 * SPARE):
        recovered.add(IdsSeen("q", 10, [(str(number), number)]))
        assert len(recovered) <= SPARE + 20
    recovered.add(IdsSeen("q", 10, [("old", 1)]))
    last = 5 * SPARE - 1
    assert list(recovered.newest(3)) == [(str(number), number) for number in range(last - 2, last + 1)]


class VirtualHosts(Harness):
    """Each virtual host has a queue `q`."""

    def make(self, name: str) -> None:
        self.broker.virtual_hosts.create(name).queues.declare("q", client=None, durable=True)
        self.settle()

    def send(self, host: str, id_: str, body: str) -> None:
        """Publish a persistent message with a duplicate id."""
        client = self.broker.connections.open(host, self.user, name=host, flush=lambda: None)
        summary, contents = messages([body], {"delivery_mode": 2, "headers": {"_AMQ_DUPL_ID": id_}})
        route = client.vhost.router.route("", "q", self.user)
        client.open_session().publish(route, self.envelope("", "q", summary), contents, mandatory=False)
        client.close()
        self.settle()

    def bodies_of(self, host: str) -> list[bytes]:
        return [one.body for one in self.broker.virtual_hosts[host].queues.named("q").messages()]


def test_a_new_virtual_host_does_not_remember_ids_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint states these while the old one is deleted, and another one of the same name is made."""
    monkeypatch.setattr(duplicate_ids, "RECORDED_SLICE", 1)
    world = VirtualHosts(journal=SimulatedFiles())
    world.make("v")
    for id_ in "123":
        world.send("v", id_, id_)
    steps = checkpoint(world.broker, world.journal, world.recorder)
    while not any(record.kind == IDS_SEEN and record.flags & RESTATED for record in world.records()):
        next(steps)
        world.write_journal()
    world.broker.virtual_hosts.delete("v")
    world.settle()
    world.make("v")
    for _ in steps:
        world.write_journal()
    world.settle()
    world.kill()
    for id_ in "123":
        world.send("v", id_, id_)
    assert world.bodies_of("v") == [b"1", b"2", b"3"]
