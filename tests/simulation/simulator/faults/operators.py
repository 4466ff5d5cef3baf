"""What operators do to a broker that runs: by commands, and by another configuration.

Users are u0 to u2, virtual hosts v0 and v1; policies are for the queues of tenants, whose names begin with "t.".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from leveret.operator.command_error import CommandError

from ..explored import ALTERNATES, MARK, PASSING_ON, explored_lines
from .victim import Fault, Victim, some_time_ns

USERS, VHOSTS, POLICIES, PARAMETERS = ("u0", "u1", "u2"), ("v0", "v1"), ("p0", "p1"), ("g0", "g1")
PATTERNS = (".*", "", "^t", "^(t|amq)")
#: Which policies there are for tenants.
DEFINITIONS: tuple[dict[str, Any], ...] = (
    {"max-length": 3},
    {"message-ttl": 500},
    {"max-length": 5, "overflow": "reject-publish"},
    {"expires": 4000},
    {"dead-letter-exchange": "amq.fanout"},
    {"max-length-bytes": 500, "message-ttl": 60_000},
    {"delivery-limit": 2},
)


def run(world: Victim, command: str, **arguments: Any) -> Any:
    """A command, and the end of its turn. None: it was refused, or nobody is there."""
    host = world.host
    if host is None or not host.is_alive:
        return None
    try:
        result = host.built.control.run(command, arguments)
        json.dumps(result)  # as it would be answered
    except CommandError as error:
        assert "unknown" not in str(error), error  # a mistake of this simulation
        world.knowledge.happened[f"refused: {command}"] += 1
        world.note(f"{command}: {error}")
        result = None
    host.runtime.end_turn()
    return result


def _run_later(world: Victim, later_ns: int, command: str, **arguments: Any) -> None:
    act = partial(run, world, command, **arguments)
    world.schedule.after(later_ns, partial(world.schedule.in_the_process, act))


def _settle(world: Victim, chance: Random) -> None:
    """All users and virtual hosts are there before tenants come, some with limits."""
    for name in VHOSTS:
        run(world, "vhosts", action="add", name=name)
        if chance.random() < 0.4:
            _limit_vhost(world, chance, name)
    for name in USERS:
        _make_user(world, chance, name)
        if chance.random() < 0.3:
            run(world, "users", action="limits", name=name, **{"max-channels": chance.choice((1, 2))})


def _add_user(world: Victim, chance: Random) -> None:
    _make_user(world, chance, chance.choice(USERS))


def _make_user(world: Victim, chance: Random, name: str) -> None:
    run(world, "users", action="add", name=name, password=name, tags=chance.choice(([], ["monitoring"])))
    for vhost in ("/", *VHOSTS):
        if chance.random() < 0.7:
            _grant(world, chance, name, vhost)


def _grant(world: Victim, chance: Random, name: str, vhost: str) -> None:
    configure, write, read = (chance.choice((".*", ".*", *PATTERNS)) for _ in range(3))
    run(
        world, "permissions", action="set", user=name, vhost=vhost, configure=configure, write=write, read=read
    )  # fmt: skip


def _change_user(world: Victim, chance: Random) -> None:
    name, vhost = chance.choice(USERS), chance.choice(("/", *VHOSTS))
    luck = chance.random()
    if luck < 0.3:
        _grant(world, chance, name, vhost)
    elif luck < 0.45:
        run(world, "permissions", action="clear", user=name, vhost=vhost)
    elif luck < 0.6:
        run(world, "users", action="passwd", name=name, password=chance.choice((name, name, "another")))
    elif luck < 0.7:
        run(world, "users", action="tags", name=name, tags=chance.choice(([], ["monitoring"], ["administrator"])))
    elif luck < 0.8:
        most = chance.choice((-1, 0, 1))
        run(
            world,
            "users",
            action="limits",
            name=name,
            **{"max-connections": most, "max-channels": chance.choice((1, 2, 5))},
        )
    else:
        action, write = chance.choice(("set", "set", "clear")), chance.choice(PATTERNS)
        more = {"write": write, "read": ".*"} if action == "set" else {}
        run(world, "topic-permissions", action=action, user=name, exchange="amq.topic", vhost=vhost, **more)


def _delete_user(world: Victim, chance: Random) -> None:
    run(world, "users", action="delete", name=chance.choice(USERS))


def _set_policy(world: Victim, chance: Random) -> None:
    run(
        world,
        chance.choice(("policies", "policies", "operator-policies")),
        action="set",
        name=chance.choice(POLICIES),
        pattern="^t",
        definition=chance.choice(DEFINITIONS),
        priority=chance.randrange(3),
        vhost=chance.choice(("/", *VHOSTS)),
        **{"apply-to": chance.choice(("queues", "all"))},
    )


def _clear_policy(world: Victim, chance: Random) -> None:
    command = chance.choice(("policies", "operator-policies"))
    policies = run(world, command, action="list") or []
    if policies:
        one = chance.choice(policies)
        run(world, command, action="clear", name=one["name"], vhost=one["vhost"])


def _change_lease_period(world: Victim, chance: Random) -> None:
    """By a policy of its own, which holds for queues that were declared without one."""
    policy = {"name": "leases", "vhost": "/"}
    if chance.random() < 0.2:
        run(world, "policies", action="clear", **policy)
        return
    definition = {"lease-period": chance.choice((50, 200, 1000, 5000))}
    run(world, "policies", action="set", pattern="^leased", definition=definition, **policy, **{"apply-to": "queues"})


def _set_parameter(world: Victim, chance: Random) -> None:
    """What the broker keeps for others and never reads."""
    name, value = chance.choice(PARAMETERS), {"number": chance.randrange(100)}
    if chance.random() < 0.3:
        run(world, "global-parameters", action="clear", name=name)
    else:
        run(world, "global-parameters", action="set", name=name, value=value)


def _add_vhost(world: Victim, chance: Random) -> None:
    name = chance.choice(VHOSTS)
    luck = chance.random()
    if luck < 0.7:
        run(world, "vhosts", action="add", name=name)
    elif luck < 0.85:
        _limit_vhost(world, chance, name)
    else:
        run(world, "vhosts", action="default-queue-type", name=name, type=chance.choice(("classic", "quorum")))


def _limit_vhost(world: Victim, chance: Random, name: str) -> None:
    most = {"max-connections": chance.choice((-1, 0, 2)), "max-queues": chance.choice((-1, 2))}
    run(world, "vhosts", action="limits", name=name, **most)


def _delete_vhost(world: Victim, chance: Random) -> None:
    run(world, "vhosts", action="delete", name=chance.choice(VHOSTS))


def _block(world: Victim, chance: Random) -> None:
    run(world, "block")
    world.schedule.after(
        some_time_ns(chance, 2), partial(world.schedule.in_the_process, partial(run, world, "unblock"))
    )


def _close(world: Victim, chance: Random) -> None:
    connections = run(world, "connections") or []
    if connections:
        run(world, "close-connection", name=chance.choice(connections)["name"])


def _look(world: Victim, chance: Random) -> None:
    """Whatever there is to be seen; nothing changes."""
    for command in ("status", "queues", "connections", "channels", "consumers"):
        run(world, command)
    for command in ("users", "permissions", "topic-permissions", "vhosts", "policies", "operator-policies"):
        run(world, command, action="list")
    for queue in run(world, "queues") or []:
        run(world, "explain", name=queue["name"], vhost=queue["vhost"])


def _export_and_import(world: Victim, chance: Random) -> None:
    """What was exported some time ago: who was deleted since comes back, by the operator's will."""
    document = run(world, "definitions", action="export")
    if document is not None:
        later_ns = some_time_ns(chance, 3)
        _run_later(world, later_ns, "definitions", action="import", definitions=document)


