"""The states of a node of a cluster as one table, which docs/states.md shows. Steps that it lacks are not allowed.

Source: docs/cluster.md, the states of a node.
"""

from enum import Enum, auto


class State(Enum):
    """State of a node."""

    __hash__ = object.__hash__

    STARTING = auto()  # clients wait; the journal is open for copying, and nothing is written
    FOLLOWING = auto()  # copies the leader's journal; confirms do not wait for this node
    IN_SYNC = auto()  # like FOLLOWING, but confirms wait for this node: it may lead
    CAMPAIGNING = auto()  # its campaign is sent: it acknowledges nothing
    TAKING_OVER = auto()  # it won: it recovers its journal
    LEADING = auto()
    HELD = auto()  # leads, but publishers are blocked: too few nodes are in sync, or one does not answer
    SUSPENDED = auto()  # perhaps another node leads: nothing is read from clients, nothing is sent
    RESIGNING = auto()  # it closes its broker
    DRAINED = auto()  # copies, and does not campaign until an operator revives it
    REFUSED = auto()  # it is not part of the cluster, for a reason that only an operator can remove


class Step(Enum):
    """Changes of a node's state."""

    __hash__ = object.__hash__

    FOLLOW = auto()  # the cluster has begun, and this node may be part of it
    ENTER = auto()  # this node is in the in-sync set
    LEAVE = auto()  # this node has left the set
    CAMPAIGN = auto()
    WIN = auto()
    LOSE = auto()
    LEAD = auto()  # enough nodes are in sync
    HOLD = auto()
    SUSPEND = auto()
    RESIGN = auto()
    RESTART = auto()  # the old broker is closed, the journal open for copying
    DRAIN = auto()
    REVIVE = auto()
    REFUSE = auto()


S, E = State, Step
_FOLLOWER = {E.DRAIN: S.DRAINED, E.REFUSE: S.REFUSED}

NEXT: dict[State, dict[Step, State]] = {
    S.STARTING: {E.FOLLOW: S.FOLLOWING, E.REFUSE: S.REFUSED},
    S.FOLLOWING: {E.ENTER: S.IN_SYNC, **_FOLLOWER},
    S.IN_SYNC: {E.LEAVE: S.FOLLOWING, E.CAMPAIGN: S.CAMPAIGNING, **_FOLLOWER},
    S.CAMPAIGNING: {E.WIN: S.TAKING_OVER, E.LOSE: S.FOLLOWING},
    S.TAKING_OVER: {E.LEAD: S.LEADING, E.HOLD: S.HELD, E.SUSPEND: S.SUSPENDED, E.RESIGN: S.RESIGNING},
    S.LEADING: {E.HOLD: S.HELD, E.SUSPEND: S.SUSPENDED, E.RESIGN: S.RESIGNING},
    S.HELD: {E.LEAD: S.LEADING, E.SUSPEND: S.SUSPENDED, E.RESIGN: S.RESIGNING},
    S.SUSPENDED: {E.LEAD: S.LEADING, E.HOLD: S.HELD, E.RESIGN: S.RESIGNING},
    S.RESIGNING: {E.RESTART: S.STARTING},
    S.DRAINED: {E.REVIVE: S.FOLLOWING, E.REFUSE: S.REFUSED},
    S.REFUSED: {},
}

#: States in which this node's broker runs.
BROKER_RUNS = frozenset({S.LEADING, S.HELD, S.SUSPENDED})
