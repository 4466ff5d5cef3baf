"""Health checks of RabbitMQ's HTTP API on a node that does not lead: such a node has no users, so it asks for none."""

import json
from collections.abc import Callable
from http import HTTPStatus

from ..console.dispatcher import Dispatcher, Route
from ..console.encoding import encoded
from ..console.health_checks import CHECKS, Subject, answer_of, node_check
from ..console.node_facts import Certificate
from ..operator.steps import finished
from .node_report import NodeReport
from .process_facts import host_facts_of
from .runtime import SystemClock

PREFIX = "/api/"


class NodeChecks:
    """The health checks of this node. `data`: the directory of the journal."""

    def __init__(self, report: NodeReport, data: str, certificates: Callable[[], list[Certificate]]) -> None:
        self._report = report
        self._data = data
        self._certificates = certificates
        self._checks = {f"health/checks/{path}": check for path, check in CHECKS.items()}
        self._checks |= {"healthchecks/node": node_check, "healthchecks/node/N": node_check}
        self._dispatcher = Dispatcher()
        self._dispatcher.add([Route(path, {}) for path in self._checks])

    def obstacle(self) -> str:
        """The reason why clients that connect to this node now are not served; "": they are."""
        status, body = self.answer(f"{PREFIX}health/checks/ready-to-serve-clients", is_detailed=True)
        return "" if status == HTTPStatus.OK else str(json.loads(body)["reason"])

    def answer(self, path: str, *, is_detailed: bool) -> tuple[int, bytes]:
        """Status and JSON of a check. `path`: absolute and percent-encoded.

        Without details the JSON only says whether the check failed: details have ports, paths and names of nodes.
        """
        found = self._dispatcher.find(path.removeprefix(PREFIX))
        facts = self._report.facts()
        if found is None or found[1].get("N", facts.own) not in facts.by_name:
            return 404, encoded({"error": "Object Not Found", "reason": "Not Found"})
        route, names = found
        node = names.get("N", facts.own)
        own = facts.by_name[node]
        subject = Subject(
            node,
            lambda: own.host or host_facts_of(self._data),
            lambda: own.listeners,
            self._certificates,
            SystemClock.wall_ms,
            self._report.alarms,
            facts,
        )
        answer = finished(answer_of(self._checks[route.pattern], subject, names))
        value = answer.value
        if not is_detailed and "status" in value:
            value = {"status": value["status"]}
        return answer.status, encoded(value)
