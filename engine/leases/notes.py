"""The notes that the journal keeps with the declaration of a leased queue: written with it, and read after a restart.

Source: queues page C.5, C.6; docs/journal-format.md.
"""

from collections.abc import Iterable, Mapping

from ..messages.field_table import Field, FieldTable, integer_of, text_of
from ..queues.queue import Queue
from ..stores.store import ids_in
from .deferred_acks import DeferredAcks
from .owners import BLOCK, Owners
from .state import Leases, leases_of

#: Keys of the notes.
RECOVERY, LAST_ID, DEFERRED = "leveret recovery", "leveret last-id", "leveret notes"
HOSTS, SITES, OWNERS, MOVED = "leveret hosts", "leveret sites", "leveret owners", "leveret transferred"
#: Octets of owners per message above which the owners of gone messages are forgotten.
RUNS_OCTETS = 8


def notes_of(queue: Queue, is_whole: bool) -> FieldTable:
    """The notes of a queue. `is_whole`: for a checkpoint, with what other records have: highest id, owners."""
    leases, notes = leases_of(queue), {}
    if leases.recovered_point:
        notes[RECOVERY] = Field("S", leases.recovered_point.encode())
    if is_whole and leases.last_id:
        notes[LAST_ID] = Field("l", leases.last_id)
    if leases.deferred:
        notes[DEFERRED] = Field("x", leases.deferred.to_octets())
    if leases.hosts is not None and leases.hosts.declaring:
        notes[HOSTS] = Field("S", ",".join(sorted(leases.hosts.declaring)).encode())
    if leases.owners is not None and len(leases.owners.names) > 1:
        notes[SITES] = Field("S", ",".join(leases.owners.names[1:]).encode())
        if is_whole:
            _shorten_runs(leases, leases.owners)
            notes[OWNERS] = Field("x", leases.owners.runs.to_octets())
            notes[MOVED] = Field("x", leases.owners.moved_octets())
    return notes


def _shorten_runs(leases: Leases, owners: Owners) -> None:
    """Forget the owners of messages that are gone. O(messages), but only if most known owners are of such messages."""
    owners.runs.trim(leases.lowest_id())
    queue = leases.queue
    if len(owners.runs) > RUNS_OCTETS * (len(queue.store) + len(queue.scheduled) + len(leases.book) + BLOCK):
        ids = {*ids_in(queue.store), *leases.book.leases.by_id, *(message.id for message in queue.scheduled)}
        owners.runs = owners.runs.of(sorted(ids))


def restore_notes(
    leases: Leases, notes: FieldTable, last_id: int, owners: tuple[Iterable[tuple[int, int]], Mapping[int, int]]
) -> None:
    """Restore the notes of a queue. `last_id`, `owners`: from later records."""
    leases.last_id = max(integer_of(notes, LAST_ID) or 0, last_id)
    leases.recovered_point = text_of(notes, RECOVERY) or ""
    if deferred := _octets(notes.get(DEFERRED)):
        leases.deferred = DeferredAcks(deferred)
    if leases.hosts is not None and (hosts := text_of(notes, HOSTS)) is not None:
        leases.hosts.declaring.update(hosts.split(","))
    if leases.owners is not None:
        names, runs, moved = text_of(notes, SITES), notes.get(OWNERS), notes.get(MOVED)
        leases.owners.set_names(names.split(",") if names is not None else ())
        leases.owners.restore((_octets(runs), _octets(moved)), *owners, leases.last_id)


def _octets(field: Field | None) -> bytes:
    return field.value if field is not None and isinstance(field.value, bytes) else b""
