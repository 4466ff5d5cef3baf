"""What a journal holds that not every program knows is said in its directory, before it is there; refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from desk import load
from journal_workload import ID, PATH, Driver
from journal_workload import opened as opened_journal
from simulated_files import SimulatedFiles

from leveret.engine import (
    NATIVE,
    Envelope,
    Field,
    ManualClock,
    PropertySummary,
    encode_header,
    encode_table,
    publish_by_name,
)
from leveret.engine.exchanges.exchange import EXCHANGE_TYPES
from leveret.journal import Declared, ForeignDirectory, JournalOptions, Record, WriterState
from leveret.journal.disk.directory import Directory, read_format
from leveret.journal.format import needs
from leveret.journal.format.errors import Damaged, NewerJournal, UnknownType
from leveret.journal.format.heap import IS_DURABLE, IdsSeen
from leveret.journal.format.needs import KNOWN
from leveret.journal.format.record import DURABLE, PARAMETER, QUEUE, VHOST
from leveret.journal.recovery.check import verify
from leveret.journal.recovery.repair import repair
from leveret.serving.composition import Data, DataUnusable, build_broker
from leveret.settings.queue_types import QUEUE_TYPES
from leveret.testing.harness import Harness
from leveret.testing.wire_values import wire_table

LEASED = Declared(QUEUE, IS_DURABLE, "", encode_table({"x-queue-type": Field("S", b"amps")}))
PARAMETER_OF_IT = Declared(PARAMETER, IS_DURABLE, "", b"{}")


def opened(files: SimulatedFiles) -> Driver:
    options = JournalOptions(preallocate_size=0)
    driver = Driver(opened_journal(files, options))
    driver.declare("a")
    return driver


def _leased(driver: Driver) -> None:
    objects = driver.journal.objects
    objects.declared(objects.define(QUEUE, objects.define(VHOST, 0, "/"), "leased"), LEASED)


def _parameter(driver: Driver) -> None:
    objects = driver.journal.objects
    objects.declared(objects.define(PARAMETER, objects.define(VHOST, 0, "/"), "name"), PARAMETER_OF_IT)


def _ids(driver: Driver) -> None:
    objects = driver.journal.objects
    objects.ids_seen(objects.define(VHOST, 0, "/"), IdsSeen("a", 10, [("x", 1)]))


def put_format(files: SimulatedFiles, said: str) -> None:
    files.put(f"{PATH}/format", f'{{"format": "leveret-journal", {said}, "id": "{ID.hex()}"}}'.encode())


def needs_said(files: SimulatedFiles) -> set[str]:
    return set(read_format(PATH, files).needs)


def test_what_every_program_knows_needs_nothing() -> None:
    """Queues and messages: such a journal may be opened by an older program."""
    files = SimulatedFiles()
    driver = opened(files)
    driver.publish([b"x"], "a")
    driver.journal.commit()
    driver.checkpoint()
    assert driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    said = json.loads(files.content(f"{PATH}/format"))
    assert said == {"format": "leveret-journal", "version": 1, "id": ID.hex()}


@pytest.mark.parametrize(
    "append, need",
    [(_leased, needs.LEASED_QUEUES), (_parameter, needs.PARAMETERS), (_ids, needs.DUPLICATE_IDS)],
)
def test_it_is_said_before_the_record_is_there(append: Callable[[Driver], None], need: str) -> None:
    """Whenever the power goes. A program of before refuses any version but 1."""
    files = SimulatedFiles()
    driver = opened(files)
    assert driver.journal.wait(driver.journal.commit())
    seen: list[bool] = []

    def look(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            files.fault = lambda operation, path: None
            said = json.loads(files.power_cut().content(f"{PATH}/format"))
            seen.append(said["version"] == 3 and said["needs"] == [need])
            files.fault = look

    append(driver)
    files.fault = look
    assert driver.journal.wait(driver.journal.commit())
    assert seen and all(seen)
    files.fault = lambda operation, path: None
    driver.journal.close()
    assert need in needs_said(files)
    again = opened(files)
    again.journal.close()
    assert needs_said(files) == {need}


def test_a_leased_queue_and_a_logged_topic_of_a_broker() -> None:
    files = SimulatedFiles()
    text = '[[logged-topic]]\nname = "t"\n[[logged-topic]]\nname = "q"\n'
    text += '[[queue]]\nname = "q"\ntype = "amps"\nunderlying-topic = "t"\n'
    built = build_broker(load(text), ManualClock(), lambda: 0.5, Data("data", holds_reserve=False, files=files))
    content = NATIVE.join(encode_header(1, {"delivery_mode": 2}), b"x")
    envelope = Envelope("", "t", PropertySummary(persistent=True))
    publish_by_name(built.broker.virtual_hosts["/"].context, envelope, [content])
    while built.broker.end_turn():
        pass
    built.close()
    assert read_format("data", files).needs == {needs.LEASED_QUEUES, needs.LOGGED_TOPICS}


def test_a_journal_of_before_that_did_not_say_so() -> None:
    """It is said with the next start."""
    files = SimulatedFiles()
    driver = opened(files)
    _leased(driver)
    assert driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    put_format(files, '"version": 1')
    again = opened(files).journal
    assert again.wait(again.commit())
    assert needs_said(files) == {needs.LEASED_QUEUES}


def test_queues_of_a_type_that_no_package_adds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name: as classic queues they would have another order, and no leases."""
    files = SimulatedFiles()
    driver = opened(files)
    _leased(driver)
    assert driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    monkeypatch.delitem(QUEUE_TYPES, "amps")
    with pytest.raises(UnknownType, match="queue 'leased' in virtual host '/' is of type 'amps', .* adds; nothing"):
        opened(files)


