"""Commands about earlier versions of policies, users and limits. Source: management page 15."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from ..console.dispatcher import Http, Level
from ..engine import Broker, Grant, TopicPermission, User, VirtualHostLimits, read_password_hash
from ..settings import Policies, read_policy
from .access import with_access
from .command import command
from .command_error import CommandError
from .kinds import NUMBER, OnlyVhost, Word
from .operator import Operator
from .previews import consequences, effects_of_closing
from .steps import Steps
from .versions import LIMITS, OPERATOR_POLICY, POLICY, USER, shown

KINDS = {"policy": POLICY, "operator-policy": OPERATOR_POLICY, "user": USER, "limits": LIMITS}
#: Maximum versions in one answer.
LISTED_MAX = 200

VersionId = Annotated[int, NUMBER, "as `versions` lists it"]


@command("versions list", http=Http("GET", "leveret/versions", Level.ADMINISTRATOR), reads=True)
def list_versions(
    operator: Operator, *, kind: Word | None = None, name: Word | None = None, vhost: OnlyVhost | None = None
) -> list[dict[str, Any]]:
    """List what was changed, the newest first: by whom, by which command, before and after.

    kind: policy, operator-policy, user or limits
    name: only of the policy or user of this name
    """
    if kind is not None and kind not in KINDS:
        raise CommandError(f"versions: kind must be one of {', '.join(KINDS)}")
    rows: list[dict[str, Any]] = []
    seen: set[tuple[str, str, str]] = set()
    for row in operator.versions:
        key = (row["kind"], row["vhost"], row["name"])
        is_current = key not in seen
        seen.add(key)
        if (
            (kind and row["kind"] != KINDS[kind])
            or name not in (None, row["name"])
            or vhost not in (None, row["vhost"])
        ):
            continue
        rows.append(shown(row, is_current=is_current))
        if len(rows) == LISTED_MAX:
            break
    return rows


@command("versions restore", http=Http("POST", "leveret/versions/ID/restore", Level.ADMINISTRATOR))
def restore_version(operator: Operator, id: VersionId, *, all: bool = False) -> dict[str, Any]:
    """Restore the value before a change.

    all: true: before everything that its command changed, such as an import
    """
    rows = _rows_of(operator, id, all)
    _check(operator.broker, rows)
    for row in rows:
        restore(operator.broker, row)
    return {"restored": [row["id"] for row in rows]}


@command("preview version", http=Http("POST", "leveret/preview/versions/ID", Level.ADMINISTRATOR), reads=True)
def preview_version(operator: Operator, id: VersionId, *, all: bool = False) -> Steps:
    """Tell what restoring a version would do.

    all: true: before everything that its command changed
    """
    rows = _rows_of(operator, id, all)
    _check(operator.broker, rows)
    found: dict[str, Any] = yield from consequences(
        operator, operator.broker.context.settings, policies_before(operator.broker, rows)
    )
    gone = {row["name"] for row in rows if row["kind"] == USER and row["before"] is None}
    found["says"] += effects_of_closing([client for client in operator.broker.connections if client.user.name in gone])
    return {**found, "restores": [{key: row[key] for key in ("id", "kind", "vhost", "name")} for row in rows]}


def _rows_of(operator: Operator, id_: int, is_all: bool) -> list[dict[str, Any]]:
    """A version, or all versions of its command, the newest first."""
    row = operator.versions.find(id_)
    return [one for one in operator.versions if one["batch"] == row["batch"]] if is_all else [row]


def _check(broker: Broker, rows: Iterable[Mapping[str, Any]]) -> None:
    """Check that the versions can be restored: their virtual hosts exist. Raises: CommandError."""
    for row in rows:
        if row["vhost"] and row["vhost"] not in broker.virtual_hosts:
            raise CommandError(f"the virtual host {row['vhost']!r} of version {row['id']} was deleted")


# -- restoring ------------------------------------------------------------------------------------------------------


def restore(broker: Broker, row: Mapping[str, Any]) -> None:
    """Restore the value before a change. Its virtual host must exist."""
    kind, vhost, name, value = row["kind"], row["vhost"], row["name"], row["before"]
    if kind in (POLICY, OPERATOR_POLICY):
        broker.reloading.replace_policies(policies_before(broker, [row]))
    elif kind == LIMITS:
        host = broker.virtual_hosts[vhost]
        limits = VirtualHostLimits(value["max-connections"], value["max-queues"], value["default-queue-type"])
        broker.virtual_hosts.limit(host, limits)
    elif value is None:
        if broker.users.find(name) is not None:
            broker.connections.delete_user(name)
    else:
        broker.connections.replace_user(_user_of(broker, name, value))


def policies_before(broker: Broker, rows: Iterable[Mapping[str, Any]]) -> Policies:
    """All policies, with those of these versions as they were before."""
    policies = broker.context.policies
    for row in rows:
        is_operator, value = row["kind"] == OPERATOR_POLICY, row["before"]
        if row["kind"] not in (POLICY, OPERATOR_POLICY):
            continue
        if value is None:
            policies = policies.without([(row["vhost"], is_operator, row["name"])])
            continue
        policy = read_policy(row["name"], row["vhost"], value, is_operator=is_operator, is_stored=True)
        policies = policies.with_these([policy])
    return policies


def _user_of(broker: Broker, name: str, value: Mapping[str, Any]) -> User:
    """The user as it was, without permissions in virtual hosts that are gone."""
    topics: dict[str, dict[str, TopicPermission]] = {}
    for vhost, exchange, write, read in value["topics"]:
        if vhost in broker.virtual_hosts:
            topics.setdefault(vhost, {})[exchange] = TopicPermission(write, read)
    user = User(
        name,
        read_password_hash(value["password_hash"], value["hashing_algorithm"]),
        tuple(value["tags"]),
        loopback_only=value["loopback-only"],
        max_connections=value["max-connections"],
        max_channels=value["max-channels"],
    )
    if value["permissions"] is None:
        return user
    grants = {
        vhost: Grant(**patterns) for vhost, patterns in value["permissions"].items() if vhost in broker.virtual_hosts
    }
    return with_access(user, grants, topics)