def _reload(world: Victim, chance: Random) -> None:
    lines = [
        f'[[address-setting]]\nmatch = "{match}"\n{key} = {value}'
        for match, key, value in (
            ("t.#", "redelivery-delay", chance.choice(('"0ms"', '"100ms"'))),
            ("#", "redelivery-delay-multiplier", 2.0),
        )
        if chance.random() < 0.7
    ]
    world.configure("\n".join(lines))
    run(world, "reload")


def _explore(world: Victim, chance: Random) -> None:
    """Settings, diverts and queues of explorers are others, and where messages go that no queue takes."""
    world.configure(explored_lines(chance), lambda text: text.partition(MARK)[0] + MARK)
    run(world, "reload")
    if chance.random() < 0.5:
        alternate = {"alternate-exchange": chance.choice(ALTERNATES)}
        of = {"name": "explored", "vhost": "/", "pattern": PASSING_ON, "apply-to": "exchanges"}
        run(world, "policies", action="set", definition=alternate, priority=0, **of)


def _limit(world: Victim, chance: Random) -> None:
    """Limits of flow control are others, or none, while publishes are held for them."""
    lines = []
    for queue in world.plan.queues:
        if (limits := queue.features.get("flow")) and chance.random() < 0.7:
            factor = chance.choice((0, 0.3, 1, 3))
            lines += ["[[address-setting]]", f'match = "{queue.name}"', 'vhost = "/"']
            lines += [f"{key} = {max(1, int(limit * factor)) if factor else -1}" for key, limit in limits.items()]
    factor = chance.choice((0, 0.5, 1, 4))

    def change(text: str) -> str:
        return re.sub(
            r"(?m)^(memory|store|temp) = (\d+)$", lambda found: f"{found[1]} = {int(int(found[2]) * factor)}", text
        )

    world.configure("\n".join(lines), change)
    run(world, "reload")


def _trace(world: Victim, chance: Random) -> None:
    run(world, "trace-on")
    world.schedule.after(
        some_time_ns(chance, 2), partial(world.schedule.in_the_process, partial(run, world, "trace-off"))
    )


#: Limits of [system-usage], which worlds give in octets.
_OF_ALL = re.compile(r"(?m)^(memory|store|temp) = (\d+)$")


_ACTS: dict[str, Callable[[Victim, Random], None]] = {
    "settles tenants": _settle,
    "adds a user": _add_user,
    "changes a user": _change_user,
    "deletes a user": _delete_user,
    "sets a policy": _set_policy,
    "clears a policy": _clear_policy,
    "sets a parameter": _set_parameter,
    "adds a virtual host": _add_vhost,
    "deletes a virtual host": _delete_vhost,
    "blocks publishers": _block,
    "closes a connection": _close,
    "looks": _look,
    "imports what was exported": _export_and_import,
    "changes the configuration": _reload,
    "changes limits": _limit,
    "changes what is explored": _explore,
    "changes lease periods": _change_lease_period,
    "traces": _trace,
}
OPERATOR_FAULTS: dict[str, Fault] = {f"operator {name}": act for name, act in _ACTS.items()}
