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
    join_patience_ns: int = 1 * SECOND  # how long an awaited follower may be without a link
    resign_after_ns: int = 2 * SECOND  # until a leader resigns for two others that reach each other; doubles each time
    refused_within_ns: int = 500 * MS  # three refusals of the leader's link in this time: its process is gone
    preferred_first_ns: int = 2 * SECOND  # how long others wait for the node that was handed the lead
    progress_ns: int = 5 * SECOND  # between two writes of the key `agreed`
    clock_difference_ns: int = 60 * SECOND  # a node whose wall clock differs by more lets others campaign first
    grow_within_ns: int = 100 * MS  # a follower that is at most this far behind may enter the set: confirms wait for it
