"""The times for which a node waits. Settings of `[cluster]` change some; no confirmed message depends on them."""

from dataclasses import dataclass

MS = 1_000_000
SECOND = 1000 * MS


@dataclass(frozen=True, slots=True)
class Timers:
    """Durations in nanoseconds of the node's monotonic clock."""

    lease_ns: int = 6 * SECOND  # of a node's keys in etcd
    beacon_ns: int = 500 * MS  # between two beacons, and between two reads of etcd while the node needs an answer
    suspend_after_ns: int = 2 * SECOND  # how long a leader serves without a proof that it leads
    ack_deadline_ns: int = 2 * SECOND  # how long a follower may owe an acknowledgement, or be silent
    join_patience_ns: int = 1 * SECOND  # how long a follower may be without a link before it is overdue
    resign_after_ns: int = 2 * SECOND  # how long a better pair must exist before the leader resigns; doubles each time
    refused_within_ns: int = 500 * MS  # after three refused connections within this time a leader is gone
    preferred_first_ns: int = 2 * SECOND  # how long a candidate waits, for each reason to let others go first
    progress_ns: int = 5 * SECOND  # between two writes of the key `agreed`
    clock_difference_ns: int = 60 * SECOND  # a node whose wall clock differs by more lets others campaign first
    grow_within_ns: int = 100 * MS  # a follower at most this far behind may enter the set, for which confirms wait
