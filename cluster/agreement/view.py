"""The keys of a cluster in etcd at one revision, and transactions that change them.

Values are frozen and compare by content. The coordinator encodes them.
Source: docs/cluster.md, the keys of a cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

#: Keys that transactions guard and write, relative to the cluster's prefix.
JOURNAL, INSYNC, LEADER, AGREED, PREFERRED = "journal", "insync", "leader", "agreed", "preferred"
#: A node's own key is this prefix and the node's name.
NODE = "node/"


@dataclass(frozen=True, slots=True)
class InSync:
    """The in-sync set: the nodes that have everything agreed. No other node may lead."""

    term: int
    nodes: frozenset[bytes]  # their ids
    agreed: int  # agreed LSN when the set was last changed
    level: int = 0  # of the journal: leaders write only what programs of this level can read; older ones do not lead
    revision: int = 0  # mod_revision of the key; 0 in a value that is to be written


@dataclass(frozen=True, slots=True)
class Leader:
    """The key `leader`, under that node's lease. It is written once in a term, so its revision identifies the term."""

    term: int
    node_id: bytes
    name: str
    address: str  # where its link listens, `HOST:PORT`
    revision: int = 0


@dataclass(frozen=True, slots=True)
class AgreedKey:
    """The agreed LSN that the leader of `term` last wrote. A journal must reach it before its node may lead."""

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
    """Whether two configurations are known to differ. A fingerprint is `FORM-DIGEST`; a release may have its own form.

    Fingerprints of different forms, or without a form, cannot be compared.
    """
    return "-" in one and one != other and one.partition("-")[0] == other.partition("-")[0]


@dataclass(frozen=True, slots=True)
class View:
    """All keys of a cluster at one revision. None: the key is absent."""

    revision: int
    journal: bytes | None = None
    insync: InSync | None = None
    leader: Leader | None = None
    agreed: AgreedKey | None = None
    preferred: bytes | None = None  # id of the node that should campaign first
    nodes: tuple[NodeKey, ...] = ()  # by name

    @property
    def node_ids(self) -> frozenset[bytes]:
        """The ids of all registered nodes."""
        return frozenset(one.node_id for one in self.nodes)

    def node_named(self, name: str) -> NodeKey | None:
        """The registration under a name."""
        return next((one for one in self.nodes if one.name == name), None)

    def node_with_id(self, node_id: bytes) -> NodeKey | None:
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


#: The values of the keys `insync`, `leader` and `agreed`; octets: an id, the value of `journal` and `preferred`.
Value = InSync | Leader | AgreedKey | bytes


@dataclass(frozen=True, slots=True)
class Transaction:
    """Changes of keys, all made if each guarded key still has the given revision; otherwise none is.

    A guard of 0: the key must be absent. `leader` is put under a new lease, `preferred` under one of ten seconds, the
    other keys under none. Values in `puts` have revision 0.
    """

    purpose: Purpose
    guards: tuple[tuple[str, int], ...]  # key, mod_revision
    puts: tuple[tuple[str, Value], ...] = ()
    deletes: tuple[str, ...] = ()

    def put(self, key: str) -> Value:
        """What is written under a key. Raises: KeyError."""
        return dict(self.puts)[key]

    def fits(self, revisions: Mapping[str, int]) -> bool:
        """Whether all guards hold, given the revisions of the keys that exist."""
        return all(revisions.get(key, 0) == revision for key, revision in self.guards)


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """This node, as its configuration and its directory say."""

    name: str
    node_id: bytes
    link: str
    level: int = 0
    min_in_sync: int = 2  # the number of nodes that must have what is confirmed
    names: frozenset[str] = frozenset()  # all nodes that the configuration names
    new_journal_id: bytes = b""  # random: the journal's id if this node begins the cluster with an empty directory
    unknown: str = ""  # features in its journal that its program does not know, in words
