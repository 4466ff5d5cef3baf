"""What the report says, in plain values: whoever computed them, the page shows the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: A row of a job's table (jobs/outputs.py), by column.
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a section. `why_not`: why there are none that mean anything (such as what was not recorded).

    `count`: how many there are if not all are here.
    """

    rows: Sequence[Row] = ()
    why_not: str | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """`begin`, `end`: seconds since 1970 of the first and last event. `window_s`: of all series, aligned to seconds.

    `queues`: those that are drawn, as (virtual host, queue), most messages first, of `queue_count`. Parts:

    - `faults`: of the audit, FAULTS; `fates`: how many messages, by fate
    - `depth`, `latency`: the rows of the queues that are drawn, DEPTH and LATENCY
    - `attempts`: vhost, queue, attempts, n: messages that were delivered so often
    - `poison`: REDELIVERY, poison first
    - `losses`: LOSS of the queues that are drawn; `loss_totals`: vhost, queue, cause, n, bytes, moved, refused,
      discarded, age_ms_max of all
    - `deadletters`, `fairness`, `blocked`: as the jobs of these names
    """

    source: str
    begin: int
    end: int
    window_s: int
    queues: Sequence[tuple[str, str]]
    queue_count: int
    totals: Mapping[str, int]
    notes: Sequence[str] = ()
    fates: Mapping[str, int] = field(default_factory=dict)
    faults: Part = Part()
    depth: Part = Part()
    latency: Part = Part()
    attempts: Part = Part()
    poison: Part = Part()
    losses: Part = Part()
    loss_totals: Part = Part()
    deadletters: Part = Part()
    fairness: Part = Part()
    blocked: Part = Part()