def test_exchanges_of_a_type_that_no_package_adds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, and the journal is as before: also the type by which a delayed exchange routes."""
    files = SimulatedFiles()
    world = Harness(journal=files)
    world.vhost.exchanges.declare("dice", "x-random", durable=True)
    arguments = wire_table({"x-delayed-type": "x-random"})
    world.vhost.exchanges.declare("later", "x-delayed-message", durable=True, arguments=arguments)
    world.end_turn()
    world.close()
    monkeypatch.delitem(EXCHANGE_TYPES, "x-random")
    before = {path: files.content(path) for path in files.names_now}
    with pytest.raises(UnknownType, match="exchange 'dice' in virtual host '/' is of type 'x-random'.* 1 more such"):
        Harness(journal=files)
    assert {path: files.content(path) for path in files.names_now} == before


def test_a_newer_journal_is_refused_by_name() -> None:
    """By whatever opens it; nothing is changed."""
    for said, named in (
        ('"version": 3, "needs": ["leased queues", "time travel"]', "time travel"),
        ('"version": 4', "journal format 4, this program reads 1 to 3"),
        ('"version": 9', "journal format 9"),
    ):
        files = SimulatedFiles()
        opened(files).journal.close()
        files.put(
            f"{PATH}/format", b'{"format": "leveret-journal", %s, "id": "%s"}' % (said.encode(), ID.hex().encode())
        )
        before = {path: files.content(path) for path in files.names_now}
        for open_it in (
            lambda files: opened(files),
            lambda files: Directory.open(PATH, files),
            lambda files: verify(PATH, files),
            lambda files: repair(PATH, "out", files),
        ):
            with pytest.raises(NewerJournal, match=named):
                open_it(files)
        with pytest.raises(DataUnusable, match=named):
            build_broker(load(""), ManualClock(), lambda: 0.5, Data(PATH, files=files))
        assert {path: files.content(path) for path in files.names_now} == before


def test_needs_that_are_none() -> None:
    """Damage, and not a newer program."""
    for said in ('"version": 3', '"version": 3, "needs": 7'):
        files = SimulatedFiles()
        files.put(
            f"{PATH}/format", b'{"format": "leveret-journal", %s, "id": "%s"}' % (said.encode(), ID.hex().encode())
        )
        with pytest.raises(ForeignDirectory, match="not a journal's"):
            opened(files)


def test_needs_that_come_one_after_the_other_are_all_said() -> None:
    """Also if a start lies between; what is said already is not written again."""
    files = SimulatedFiles()
    for need in (needs.LEASED_QUEUES, needs.DUPLICATE_IDS):
        directory = Directory.open(PATH, files)
        directory.add_needs({need})
        directory.add_needs({needs.LOGGED_TOPICS})
        assert directory.needs == read_format(PATH, files).needs >= {need, needs.LOGGED_TOPICS}
        directory.close()
    assert read_format(PATH, files).needs == {needs.LEASED_QUEUES, needs.DUPLICATE_IDS, needs.LOGGED_TOPICS}


def test_a_repaired_journal_needs_the_same() -> None:
    """Also where its start would not find out."""
    files = SimulatedFiles()
    driver = opened(files)
    _leased(driver)
    assert driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    repair(PATH, "out", files)
    assert read_format("out", files).needs == {needs.LEASED_QUEUES}


@pytest.mark.parametrize("operation", ["open", "write", "truncate", "rename"])
def test_no_room_to_say_it(operation: str) -> None:
    """As with any other write: publishers are refused until there is room."""
    files = SimulatedFiles()
    driver = opened(files)
    assert driver.journal.wait(driver.journal.commit())

    def fail(asked: str, path: str) -> None:
        if asked == operation and path.endswith("format.new"):
            raise OSError(28, "ordered", path)

    files.fault = fail
    _leased(driver)
    assert not driver.journal.wait(driver.journal.commit())
    assert driver.journal.state is WriterState.FULL and needs_said(files) == set()
    files.fault = lambda operation, path: None
    driver.journal.retry()
    assert driver.journal.wait(driver.journal.next_lsn)
    assert needs_said(files.crash()) == {needs.LEASED_QUEUES}


@pytest.mark.parametrize("flags", [DURABLE, 0])
def test_a_kind_of_record_that_is_not_known(flags: int) -> None:
    """What recovery would have to restore is not passed over; history is."""
    files = SimulatedFiles()
    driver = opened(files)
    driver.journal.turns.append(Record(99, flags=flags))
    assert driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    if flags:
        with pytest.raises(Damaged, match="kind 99, which this program does not know"):
            opened(files)
    else:
        opened(files)


def test_all_that_is_known_has_a_name() -> None:
    """And a row on the format's page."""
    named = {value for name, value in vars(needs).items() if name.isupper() and isinstance(value, str)}
    assert named == KNOWN
