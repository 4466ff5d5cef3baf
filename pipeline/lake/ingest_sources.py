"""The sources of an ingest: the journals that `--journal` names, of several brokers and of nodes of clusters.

The value of `--journal` is a directory, NAME=DIR, a directory of data directories, or @FILE, a list of these; there may
be several. The nodes of a cluster have copies of one journal, which are one source. Each node keeps old records only
for its own readers. Of the copies that have the record that the lake needs next, the longest one is read.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...journal import JournalError
from ...journal.disk.directory import FORMAT, find_journal, read_format
from ..reading.arrow_files import locate
from ..reading.positions import JournalPlan, Position
from .ingest import default_node_name
from .nodes import check_name, nodes_of


class Choice(NamedTuple):
    """The copy to read. `place`: its path or URI. `others`: those of the other copies, none of which ends later if
    `is_furthest`.
    """

    place: str
    others: list[str]
    is_furthest: bool


class _Copy(NamedTuple):
    place: str
    first: Position
    end: Position

    def goes_beyond(self, reached: Position | None) -> bool:
        """Whether the copy has records that the lake lacks. `reached`: the position of the lake."""
        return self.end.place > (self.first if reached is None else reached).place


@dataclass(slots=True)
class IngestSource:
    """The journal of a broker or a cluster.

    name: of its node in the lake; "": none was given. directory: of the first copy. copies: paths or URIs of all
    copies.
    """

    name: str
    journal_id: str
    directory: str
    is_cluster: bool = False
    copies: list[str] = field(default_factory=list)

    def choose_copy(self, reached: Position | None) -> Choice:
        """The copy to read next. `reached`: the position of the lake; None: it has nothing of the journal.

        Raises: JournalError, OSError (no copy can be read).
        """
        if len(self.copies) == 1:
            return Choice(self.copies[0], [], is_furthest=True)
        found: list[_Copy] = []
        failure: Exception | None = None
        for place in self.copies:
            try:
                plan = JournalPlan(place, strict=False)
                found.append(_Copy(place, plan.first(), plan.end()))
            except (JournalError, OSError) as error:
                failure = error
        if not found:
            assert failure is not None
            raise failure
        further = [one for one in found if one.goes_beyond(reached)] or found
        least = min(one.first.lsn for one in further)
        following = [one for one in further if reached is not None and one.first.lsn <= reached.lsn + 1]
        # If no copy has the next record, the copy that lacks the fewest is chosen; the ingest may refuse it.
        best = max(following or [one for one in further if one.first.lsn == least], key=lambda one: one.end.place)
        is_furthest = best.end.place == max(one.end.place for one in found)
        return Choice(best.place, [one.place for one in found if one is not best], is_furthest)


def sources_named(given: Sequence[str], *, skips_clashes: bool = False) -> tuple[list[IngestSource], list[str]]:
    """The sources that the values of `--journal` name, and a sentence for each journal that cannot be read.

    Args:   skips_clashes: two journals that cannot both be in the lake become a sentence instead of an error.
    Raises: JournalError, OSError (no journal can be read), ValueError (a journal is named twice; two journals have one
            id or one name).
    """
    found: dict[str, IngestSource] = {}
    places: dict[str, str] = {}
    problems: list[str] = []
    clashing: set[str] = set()
    failure: Exception | None = None

    def refuse(text: str, *journal_ids: str) -> None:
        nonlocal failure
        failure = ValueError(text)
        if not skips_clashes:
            raise failure
        problems.append(text)
        clashing.update(journal_ids)

    for name, where in journal_places(given):
        try:
            files, path = locate(where)
            directory = find_journal(path, files)
            format_ = read_format(directory, files)
        except (JournalError, OSError) as error:
            failure = error
            problems.append(f"{f'node {name}: ' if name else ''}{error}")
            continue
        real = directory if "://" in where else os.path.realpath(directory)
        if real in places:
            refuse(f"{where} and {places[real]} are the same journal: name it once")
            continue
        places[real] = where
        journal_id = format_.journal_id.hex()
        source = found.setdefault(journal_id, IngestSource(name, journal_id, directory))
        if source.copies and not (format_.is_cluster and source.is_cluster):
            refuse(
                f"{where} and {source.copies[0]} have one id, {journal_id}: one is a copy of the other; name the one"
                " that the broker writes",
                journal_id,
            )
        source.is_cluster = format_.is_cluster
        if name and source.name and name != source.name:
            refuse(f"{where} and {source.copies[0]} are nodes of one cluster, {name!r} and {source.name!r}", journal_id)
        source.name = source.name or name
        source.copies.append(where)
    sources = [one for one in found.values() if one.journal_id not in clashing]
    if failure is not None and not sources:
        raise failure
    return sources, problems


def with_names(
    sources: Sequence[IngestSource], lake: str, *, are_several: bool, problems: list[str] | None
) -> Sequence[IngestSource]:
    """Give each source a name, if there are several: its name in the lake, else that of its directory.

    Args:   problems: two sources with one name are left out, and this list gets a sentence; None: that is an error.
    Raises: ValueError (two have the same name), OSError.
    """
    known = {node.journal: node.name for node in nodes_of(lake)}
    if are_several:
        for one in sources:
            one.name = one.name or known.get(one.journal_id) or default_node_name(one.directory)
    by_name: dict[str, IngestSource] = {}
    clashing: set[str] = set()
    for one in sources:
        if one.name and by_name.setdefault(one.name, one) is not one:
            other = by_name[one.name]
            what = "a journal of another cluster" if one.is_cluster or other.is_cluster else "another journal"
            text = (
                f"{one.copies[0]} is {what} than {other.copies[0]}, but both would be node {one.name!r}:"
                " --journal NAME=DIR names them"
            )
            if problems is None:
                raise ValueError(text)
            problems.append(text)
            clashing.add(one.name)
    return [one for one in sources if one.name not in clashing]


def journal_places(given: Iterable[str], depth: int = 0) -> list[tuple[str, str]]:
    """(name or "", path or URI) of each journal that the values of `--journal` name. Raises: OSError, ValueError."""
    found: list[tuple[str, str]] = []
    for word in given:
        if word.startswith("@") and not os.path.exists(word):
            if depth:
                raise ValueError(f"{word}: a list in a list of journals")
            lines = Path(word[1:]).read_text(encoding="utf-8").splitlines()
            found += journal_places([line.strip() for line in lines if line.strip() and line.strip()[0] != "#"], 1)
            continue
        name, equals, where = word.partition("=")
        if not equals or "/" in name or os.path.exists(word):
            name, where = "", word
        else:
            check_name(name)
        found += [(name, one) for one in _journals_in(where)]
    return found


def _journals_in(where: str) -> list[str]:
    """The path itself if it is a journal or a data directory; else the data directories in it."""
    if "://" in where or not os.path.isdir(where) or os.path.exists(os.path.join(find_journal(where), FORMAT)):
        return [where]
    inner = sorted(one.path for one in os.scandir(where) if one.is_dir())
    there = [one for one in inner if os.path.exists(os.path.join(find_journal(one), FORMAT))]
    return there or [where]
