"""The directory of a journal: its lock, its identity, its files.

`format` (JSON: name of the format, version, journal id), `lock` (locked while a broker runs), `<LSN>.log` (segments),
`readers/` (see readers.py), `reserve` (see reserve.py). The directory of a cluster's node also has `terms` (the term
table), `cut` (records that were cut off) and `probe` (see `PROBE`).
"""

import json
import os
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass, replace

from ..format.errors import ClusterDirectory, DirectoryLocked, ForeignDirectory, JournalError, NewerJournal
from ..format.needs import KNOWN
from ..format.terms import TermTable
from .files import REAL, Files, ReadableFiles, read_file, replace_file
from .readers import READERS
from .reserve import NAME as RESERVE
from .segment import NAME, segment_name, segments_in

FORMAT, LOCK = "format", "lock"
FORMAT_NAME = "leveret-journal"
#: Versions: a journal that every program can read; one in the directory of a node of a cluster; one of no cluster. The
#: second and the third list the features that a program must know.
PLAIN, OF_CLUSTER, WITH_NEEDS = 1, 2, 3
#: Only in the directory of a node: its term table, and a directory with the records that were cut off.
TERMS, CUT = "terms", "cut"
#: A file that a leader of a cluster writes, even before there is a journal, to see whether the disk answers.
PROBE = "probe"
#: Names that may be in a directory in which a journal is made: an interrupted start or a deleted journal left them, or
#: a file system has them at its root. The second set: of a node that has joined no cluster yet.
_NOT_FOREIGN = frozenset({LOCK, READERS, RESERVE, f"{FORMAT}.new", "lost+found"})
_OF_EMPTY_NODE = frozenset({TERMS, f"{TERMS}.new", CUT, PROBE})


@dataclass(slots=True, frozen=True)
class Format:
    """The file `format`: the journal's id, and the features that a program must know to open it.

    `is_cluster`: the directory is that of a node of a cluster.
    """

    journal_id: bytes
    needs: frozenset[str] = frozenset()
    is_cluster: bool = False

    @property
    def unknown(self) -> str:
        """Features that this program does not know, in words; "": it knows all."""
        return " and ".join(sorted(self.needs - KNOWN))

    @property
    def octets(self) -> bytes:
        """Content of the file."""
        version = OF_CLUSTER if self.is_cluster else WITH_NEEDS if self.needs else PLAIN
        fields = {"format": FORMAT_NAME, "version": version, "id": self.journal_id.hex()}
        if version != PLAIN:
            fields["needs"] = sorted(self.needs)
        return json.dumps(fields).encode() + b"\n"


class Directory:
    """A journal's directory, locked for this process until `close`."""

    def __init__(self, files: Files, path: str, format_: Format, lock: int) -> None:
        self.files = files
        self.path = path
        self._format = format_
        self._lock = lock

    @classmethod
    def open(cls, path: str, files: Files = REAL, *, new_id: bytes | None = None) -> "Directory":
        """Lock the directory; make it if it does not exist. `new_id`: of a new journal, 16 octets; random unless given.

        A directory with foreign files in it, and that of a node of a cluster, is left as it is.
        Raises: DirectoryLocked, ForeignDirectory, ClusterDirectory, OSError.
        """
        _refuse_cluster(path, format_at(path, files))
        files.make_directory(path)
        lock = lock_directory(path, files)
        try:
            format_ = format_at(path, files)
            if format_ is None:
                format_ = Format(new_id or os.urandom(16))
                begin_directory(path, format_, files)
            _refuse_cluster(path, format_)
            return cls(files, path, format_, lock)
        except BaseException:
            files.close(lock)
            raise

    @property
    def journal_id(self) -> bytes:
        """The journal's id: 16 octets."""
        return self._format.journal_id

    @property
    def needs(self) -> frozenset[str]:
        """Features that a program must know to open the directory."""
        return self._format.needs

    def add_needs(self, needs: Set[str]) -> None:
        """Add features that a program must know to open the directory, durably; idempotent. Raises: OSError."""
        known = self._format.needs
        if not needs <= known:
            found = replace(self._format, needs=known | needs)
            replace_file(self.files, self.path, FORMAT, found.octets)
            self._format = found

    @property
    def is_of_cluster(self) -> bool:
        """Whether it is the directory of a node of a cluster."""
        return self._format.is_cluster

    @property
    def is_there(self) -> bool:
        """Whether the path still holds a journal. Raises: OSError."""
        return FORMAT in self.files.names(self.path)

    def close(self) -> None:
        """Unlock the directory. Idempotent: the system may have given the handle's number to another file."""
        if self._lock >= 0:
            lock, self._lock = self._lock, -1
            self.files.close(lock)


def lock_directory(path: str, files: Files) -> int:
    """The handle that locks the directory until it is closed. Raises: DirectoryLocked, OSError."""
    lock = files.lock(os.path.join(path, LOCK))
    if lock is None:
        raise DirectoryLocked(f"{path}: another process has this journal open")
    return lock


def begin_directory(path: str, format_: Format, files: Files) -> None:
    """Make a journal's directory of an empty, locked one, durably. Raises: OSError."""
    files.make_directory(os.path.join(path, READERS))
    replace_file(files, path, FORMAT, format_.octets)
    files.sync_directory(os.path.dirname(os.path.abspath(path)))


