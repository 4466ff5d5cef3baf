"""A report of everything that one can show, with names that want to be more than texts."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

from leveret.pipeline.report.model import Part, Report

HOSTILE = "</script><img src=x onerror=document.title='owned'>\u202e"
BEGIN = int(datetime(2026, 11, 21, 22, tzinfo=UTC).timestamp())
MINUTE, WINDOWS = 60, 240


def at(window: int) -> datetime:
    """When a window begins."""
    return datetime.fromtimestamp(BEGIN + window * MINUTE, UTC)


def sample_report(queues: int = 5, *, of_node: bool = False) -> Report:
    """Of four hours in two virtual hosts. `of_node`: as one of several nodes."""
    chance = random.Random(7)
    names = ["orders", "mail", HOSTILE, "invoices.overdue.with.a.name.that.does.not.end.soon", "audit", "a", "b", "c"]
    keys = [("/" if place != 3 else "billing", name) for place, name in enumerate(names[:queues])]
    depth: list[dict[str, Any]] = []
    latency: list[dict[str, Any]] = []
    losses: list[dict[str, Any]] = []
    for place, (vhost, queue) in enumerate(keys):
        for window in range(place * 12, WINDOWS - 20 * place):
            key = {"vhost": vhost, "queue": queue, "window_start": at(window), "window_s": MINUTE}
            wave = 1 + math.sin(window / (11 + 5 * place)) + chance.random() / 3
            most = int(wave * (4000 >> place)) + (9000 if (place, window) == (1, 101) else 0)
            depth.append({
                **key, "depth_end": most // 2, "depth_min": most // 3, "depth_max": most,
                "in_per_s": wave * 40 / (place + 1), "out_per_s": wave * 39 / (place + 1), "bytes_end": most * 512,
            })  # fmt: skip
            whole = {}
            for what, ms in (("queue", 40 * wave), ("service", 7.5), ("e2e", 40 * wave + 8)):
                spread = {"p50": 1, "p95": 3, "p99": 9, "p999": 30}
                whole |= {f"{what}_ms_{point}": ms * times * (place + 1) for point, times in spread.items()}
            latency.append({**key, "n": int(wave * 2000), **whole})
            if chance.random() < 0.2 and place < 3:
                losses.append({
                    **key, "cause": ("evicted", "expired", "dropped")[place], "n": chance.randrange(1, 400),
                    "bytes": 9000, "age_ms_p50": 1.0, "age_ms_p99": 2.0, "age_ms_max": 90_000.0 * (place + 1),
                })  # fmt: skip
    totals = [
        {"vhost": vhost, "queue": queue, "cause": ("evicted", "expired", "dropped")[place],
         "n": sum(row["n"] for row in losses if row["queue"] == queue), "bytes": 90_000,
         "moved": 1, "refused": 0, "discarded": 2, "age_ms_max": 90_000.0}
        for place, (vhost, queue) in enumerate(keys[:3])
    ]  # fmt: skip
    poison = [
        {"vhost": keys[place % queues][0], "queue": keys[place % queues][1], "msg_id": 1000 + place,
         "attempts": 9 - place, "requeues": 8 - place, "leases_ended": place % 2, "dead": place < 2,
         "poison": place < 4, "backoff_ms": [500, 1000 << place],
         "last_consumer": HOSTILE if place == 1 else "worker-1", "last_reason": "rejected", "last_ts": at(100)}
        for place in range(6)
    ]  # fmt: skip
    attempts = [
        {"vhost": vhost, "queue": queue, "deliveries": n, "n": int(3000 / n ** (1 + place))}
        for place, (vhost, queue) in enumerate(keys)
        for n in range(1, 12)
    ]
    fairness = [
        {"vhost": keys[place // 3][0], "queue": keys[place // 3][1], "consumer": f"worker-{place}", "conn_id": place,
         "connection": HOSTILE if place == 2 else f"app {place}", "deliveries": 9000 // (place + 1),
         "share": (0.55, 0.33, 0.12)[place % 3], "acked": 100, "leases_ended": 7 * (place == 4),
         "service_ms_p50": 5.5, "service_ms_p95": 1234.5, "service_ms_max": 9000.0}
        for place in range(6)
    ]  # fmt: skip
    dead = [
        {"vhost": vhost, "queue": queue, "kind": "dead_lettered", "reason": ("rejected", None)[place],
         "outcome": "arrived", "target": "dlx", "arrived_in": ["dead", HOSTILE][: place + 1], "n": 40 >> place,
         "first_ts": at(3),
         "last_ts": at(90), "attempts_max": 3, "last_consumer": "worker-1", "samples": [1, 2]}
        for place, (vhost, queue) in enumerate(keys[:2])
    ]  # fmt: skip
    faults = [
        {"fault": "lost", "msg_id": 99, "vhost": "/", "queue": HOSTILE, "lsn": 1, "detail": "acked at LSN 7, but ..."}
    ]
    blocked = [
        {"vhost": "/", "conn_id": 7, "connection": HOSTILE, "destination": "orders", "limit": "max-size",
         "since": at(40), "until": at(41), "waited_ms": 61_000}
    ]  # fmt: skip
    examples = [
        {"vhost": vhost, "queue": queue, "why": why, "msg_id": 100 * place + n}
        for place, (vhost, queue) in enumerate(keys)
        for why, most in (("peak", 3), ("slowest", 1))
        for n in range(most)
    ]
    holes = [
        {"journal": "j", "first_lsn": 1000, "last_lsn": 1499, "why": "a damaged block", "segment": "s",
         "file_offset": 0, "octets": 40_000, "before_ts": at(60), "after_ts": at(70)}
    ]  # fmt: skip
    return Report(
        f"leveret-data {HOSTILE}", BEGIN, BEGIN + WINDOWS * MINUTE - 1, MINUTE, keys, 12,
        {"published": 1_234_567, "delivered": 1_250_000, "acknowledged": 1_200_001, "redelivered": 4321,
         "dead-lettered": 60, "lost": 777, "left in queues": 3210},
        notes=["records 1 to 89 were deleted before the first ingest, and are not counted"],
        fates={"acked": 1_200_001, "open": 3210, "expired": 400}, faults=Part(faults, count=1), depth=Part(depth),
        latency=Part(latency), attempts=Part(attempts), poison=Part(poison, count=4321), losses=Part(losses),
        loss_totals=Part(totals), deadletters=Part(dead), fairness=Part(fairness), blocked=Part(blocked),
        examples=Part(examples), holes=Part(holes), trace="leveret pipeline trace --lake '/a lake'",
        of_node={"depth": Part(depth), "latency": Part(latency), "losses": Part(losses)} if of_node else {},
    )  # fmt: skip


def empty_report() -> Report:
    """Of a broker that did nothing, recorded without deliveries."""
    why = 'not recorded; deliveries are in the journal only with [journal] scope = "all"'
    part = Part(why_not=why)
    return Report("leveret-data", BEGIN, BEGIN, 60, [], 0, {}, latency=part, poison=part, fairness=part, blocked=part)
