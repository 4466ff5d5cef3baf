"""Requests to the metrics port: three pages for Prometheus, and liveness and readiness for orchestrators.

Source: management page 12, 20.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from urllib.parse import parse_qsl

from ...engine import Broker
from ..cluster import NOT_LED
from ..http_messages import PARAMETERS_MAX, Answer, Refusal, Request, Work
from ..options import ConsoleOptions
from ..steps import Steps
from .aggregated import aggregated_page
from .exposition import CONTENT_TYPE, encoded
from .facts import MetricsFacts
from .objects import detailed_page, per_object_page

PER_OBJECT, DETAILED = "/metrics/per-object", "/metrics/detailed"

Page = Generator[None, None, list[str]]


@dataclass(slots=True, frozen=True)
class MetricsCall:
    """A request that passed the checks, with the interface of `api.Call`. Either `page` makes the answer, or it has an
    `answer` already.
    """

    request: Request
    page: Callable[[], Page] | None = None
    answer: Answer | None = None

    body_max = 0  # the body is not read

    @property
    def work(self) -> Work:
        """The kind of work, by which concurrent requests are limited."""
        return Work.PROBE if self.page is None else Work.METRICS

    @property
    def reads(self) -> bool:
        """Whether it may be cancelled between two steps."""
        return self.page is not None

    def steps(self, body: bytes) -> Steps:
        """The steps to the answer."""
        if self.page is None:
            return self.answer
        texts = yield from self.page()
        parts = []
        for text in texts:
            parts.append(encoded(text))
            yield
        texts.clear()
        return Answer(200, headers=(CONTENT_TYPE,), body=parts)


class Metrics:
    """Answers requests for the metrics and the health of a broker.

    `require_monitor`: raises Refusal unless the user of a request may see the names of objects.
    """

    def __init__(
        self,
        broker: Callable[[], Broker],
        options: Callable[[], ConsoleOptions],
        facts: MetricsFacts,
        require_monitor: Callable[[Request], None],
    ) -> None:
        self._broker = broker
        self._options = options
        self._facts = facts
        self._require_monitor = require_monitor

    def open(self, request: Request) -> MetricsCall:
        """Check a request. Raises: Refusal."""
        path = request.path.removesuffix("/") or "/"
        pages: dict[str, Callable[[], Page]] = {
            "/metrics": lambda: self._aggregated(shows_names=self._may_see_names(request)),
            PER_OBJECT: self._per_object,
            DETAILED: lambda: self._detailed(request),
        }
        health = {"/health/live": self._live, "/health/ready": self._ready}
        if path not in pages and path not in health:
            raise Refusal(404)
        if request.method not in ("GET", "HEAD"):
            raise Refusal(405, headers=(("allow", "HEAD, GET"),))
        if path in health:
            return MetricsCall(request, answer=health[path]())
        if path != "/metrics" and not self._is_for_all(request):
            self._require_monitor(request)
        return MetricsCall(request, pages[path])

    def _is_for_all(self, request: Request) -> bool:
        """Whether a client at this place may see names of objects without a login."""
        return request.peer.is_loopback or self._facts.is_open()

    def _may_see_names(self, request: Request) -> bool:
        if self._is_for_all(request):
            return True
        if "authorization" not in request.headers:
            return False
        try:
            self._require_monitor(request)
        except Refusal:
            return False
        return True

    def _aggregated(self, *, shows_names: bool) -> Page:
        return aggregated_page(self._broker(), self._options(), self._facts, shows_names=shows_names)

    def _per_object(self) -> Page:
        return per_object_page(self._broker(), self._options(), self._facts)

    def _detailed(self, request: Request) -> Page:
        """The page with the families and virtual hosts in the query: `?family=...&family=...&vhost=...`."""
        try:
            words = parse_qsl(request.raw_query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
        except ValueError:
            raise Refusal(400, "bad_request", "too many parameters") from None
        families = [value for name, value in words if name == "family"]
        vhosts = [value for name, value in words if name == "vhost"]
        return detailed_page(self._broker(), self._options(), self._facts, families, vhosts)

    def _live(self) -> Answer:
        """Liveness: any answer shows that the event loop runs."""
        return Answer(200, {"status": "ok"})

    def _ready(self) -> Answer:
        """Readiness: whether clients can work. A limit that is reached does not count: clients can wait for room."""
        durability = self._broker().context.storage.durability
        if durability is not None and durability.has_failed:
            reason = "the journal has failed"
            return Answer(503, {"status": "failed", "reason": reason})
        cluster = self._options().cluster()
        if cluster is not None and cluster.leader is None:  # this node led until it was suspended
            return Answer(503, {"status": "failed", "reason": NOT_LED})
        return Answer(200, {"status": "ok"})
