"""The loads and their goals. Ratios are to RabbitMQ's figure in the same round."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """Bounds on ratios to RabbitMQ; None: none. CPU is the broker's seconds per message."""

    rate_min: float | None = None
    cpu_max: float | None = None
    p50_max: float | None = None
    p99_max: float | None = None

    def __str__(self) -> str:
        parts = [
            f"{name} {bound}"
            for name, bound in (
                ("rate ≥", f"{self.rate_min:g}x" if self.rate_min else ""),
                ("CPU ≤", f"{self.cpu_max:.2f}x" if self.cpu_max else ""),
                ("p50 ≤", f"{self.p50_max:g}x" if self.p50_max else ""),
                ("p99 ≤", f"{self.p99_max:g}x" if self.p99_max else ""),
            )
            if bound
        ]
        return ", ".join(parts) or "none"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load: the generator's flags, and the number of messages of the first, calibrating run.

    `paced` loads last a given time instead of a number of messages; their rate is fixed and not compared.
    """

    name: str
    title: str
    flags: tuple[str, ...]
    count_first: int
    goal: Goal
    paced: bool = False

    @property
    def tells_latency(self) -> bool:
        """Whether its latency means something: messages come at a fixed pace, or a goal asks how long queues get."""
        return self.paced or self.goal.p50_max is not None


CONFIRMED = ("--prefetch", "100", "--confirm", "200", "--size", "1024")

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "unique",
            "1 KiB, headers, own ids in each",
            ("--props", "rich", "--unique", "--size", "1024"),
            50_000,
            Goal(4, 0.12),
        ),
        Scenario(
            "unique-acked",
            "unique, ack each, confirms",
            ("--props", "rich", "--unique", "--ack", "1", *CONFIRMED),
            20_000,
            Goal(4, 0.08, p50_max=1.0, p99_max=2.0),
        ),
        Scenario(
            "unique-stored",
            "unique-acked, persistent (journal: --command)",
            ("--props", "rich", "--unique", "--ack", "1", "--persistent", "--durable", *CONFIRMED),
            10_000,
            Goal(3.5, 0.15),
        ),
        Scenario("mixed", "sizes, keys, exchanges mixed", ("--mixed",), 30_000, Goal(4, 0.14)),
        Scenario("mixed-unique", "mixed, own ids in each", ("--mixed", "--unique"), 30_000, Goal(4, 0.15)),
        Scenario(
            "mixed-acked",
            "mixed, 4 and 4, ack per 10, confirms",
            ("--mixed", "--ack", "10", "--producers", "4", "--consumers", "4", "--prefetch", "100", "--confirm", "200"),
            20_000,
            Goal(4, 0.10, p50_max=1.0),
        ),
        Scenario(
            "many",
            "mixed-unique, 50 queues with 50 and 50",
            (
                *("--mixed", "--unique", "--producers", "50", "--consumers", "50", "--queues", "50"),
                *("--ack", "1", "--prefetch", "20", "--confirm", "50"),
            ),
            20_000,
            Goal(4, 0.10),
        ),
        Scenario("S1-16", "16 B, automatic ack", ("--size", "16"), 100_000, Goal(3, 0.20)),
        Scenario("S1-1k", "1 KiB, automatic ack", ("--size", "1024"), 50_000, Goal(5, 0.17)),
        Scenario("S1-rich", "1 KiB, headers and ids", ("--size", "1024", "--props", "rich"), 50_000, Goal()),
        Scenario("S2", "1 KiB, ack each, confirms", ("--ack", "1", *CONFIRMED), 20_000, Goal(4, 0.16, 1, 2)),
        Scenario(
            "S3",
            "1 KiB persistent, ack each, confirms",
            ("--ack", "1", "--persistent", "--durable", "--prefetch", "200", "--confirm", "200", "--size", "1024"),
            10_000,
            Goal(4, 0.18),
        ),
        Scenario(
            "S4",
            "4 producers, 4 consumers, ack per 10",
            ("--ack", "10", "--producers", "4", "--consumers", "4", *CONFIRMED),
            20_000,
            Goal(4, 0.17, 1, 2),
        ),
        Scenario(
            "S5",
            "1 KiB, fanout to 10 (deliveries)",
            ("--size", "1024", "--fanout", "--queues", "10", "--consumers", "10"),
            5_000,
            Goal(7, 0.11),
        ),
        Scenario(
            "S6",
            "1 KiB at 2,000/s, latency",
            ("--size", "1024", "--rate", "2000"),
            0,
            Goal(cpu_max=0.75, p50_max=1.0, p99_max=1.5),
            paced=True,
        ),
        Scenario(
            "S6c",
            "the same, ack each, confirms",
            ("--rate", "2000", "--ack", "1", *CONFIRMED),
            0,
            Goal(cpu_max=0.75, p50_max=1.0, p99_max=1.5),
            paced=True,
        ),
        Scenario(
            "S7",
            "16 B backlog, fill and drain",
            ("--mode", "backlog", "--confirm", "2000", "--ack", "100", "--prefetch", "1000"),
            20_000,
            Goal(),
        ),
        Scenario("S8", "connect, declare, publish, get, close", ("--mode", "churn-conn"), 100, Goal(rate_min=5)),
    )
}

START_MS_MAX = 200.0
IDLE_RSS_MB_MAX = 35.0
