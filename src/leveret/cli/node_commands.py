"""Commands about nodes: `leveret ctl cluster ...`, `handover`, `drain`, `revive`, `forget`; and `reload`, `status`.

The leader refuses such a command at once, or begins it. `ctl` then asks for the cluster's state until the command is
done, because a leader that hands over closes the connection. If no node leads, nodes keep their clients waiting;
`ctl` asks such a node for its own state by HTTP.
"""

import http.client
import json
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from ..operator.cluster_waits import etcd_trouble, in_sync_reasons, stop_reasons, why_unserved
from ..operator.command_error import CommandError
from .control_client import TIMEOUT_S, ControlFailed, NotServed, request, target_of, tls_context

NODE_COMMANDS = frozenset({"cluster", "handover", "drain", "revive", "forget", "reload", "status"})
#: Seconds of silence after which a node seems to keep its clients waiting; maximum seconds until it tells its state.
HELD_S = 2.0
#: Seconds between two requests for a cluster's state.
POLL_S = 0.2
#: Minimum seconds that must be left for one more request, which would otherwise get no answer.
TRY_S = 0.5
_STATE_SIZE_MAX = 1 << 20
#: What the state of a node has. Other servers answer by HTTP, too.
_STATE_KEYS = frozenset({"node", "state", "why"})
#: Command that waits -> the function that gives the reasons why its wait is not over.
_WAITS = {"cluster wait-in-sync": in_sync_reasons, "cluster wait-safe-to-stop": stop_reasons}

Status = dict[str, Any]


def node_state(url: str, timeout_s: float, context: ssl.SSLContext | None = None) -> Status | None:
    """The cluster's state from a node that does not lead; None: there is no such node at the URL.

    Raises: ControlFailed: the node does not tell it to other machines.
    """
    where = target_of(url)
    try:
        opened = http.client.HTTPConnection(where.host, where.port, timeout=timeout_s)
        if where.is_tls:
            context = context or tls_context(None, None, None)
            opened = http.client.HTTPSConnection(where.host, where.port, timeout=timeout_s, context=context)
        with closing(opened) as connection:
            connection.request("GET", "/cluster")
            answer = connection.getresponse()
            found = answer.read(_STATE_SIZE_MAX)
        if answer.status == http.client.UNAUTHORIZED:
            raise ControlFailed(
                f"{where} keeps its clients waiting: no node leads; it tells more only to clients on its own machine"
            )
        state = json.loads(found) if answer.status == http.client.OK else None
        return state if isinstance(state, dict) and state.keys() >= _STATE_KEYS else None
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return None


