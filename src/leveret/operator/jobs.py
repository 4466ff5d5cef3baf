"""Jobs: long work on messages that runs while clients are served, at a rate, until it is done or cancelled.

A job works in slices at the ends of turns, and waits for its next slice by a deadline of the broker's clock. Jobs are
in memory: a restart ends them; messages moved until then stay moved. Source: management page 16.
"""

import logging
from collections.abc import Iterator
from typing import Any

from ..engine import MS, Client, Deadline, Moving, QueueGone, Unreadable
from .command_error import CommandError

logger = logging.getLogger("leveret.jobs")

#: Maximum jobs at a time, and ended jobs that are remembered.
RUNNING_MAX, ENDED_MAX = 8, 100
#: A slice of a job with a rate has this part of the messages of a second, rounded down, and at least one message.
SLICES_A_SECOND = 20
#: Shortest and longest wait of a job for room, in ms, before it tries again. Each wait is twice the last one.
RETRY_MS, RETRY_MS_MAX = 100, 5_000
RUNNING, WAITING, DONE, CANCELLED, FAILED = "running", "waiting", "done", "cancelled", "failed"


class Job:
    """One job. `command`: its command's name. `to`: the destination, in words.

    `rate`: messages a second, `limit`: messages at most; None: no limit. `state`: running, waiting (for room), done,
    cancelled or failed.
    """

    def __init__(
        self, id_: int, command: str, moving: Moving, client: Client, *, by: str | None, to: str, rate: int | None,
        limit: int | None,
    ) -> None:  # fmt: skip
        self.id, self.command, self.by, self.to, self.rate, self.limit = id_, command, by, to, rate, limit
        self.moving, self.client = moving, client
        self.state, self.error = RUNNING, ""
        self.started_ms, self.ended_ms = self._clock.wall_ms(), 0
        self._began_ns, self._spent_ns = self._clock.monotonic_ns(), 0
        self._due_ns = self._began_ns
        self._retry_ms = RETRY_MS
        self._deadline: Deadline | None = None

    @property
    def _clock(self) -> Any:
        return self.client.broker.clock

    @property
    def is_over(self) -> bool:
        return self.state in (DONE, CANCELLED, FAILED)

    def begin(self) -> None:
        """Begin to work in slices; the first one runs at the end of this turn."""
        queue = self.moving.queue
        logger.info("job %d: %s %r in %r, %s, by %s", self.id, self.command, queue.name, queue.vhost_name, self.to,
                    self.by or "the broker's operator")  # fmt: skip
        self.client.broker.background.run(self._steps())

    def cancel(self) -> None:
        """Cancel. Moved messages stay moved."""
        if not self.is_over:
            self._end(CANCELLED)

    def row(self) -> dict[str, Any]:
        """The job in JSON. Times in ms since 1970."""
        moving = self.moving
        spent_ns = self._spent_ns if self.is_over else self._clock.monotonic_ns() - self._began_ns
        return {
            "id": self.id,
            "command": self.command,
            "vhost": moving.queue.vhost_name,
            "queue": moving.queue.name,
            "to": self.to,
            "by": self.by,
            "state": self.state,
            "done": moving.done,
            "total": moving.total if self.limit is None else min(self.limit, moving.total),
            "looked_at": moving.looked_at,
            "to_look_at": moving.total,
            "kept": [{"reason": reason, "count": count} for reason, count in moving.kept.items()],
            "rate": self.rate,
            "per_second": round(moving.done / (spent_ns / 1e9), 1) if spent_ns else 0.0,
            "waits_for": moving.waits_for if self.state == WAITING else "",
            "error": self.error,
            "started": self.started_ms,
            "ended": self.ended_ms or None,
        }

    def _steps(self) -> Iterator[None]:
        """Work in slices until the job ends or has to wait."""
        self._deadline = None
        while not self.is_over:
            try:
                is_waiting = self._slice()
            except QueueGone:
                self._fail("the queue was deleted")
            except CommandError as error:
                self._fail(str(error))
            except Unreadable as error:
                self._fail(str(error))
            except Exception:  # an error of ours must not end the turn of a client
                logger.exception("job %d", self.id)
                self._fail("an error of the broker: see its log")
            else:
                if is_waiting:
                    return
                yield

    def _slice(self) -> bool:
        """Do a slice. Returns whether a deadline was set for the next one."""
        moving, rate = self.moving, self.rate
        self._check()
        before = moving.done
        moving.work(1_000_000 if rate is None else max(1, rate // SLICES_A_SECOND))
        if moving.is_done:
            self._end(DONE)
        elif moving.waits_for:
            self.state = WAITING
            self._wait_until(self._clock.monotonic_ns() + self._retry_ms * MS)
            self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)
            return True
        else:
            self.state, self._retry_ms = RUNNING, RETRY_MS
            if rate is not None and moving.done > before:
                now_ns = self._clock.monotonic_ns()
                self._due_ns = max(self._due_ns, now_ns - 1000 * MS) + (moving.done - before) * 1_000_000_000 // rate
                if self._due_ns > now_ns:
                    self._wait_until(self._due_ns)
                    return True
        return False

    def _check(self) -> None:
        """Check that virtual host and user exist, and that the user may still read; take over the user's permissions.

        Raises: CommandError.
        """
        if self.client.host.is_being_deleted:
            raise CommandError("the virtual host was deleted")
        if self.by is not None:
            user = self.client.broker.users.find(self.by)
            if user is None:
                raise CommandError(f"the user {self.by!r} was deleted")
            self.client.user = user
            queue = self.moving.queue
            if not user.may("read", "queue", queue.name, queue.vhost_name):
                raise CommandError(f"the user {self.by!r} may no longer read from the queue")

    def _wait_until(self, due_ns: int) -> None:
        self._deadline = self.client.broker.deadlines.set(
            due_ns, lambda: self.client.broker.background.run(self._steps())
        )

    def _fail(self, error: str) -> None:
        self.error = error
        self._end(FAILED)

    def _end(self, state: str) -> None:
        self.state = state
        self.ended_ms = self._clock.wall_ms()
        self._spent_ns = self._clock.monotonic_ns() - self._began_ns
        self.client.broker.deadlines.cancel(self._deadline)
        logger.info("job %d: %s, %d messages%s", self.id, state, self.moving.done, f": {self.error}" * bool(self.error))


class Jobs:
    """All jobs of one broker, oldest first."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._next_id = 1

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def forget(self) -> None:
        """Cancel and forget all jobs, because the broker is replaced, as after a restart."""
        for job in self:
            job.cancel()
        self._jobs.clear()

    def find(self, id_: int) -> Job:
        """Raises: CommandError."""
        job = self._jobs.get(id_)
        if job is None:
            raise CommandError(f"no job {id_}")
        return job

    def begin(
        self, command: str, moving: Moving, client: Client, *, by: str | None, to: str, rate: int | None,
        limit: int | None,
    ) -> Job:  # fmt: skip
        """Begin a new job. Raises: CommandError (too many, or another one at that queue)."""
        running = [job for job in self if not job.is_over]
        if len(running) >= RUNNING_MAX:
            raise CommandError(f"{RUNNING_MAX} jobs are under way: wait for one, or cancel one")
        other = next((job for job in running if job.moving.queue is moving.queue), None)
        if other is not None:
            raise CommandError(f"job {other.id} is at work in queue {moving.queue.name!r}: wait for it, or cancel it")
        ended = [job.id for job in self if job.is_over]
        for id_ in ended[: max(0, len(ended) - ENDED_MAX + 1)]:
            del self._jobs[id_]
        id_, self._next_id = self._next_id, self._next_id + 1
        job = self._jobs[id_] = Job(id_, command, moving, client, by=by, to=to, rate=rate, limit=limit)
        job.begin()
        return job
