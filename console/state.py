"""The state that all connections of a console share: the API, the metrics, and the limits on concurrent work.

This module is loaded with the first connection. Source: management page 12.3, 20.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol

import trio

from ..engine import Broker
from .api import Api, Call
from .http_messages import Answer, Refusal, Request, Work, existing, not_authorised
from .metrics.facts import MetricsFacts
from .options import ConsoleOptions
from .permissions import is_monitor
from .routes import routes_with
from .sampler import Sampler
from .static_pages import StaticPages

if TYPE_CHECKING:
    from .metrics.requests import Metrics, MetricsCall

#: Maximum concurrent requests to the API, health checks, and pages of metrics.
REQUESTS_MAX, PROBES_MAX, METRICS_MAX = 10, 10, 4


class Runtime(Protocol):
    """The services of `src/leveret/serving` that the console uses."""

    broker: Broker
    has_resigned: bool

    def end_turn(self) -> None:
        """Dispatch and flush at the end of a turn. Unfinished work continues soon after."""

    async def wait_while_suspended(self) -> None:
        """Wait until clients may be read from and sent to."""


class ConsoleState:
    """The shared state of a console's connections: the API, the metrics, and counts of concurrent work."""

    def __init__(
        self,
        runtime: Runtime,
        options: Callable[[], ConsoleOptions],
        sampler: Sampler,
        facts: MetricsFacts | None = None,
    ) -> None:
        self.runtime = runtime
        self.options = options
        self.api = Api(lambda: runtime.broker, options, routes_with(options().control.routes()), StaticPages(), sampler)
        self._facts = self.api.facts = facts
        self._metrics: Metrics | None = None
        self._at_work = dict.fromkeys(Work, 0)
        self.streams = 0
        self.requests = 0  # those that were read and are not answered yet
        self._unfinished = 0  # octets of the bodies that are being read
        self.turn = trio.Lock()  # held during a step, so that connections take turns

    # -- requests ----------------------------------------------------------------------------------------------------

    @property
    def metrics(self) -> "Metrics":
        """The metrics, made on first use. Raises: Refusal, if they are off."""
        facts = existing(self._facts)
        if self._metrics is None:
            from .metrics.requests import Metrics  # loaded at the first scrape

            self._metrics = Metrics(lambda: self.runtime.broker, self.options, facts, self._require_monitor)
        return self._metrics

    def _require_monitor(self, request: Request) -> None:
        """Check that the user of a request is a monitor. Raises: Refusal."""
        if not is_monitor(self.api.logins.log_in(request.headers.get("authorization"), request.peer)):
            raise not_authorised("Not monitor user")

    def open(self, request: Request) -> "Call | MetricsCall":
        """Check a request to the console's port, where metrics need a login. Raises: Refusal."""
        if not request.path.startswith(("/metrics", "/health/")):
            return self.api.open(request)
        call = self.open_metrics(request)
        if request.path.startswith("/metrics"):
            self._require_monitor(request)
        return call

    def open_metrics(self, request: Request) -> "MetricsCall":
        """Check a request to the metrics port. Raises: Refusal."""
        self.api.check_host(request.headers.get("host", ""), self.options())
        return self.metrics.open(request)

    # -- limits ------------------------------------------------------------------------------------------------------

    @contextmanager
    def at_work(self, work: Work) -> Iterator[None]:
        """Count a request while it is answered. Raises: Refusal, if too many of its kind are being answered."""
        if self._at_work[work] >= {Work.REQUEST: REQUESTS_MAX, Work.METRICS: METRICS_MAX, Work.PROBE: PROBES_MAX}[work]:
            raise Refusal(503, "busy", "too many requests at once", (("retry-after", "1"),))
        self._at_work[work] += 1
        try:
            yield
        finally:
            self._at_work[work] -= 1

    def add_unfinished(self, octets: int) -> None:
        """Count octets of a body that is being read; negative ones when it is complete.

        Raises: Refusal, if all unfinished bodies together are too large.
        """
        self._unfinished += octets
        if octets > 0 and self._unfinished > REQUESTS_MAX * self.options().body_max:
            raise Refusal(503, "busy", "too many long bodies at once", (("retry-after", "5"),))

    async def wait_for_leadership(self) -> None:
        """Wait while the broker is suspended. Raises: Refusal, if the node has resigned: another one may lead."""
        await self.runtime.wait_while_suspended()
        if self.runtime.has_resigned:
            raise Refusal(503, "not_leading", "this node no longer leads", (("retry-after", "1"),))

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count a request until its answer is sent."""
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Count a stream while it is sent."""
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1


async def in_turns(steps: Generator[None, None, Answer], turn: trio.Lock, end_turn: Callable[[], None]) -> Answer:
    """Take the steps to an answer, in turns with those to other answers. End the broker's turn after each step.

    So other tasks wait for at most one step, whatever the number of requests. Cancellation takes effect between two
    steps. Raises: as the steps do.
    """
    with closing(steps):
        while True:
            async with turn:
                try:
                    next(steps)
                except StopIteration as end:
                    answer: Answer = end.value
                    return answer
                finally:
                    end_turn()