class NodeCommands:
    """The requests of one command line to a node. `timeout_s`: for the whole command; None: the default."""

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext | None = None,
        timeout_s: float | None = None,
        *,
        ask: Callable[..., Any] = request,
        state: Callable[[str, float], Status | None] | None = None,
        pause: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url, self._context = url, context
        self._request, self._pause, self._clock = ask, pause, clock
        self._state = state or partial(node_state, context=context)
        self._timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        self._deadline = clock() + self._timeout_s

    def run(self, command: str, arguments: dict[str, Any]) -> Any:
        """Run a command, and return its result when it is done. `command`: its words. Raises: ControlFailed."""
        if (reasons_of := _WAITS.get(command)) is not None:
            return self._wait(reasons_of, arguments.get("node"))
        begun = self._ask(command.partition(" ")[0], arguments)
        if command in ("cluster", "cluster differences", "cluster history", "status"):
            return begun
        if command == "reload":
            return self._follow_reload(begun)
        if command == "cluster raise-level":
            return self._follow(begun, lambda status: status["level"] >= begun["level"])
        if command == "forget":
            return self._follow(begun, lambda status: _row(status, begun["node"])["state"] == "absent")
        if command == "revive":
            return self._follow(begun, lambda status: not _row(status, begun["node"]).get("is-drained"))
        if command == "handover" or "from" in begun:
            return self._follow_handover(begun)
        return self._follow(begun, lambda status: _row(status, begun["node"]).get("is-drained"))

    def _ask(self, command: str, arguments: dict[str, Any]) -> Any:
        """Raises: ControlFailed."""
        start_s = HELD_S
        while True:
            left_s = max(0.01, round(self._deadline - self._clock(), 3))  # an error shows it
            options = {"timeout_s": left_s, "start_s": start_s, "context": self._context}
            try:
                return self._request(self._url, command, arguments, **options)
            except NotServed as fault:
                found = self._state(self._url, HELD_S)
                if found is None and fault.is_over:
                    raise
                if found is None and start_s >= left_s:
                    raise ControlFailed(
                        f"{target_of(self._url)} did not answer within {self._timeout_s:g} s (--timeout SECONDS)"
                    ) from None
            if found is not None:
                break
            start_s *= 2  # the broker is slow
        if command == "cluster" and "action" not in arguments:
            return found
        reasons = (
            why_unserved(found) or "the leader does not answer",
            f"node {found['node']} is {found['state']}: {found['why']}",
            "see `ctl cluster`" if command == "status" else "only the leader can do this",
        )
        raise ControlFailed("; ".join(dict.fromkeys(reasons)))

    def _wait(self, reasons_of: Callable[[Status, str | None], list[str]], node: str | None) -> Status:
        """Raises: ControlFailed."""
        reasons: list[str] = []

        def is_done(status: Status) -> object:
            nonlocal reasons
            try:
                reasons = reasons_of(status, node)
            except CommandError as error:
                raise ControlFailed(str(error)) from None
            return not reasons

        status = self._until(is_done, "not reached", lambda status: "; ".join(reasons))
        return {"is-ready": True, "leader": status["leader"], "insync": status["insync"]}

    def _follow(self, begun: Status, is_done: Callable[[Status], object]) -> Status:
        """Wait until the leader's state shows that a command is done. Raises: ControlFailed."""
        self._until(lambda status: status["node"] == status["leader"] and is_done(status))
        return begun

    def _follow_reload(self, begun: Status) -> Status:
        """Raises: ControlFailed: a node's files have faults."""
        others: Status | None = begun.get("others")  # of a cluster
        if others is None:
            return begun
        before: dict[str, int] = others["reloads"]

        def rest(status: Status) -> list[str]:
            return [name for name, count in before.items() if _row(status, name).get("reloads") in (None, count)]

        waits = list(before)

        def is_done(status: Status) -> bool:
            nonlocal waits
            waits = rest(status) if status["node"] == status["leader"] else waits
            return not waits

        status = self._until(
            is_done, "the leader has reloaded, but not all others", lambda status: f"not {', '.join(waits)}"
        )
        faults = [f"node {name}: {fault}" for name in before for fault in _row(status, name).get("faults", ())]
        if faults:
            raise ControlFailed("the others have reloaded, but\n" + "\n".join(faults))
        absent = {"not-connected": others["not-asked"]} if others["not-asked"] else {}
        own = {name: value for name, value in begun.items() if name != "others"}
        return {**own, "nodes": ", ".join([status["leader"], *before]), **absent}

    def _follow_handover(self, begun: Status) -> Status:
        """Raises: ControlFailed."""
        before, drained = begun["from"], begun.get("node")

        def is_done(status: Status) -> object:
            handover = status.get("handover") or {}
            if status["leader"] == before and handover.get("refused"):
                raise ControlFailed(f"not {'drained' if drained else 'handed over'}: {handover['refused']}")
            if status["leader"] in (None, before) or status["node"] != status["leader"]:
                return False
            return drained is None or _row(status, drained).get("is-drained")

        status = self._until(is_done)
        if begun["to"] not in (None, status["leader"]) and drained is None:
            raise ControlFailed(f"node {before} handed over to {begun['to']}, but {status['leader']} leads")
        found = {"from": before, "to": status["leader"], "term": status["term"]}
        return found if drained is None else {"node": drained, "is-drained": True, **found}

    def _until(
        self,
        is_done: Callable[[Status], object],
        late: str = "it has begun, and its end was not seen",
        why: Callable[[Status], str] = etcd_trouble,
    ) -> Status:
        """Ask for the cluster's state until `is_done`.

        Raises: ControlFailed: the time is over; its text is `late`, and the reason that `why` finds in the last state:
        by default trouble with etcd, through which nodes learn of each other's changes.
        """
        last = ""
        while True:
            try:
                status: Status = self._ask("cluster", {})
            except ControlFailed as fault:
                last = str(fault)
            else:
                if is_done(status):
                    return status
                last = why(status)
            if self._clock() + POLL_S + TRY_S >= self._deadline:
                raise ControlFailed(f"{late} within {self._timeout_s:g} s" + (f": {last}" if last else ""))
            self._pause(POLL_S)


def _row(status: Status, node: str) -> Status:
    return next((one for one in status["nodes"] if one["name"] == node), {"state": "absent"})
