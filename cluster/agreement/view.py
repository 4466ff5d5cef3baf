"""The keys of a cluster in etcd, as one view of one revision, and transactions that change them.

Values are frozen and compare by content. The coordinator encodes them; nothing here knows how.
Source: docs/cluster.md, the keys of a cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

#: Keys that transactions guard and write, relative to the cluster's prefix.
JOURNAL, INSYNC, LEADER, AGREED, PREFERRED = "journal", "insync", "leader", "agreed", "preferred"
#: A node's own key is this and its name.
NODE = "node/"


@dataclass(frozen=True, slots=True)
class InSync:
    """The in-sync set: the nodes that have everything agreed, and alone may lead."""

    term: int
    nodes: frozenset[bytes]  # their ids
    agreed: int  # agreed LSN when the set was last changed
    level: int = 0  # of the journal: leaders write what programs of this level read; a node below it does not lead
    revision: int = 0  # mod_revision of the key; 0 in a value that is to be written


@dataclass(frozen=True, slots=True)
class Leader:
    """The node that leads, under its lease. Written once a term: its revision names the term."""

    term: int
    node_id: bytes
    name: str
    address: str  # where its link listens, `HOST:PORT`
    revision: int = 0


@dataclass(frozen=True, slots=True)
class AgreedKey:
    """An agreed LSN as the leader of `term` last wrote it: what a journal must reach before its node may lead."""

    term: int
    lsn: int
    revision: int = 0


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A node that runs, as it registered itself under its lease."""

    name: str
    node_id: bytes
    link: str  # address of its link, `HOST:PORT`
    journal: bytes | None = None  # id of its journal; None: its directory is empty
    term: int = 0  # the last one of its term table
    end: int = 0  # LSN behind its last fsynced record
    level: int = 0  # of the journal's format: what it can read
    version: str = ""
    fingerprint: str = ""  # of its configuration
    is_drained: bool = False
    reaches: frozenset[str] = frozenset()  # names of the nodes whose links it reaches
    addresses: tuple[tuple[str, str], ...] = ()  # of its listeners for clients: (kind, `HOST:PORT`)


def fingerprints_differ(one: str, other: str) -> bool:
    """Whether two configurations are known to differ: fingerprints `FORM-DIGEST` of two forms, as those of two
    releases, tell nothing; nor does one of a release without forms.
    """
    return "-" in one and one != other and one.partition("-")[0] == other.partition("-")[0]


@dataclass(frozen=True, slots=True)
class View:
    """All keys of the prefix at one revision. None: the key is absent."""

    revision: int
    journal: bytes | None = None
    insync: InSync | None = None
    leader: Leader | None = None
    agreed: AgreedKey | None = None
    preferred: bytes | None = None  # id of the node that should campaign first
    nodes: tuple[NodeKey, ...] = ()  # by name

    def node(self, name: str) -> NodeKey | None:
        """The registration under a name."""
        return next((one for one in self.nodes if one.name == name), None)

    def node_of(self, node_id: bytes) -> NodeKey | None:
        """The registration of a node."""
        return next((one for one in self.nodes if one.node_id == node_id), None)


class Purpose(Enum):
    """What a transaction is for."""

    __hash__ = object.__hash__

    BOOTSTRAP = "bootstrap"
    CAMPAIGN = "campaign"
    SHRINK = "shrink"
    GROW = "grow"
    PROGRESS = "progress"
    HAND_OVER = "hand over"
    FORGET = "forget"
    RECOVER = "recover"


#: What a transaction writes under a key: `insync`, `leader`, `agreed`; ids under `journal` and `preferred`.
Value = InSync | Leader | AgreedKey | bytes


@dataclass(frozen=True, slots=True)
class Transaction:
    """Changes that are made together, or not at all, when each guarded key still has the revision that is given.

    A guard of 0 demands that the key is absent. `leader` is put under a lease made for it, `preferred` under one of ten
    seconds; the other keys have none. A value that is put has revision 0.
    """

    purpose: Purpose
    guards: tuple[tuple[str, int], ...]  # key, mod_revision
    puts: tuple[tuple[str, Value], ...] = ()
    deletes: tuple[str, ...] = ()

    def put(self, key: str) -> Value:
        """What is written under a key. Raises: KeyError."""
        return dict(self.puts)[key]

    def fits(self, revisions: Mapping[str, int]) -> bool:
        """Whether all guards hold, given the revisions of the keys that are there."""
        return all(revisions.get(key, 0) == revision for key, revision in self.guards)


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """This node, as its configuration and its directory say."""

    name: str
    node_id: bytes
    link: str
    level: int = 0
    min_in_sync: int = 2  # nodes that must have what is confirmed
    names: frozenset[str] = frozenset()  # all nodes that the configuration names
    new_journal_id: bytes = b""  # random: the journal's id if this node begins the cluster with an empty directory
    unknown: str = ""  # features in its journal that its program does not know, in words
