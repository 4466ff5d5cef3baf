"""Whether all nodes are in sync, and whether a node can be stopped, judged by the answer of `ctl cluster`.

`leveret ctl` uses this, too: during an upgrade the leader may run a release without these commands.
"""

from collections.abc import Iterable
from typing import Any

from .command_error import CommandError

Status = dict[str, Any]
Row = dict[str, Any]


def in_sync_reasons(status: Status, node: str | None) -> list[str]:
    """Why the node, or any node (None), is not in sync; []: it is, or all are. Raises: CommandError: no such node."""
    if (reason := why_unserved(status)) is not None:
        return [reason]
    return not_in_sync(status["nodes"] if node is None else [_row(status, node)])


def not_in_sync(rows: Iterable[Row]) -> list[str]:
    """The nodes of these rows that are not in sync, in words."""
    return [_shown(row) for row in rows if not _is_in_sync(row)]


def stop_reasons(status: Status, node: str | None) -> list[str]:
    """Why the node, or any node in sync, must not be stopped now; []: it can be stopped.

    It can be stopped if enough others are in sync, so that publishers are not blocked, if another one can lead, and if
    etcd answers. Raises: CommandError: there is no such node.
    """
    if (reason := why_unserved(status)) is not None:
        return [reason]
    rows = [one for one in status["nodes"] if _is_in_sync(one)] if node is None else [_row(status, node)]
    trouble = etcd_trouble(status)
    found = dict.fromkeys([f"{trouble}, so no node could lead after this one"] if trouble else [])
    found |= dict.fromkeys(reason for row in rows for reason in _reasons_against_stop(status, row))
    return list(found) or ([] if rows else ["no node is in sync"])


def etcd_trouble(status: Status) -> str:
    """Why the node with this status does not reach etcd; "": it does."""
    answer = str(status.get("etcd", "answers"))
    return "" if answer == "answers" else answer


def why_unserved(status: Status) -> str | None:
    """Why no node serves clients now, as far as the node with this status knows; None: one does."""
    leader = next((one for one in status["nodes"] if one["name"] == status["leader"]), None)
    if status.get("state") == "refused":
        return f"node {status['node']} is refused: {status['why']}"
    if leader is None:
        trouble = etcd_trouble(status)
        return f"no node leads: {trouble}" if trouble else "no node leads"
    if leader["state"] not in ("leading", "lost"):
        why = f": {status['why']}" if status["node"] == leader["name"] else ""
        return f"node {leader['name']} is {leader['state']}{why}"
    return None if status["node"] == leader["name"] else f"node {leader['name']} leads, and does not answer yet"


def _reasons_against_stop(status: Status, row: Row) -> list[str]:
    name, least = row["name"], status.get("min-in-sync", 2)
    others = [one for one in status["nodes"] if one["name"] != name and _is_in_sync(one)]
    reasons = []
    if len(others) < least:
        missing = not_in_sync(one for one in status["nodes"] if one["name"] != name)
        why = f" ({'; '.join(missing)})" if missing else ""
        reasons.append(f"without node {name} {len(others)} of {least} nodes would be in sync{why}")
    if name == status["leader"] and not any(_can_lead(status, one) for one in others):
        reasons.append(f"node {name} leads, and no other node in sync can")
    return reasons


def _is_in_sync(row: Row) -> bool:
    return bool(row.get("is-in-sync") and row.get("is-linked"))


def _can_lead(status: Status, row: Row) -> bool:
    level = status.get("level", 0)
    return not row.get("is-drained") and bool(row.get("level", level) >= level)


def _shown(row: Row) -> str:
    behind = f", {row['lag']} records behind" if row.get("lag") else ""
    state = "not linked" if row["state"] == "in_sync" else row["state"]
    return f"node {row['name']} is {state}{behind}"


def _row(status: Status, node: str) -> Row:
    """Raises: CommandError."""
    for row in status["nodes"]:
        if node in (row["name"], f"rabbit@{row['name']}"):
            return dict(row)
    raise CommandError(f"there is no node {node}; nodes are {', '.join(one['name'] for one in status['nodes'])}")