def format_at(path: str, files: ReadableFiles, *, of_node: bool = False) -> Format | None:
    """The format of the journal at `path`; None: the directory is absent or has no journal. Changes nothing.

    `of_node`: it may have a node's files and unknown features, since a leader's octets will be copied into it.
    Raises: ForeignDirectory (there are other files, segments without `format`, or an invalid `format`), NewerJournal,
        OSError.
    """
    names = files.names(path)
    if FORMAT in names:
        return read_format(path, files, allows_unknown=of_node)
    if any(map(NAME.fullmatch, names)):
        raise ForeignDirectory(f"{path}: there are segments but no file {FORMAT!r}{_way_out(path, files)}")
    known = _NOT_FOREIGN | _OF_EMPTY_NODE if of_node else _NOT_FOREIGN
    foreign = [name for name in names if name not in known]
    if foreign:
        raise ForeignDirectory(
            f"{path}: holds other files ({foreign[0]!r} among them) and no journal; name another directory"
        )
    return None


def _way_out(path: str, files: ReadableFiles) -> str:
    """What to do about a file `format` that is lost or damaged: nothing, if there are no segments either."""
    has_segments = any(map(NAME.fullmatch, files.names(path)))
    return f"; leveret journal repair {path} --out DIRECTORY saves what can be read" if has_segments else ""


def _refuse_cluster(path: str, format_: Format | None) -> None:
    """Raises: ClusterDirectory."""
    if format_ is not None and format_.is_cluster:
        raise ClusterDirectory(
            f"{path}: this is the directory of a node of a cluster, whose other nodes would not get what is written"
            " here: start with a configuration that has its [cluster]; to leave the cluster for good, make a plain"
            f" journal of it: leveret journal repair {path} --out DIRECTORY"
        )


def read_format(path: str, files: ReadableFiles = REAL, *, allows_unknown: bool = False) -> Format:
    """The file `format` of the journal at `path`; nothing is locked or changed.

    `allows_unknown`: in the directory of a node, features that this program does not know are no error.
    Raises: ForeignDirectory, NewerJournal (its version or a feature that it needs is unknown to this program), OSError.
    """
    if FORMAT not in files.names(path):
        raise ForeignDirectory(f"{path}: no journal here (there is no file {FORMAT!r})")
    try:
        fields = json.loads(read_file(files, os.path.join(path, FORMAT)))
        name, version, journal_id = fields["format"], fields["version"], bytes.fromhex(fields["id"])
        needs = frozenset(map(str, fields["needs"])) if version in (OF_CLUSTER, WITH_NEEDS) else frozenset()
    except (ValueError, KeyError, TypeError) as error:
        raise ForeignDirectory(f"{path}: the file {FORMAT!r} is not a journal's{_way_out(path, files)}") from error
    if name != FORMAT_NAME or len(journal_id) != 16:
        raise ForeignDirectory(f"{path}: the file {FORMAT!r} is not a journal's{_way_out(path, files)}")
    if version not in (PLAIN, OF_CLUSTER, WITH_NEEDS):
        raise NewerJournal(f"{path}: journal format {version}, this program reads {PLAIN} to {WITH_NEEDS}")
    found = Format(journal_id, needs, version == OF_CLUSTER)
    if found.unknown and not (allows_unknown and found.is_cluster):
        raise NewerJournal(
            f"{path}: the journal holds {found.unknown}, which this program does not know: start a newer one"
        )
    return found


def read_terms(path: str, files: ReadableFiles = REAL) -> TermTable | None:
    """The term table of a node's directory; None: there is none. Raises: JournalError, OSError."""
    if TERMS not in files.names(path):
        return None
    try:
        return TermTable.from_octets(read_file(files, os.path.join(path, TERMS)))
    except JournalError as error:
        raise JournalError(f"{os.path.join(path, TERMS)}: {error}") from error


def is_of_cluster(path: str, files: ReadableFiles = REAL) -> bool:
    """Whether it is the directory of a node of a cluster. Raises: OSError."""
    with suppress(ForeignDirectory):
        return read_format(path, files, allows_unknown=True).is_cluster
    return False


def find_journal(path: str, files: ReadableFiles = REAL) -> str:
    """The directory of the journal; `path`: that directory, or the broker's data directory above it."""
    inner = os.path.join(path, "journal")
    return inner if FORMAT not in files.names(path) and FORMAT in files.names(inner) else path


def forget_journal(path: str, files: Files = REAL) -> None:
    """Delete the journal at `path`, which is of no cluster, with its readers' offsets; the next `open` makes a new one.

    If interrupted, the rest may be refused as damaged; a second call finishes it. Raises: DirectoryLocked, OSError.
    """
    lock = lock_directory(path, files)
    try:
        for base_lsn in reversed(segments_in(files, path)):
            files.unlink(os.path.join(path, segment_name(base_lsn)))
        readers = os.path.join(path, READERS)
        for name in files.names(readers):
            files.unlink(os.path.join(readers, name))
        for name in (RESERVE, FORMAT):
            if name in files.names(path):
                files.unlink(os.path.join(path, name))
        files.sync_directory(path)
    finally:
        files.close(lock)
