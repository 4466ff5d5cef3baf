"""What an operator rules while clients work, and what a client does in the operator's virtual hosts; both wait.

Names are few and come again; in nearly every fact is a number that does not: what comes back under an old name is seen.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

from pamqp import base, commands
from raw_client import Unexpected

from .content import publish_octets
from .look import Control
from .truth import Fact
from .wire import Confirmed, Wire
from .world import World, inner_fact, limit_fact, permission_fact, policy_fact, topic_fact, user_fact, vhost_fact

OPERATOR_LINE = 9
USERS, VHOSTS, POLICIES, QUEUES, EXCHANGES = ("u0", "u1", "u2"), ("v0", "v1"), ("p0", "p1"), ("q0", "q1"), ("x0", "x1")
HASH_OCTETS = 36
MESSAGES_MAX = 30


class Operator:
    """`port`: the broker's."""

    def __init__(self, port: int, world: World) -> None:
        self._control = Control(port)
        self._port = port
        self._world = world
        self.done = 0  # operations that were answered

    def something(self) -> None:
        """One operation, or none where there is nothing to do. Raises: ControlFailed, Unexpected, OSError."""
        actions: list[Callable[[], None]] = [
            *[self._add_user, self._delete_user] * 3,
            *[self._change_tags, self._change_password, self._permit, self._forbid],
            *[self._permit_topic, self._set_policy, self._set_policy, self._clear_policy],
            *[self._add_vhost, self._limit_vhost, self._delete_vhost],
            *[self._work_inside] * 4,
        ]
        self._world.chance.choice(actions)()

    # -- the control table --------------------------------------------------------------------------------------------

    def _do(self, what: str, adds: Sequence[Fact], removes: Sequence[Fact], command: str, **arguments: object) -> None:
        operation = self._world.did(OPERATOR_LINE, what, adds, removes)
        self._control.ask(command, **arguments)
        self._world.truth.answered(operation)
        self.done += 1

    def _there(self, what: str, *begin: object) -> list[Fact]:
        return sorted(one for one in self._world.truth.now if one[0] == what and one[1 : 1 + len(begin)] == begin)

    def _one(self, what: str) -> Fact | None:
        there = self._there(what)
        return self._world.chance.choice(there) if there else None

    def _new_number(self) -> int:
        self._world.next_name += 1
        return self._world.next_name

    def _new_hash(self) -> str:
        return base64.b64encode(self._new_number().to_bytes(HASH_OCTETS, "big")).decode()

    def _tags(self) -> str:
        return self._world.chance.choice(("", "administrator", "administrator,monitoring", "management"))

    def _add_user(self) -> None:
        name, tags, hashed = self._world.chance.choice(USERS), self._tags(), self._new_hash()
        if not self._there("user", name):
            user = user_fact(name, tags, hashed)
            more = {"name": name, "tags": tags, "password-hash": hashed}
            self._do(f"add {name}", [user], [], "users", action="add", **more)

    def _delete_user(self) -> None:
        user = self._one("user")
        if user is not None:
            name = user[1]
            gone = [user, *self._there("permission", name), *self._there("topic-permission", name)]
            self._do(f"delete {name}", [], gone, "users", action="delete", name=name)

    def _change_tags(self) -> None:
        user = self._one("user")
        if user is not None:
            name, tags = str(user[1]), f"{self._tags()},t{self._new_number()}".strip(",")
            changed = user_fact(name, tags, str(user[3]))
            self._do(f"tags of {name}", [changed], [user], "users", action="tags", name=name, tags=tags)

    def _change_password(self) -> None:
        user = self._one("user")
        if user is not None:
            name, hashed = str(user[1]), self._new_hash()
            more = {"name": name, "password-hash": hashed}
            changed = user_fact(name, str(user[2]), hashed)
            self._do(f"password of {name}", [changed], [user], "users", action="passwd", **more)

    def _vhost(self) -> str:
        return self._world.chance.choice(["/", *(str(one[1]) for one in self._there("vhost"))])

    def _permit(self) -> None:
        user, vhost = self._one("user"), self._vhost()
        if user is not None:
            name, pattern = str(user[1]), f"^c{self._new_number()}"
            before = self._there("permission", name, vhost)
            more = {"user": name, "vhost": vhost, "configure": pattern, "write": "", "read": ".*"}
            adds = [permission_fact(name, vhost, pattern)]
            self._do(f"permit {name} in {vhost}", adds, before, "permissions", action="set", **more)

    def _forbid(self) -> None:
        permission = self._one("permission")
        if permission is not None:
            _, user, vhost, _ = permission
            more = {"user": user, "vhost": vhost}  # those on topics stay, as in RabbitMQ
            self._do(f"forbid {user} {vhost}", [], [permission], "permissions", action="clear", **more)

    def _permit_topic(self) -> None:
        one = self._one("user")
        if one is not None:
            user, vhost = str(one[1]), self._vhost()
            before = self._there("topic-permission", user, vhost)
            pattern = f"^t{self._new_number()}"
            more = {"user": user, "vhost": vhost, "exchange": "amq.topic", "write": pattern, "read": ".*"}
            adds = [topic_fact(user, vhost, "amq.topic", pattern)]
            self._do(f"topics of {user}", adds, before, "topic-permissions", action="set", **more)

    def _set_policy(self) -> None:
        chance, vhost = self._world.chance, self._vhost()
        name, command = chance.choice(POLICIES), chance.choice(("policies", "operator-policies"))
        definition = {"max-length": 1_000_000 + self._new_number()}
        policy = policy_fact(command, vhost, name, definition)
        more = {"vhost": vhost, "name": name, "pattern": "^t[0-9]", "definition": definition, "apply-to": "queues"}
        before = self._there("policy", command, vhost, name)
        self._do(f"set {command} {name}", [policy], before, command, action="set", **more)

    def _clear_policy(self) -> None:
        policy = self._one("policy")
        if policy is not None:
            _, command, vhost, name, _ = policy
            self._do(f"clear {name}", [], [policy], str(command), action="clear", vhost=vhost, name=name)

    def _add_vhost(self) -> None:
        vhost = vhost_fact(self._world.chance.choice(VHOSTS))
        if self._world.truth.can_be_made(vhost):
            self._do(f"add {vhost[1]}", [vhost], [], "vhosts", action="add", name=vhost[1])

    def _limit_vhost(self) -> None:
        vhost = self._one("vhost")
        if vhost is not None:
            name, limit = str(vhost[1]), 1000 + self._new_number()
            before = self._there("limit", name)
            more = {"name": name, "max-queues": limit}
            self._do(f"limit {name}", [limit_fact(name, limit)], before, "vhosts", action="limits", **more)

    def _delete_vhost(self) -> None:
        vhost = self._one("vhost")
        if vhost is not None and self._world.chance.random() < 0.7:
            name = str(vhost[1])
            gone = [fact for fact in self._world.truth.now if name in _vhosts_of(fact)]
            self._do(f"delete {name}", [], gone, "vhosts", action="delete", name=name)

    # -- a client in a virtual host -----------------------------------------------------------------------------------

    def _work_inside(self) -> None:
        """A few things in one of them."""
        vhost = self._one("vhost")
        if vhost is None:
            return
        wire = Wire(self._port, vhost=str(vhost[1]))
        try:
            wire.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
            inside = _Inside(wire, self._world, str(vhost[1]))
            for _ in range(self._world.chance.randrange(1, 8)):
                inside.something()
            self.done += inside.done
        finally:
            wire.finish()


def _vhosts_of(fact: Fact) -> tuple[object, ...]:
    """The virtual host that a fact is about or in, where that is one of the operator's."""
    at = {"vhost": 1, "limit": 1, "inner": 1, "permission": 2, "topic-permission": 2, "policy": 2}.get(str(fact[0]))
    return () if at is None else (fact[at],)


class _Inside:
    """A client that has a virtual host for itself."""

    def __init__(self, wire: Wire, world: World, vhost: str) -> None:
        self._wire = wire
        self._world = world
        self._vhost = vhost
        self._tag = 0
        self.done = 0

    def something(self) -> None:
        """One operation."""
        self._world.chance.choice(
            [
                *[self._declare_queue, self._publish] * 2,
                *[self._declare_exchange, self._bind, self._unbind, self._delete_queue, self._delete_exchange],
            ]
        )()

    def _there(self, what: str, *begin: object) -> list[Fact]:
        now, begin = self._world.truth.now, ("inner", self._vhost, what, *begin)
        return sorted((fact for fact in now if fact[: len(begin)] == begin), key=str)

    def _fact(self, what: str, *more: object) -> Fact:
        return inner_fact(self._vhost, what, *more)

    def _ask(
        self, what: str, adds: list[Fact], removes: list[Fact], method: base.Frame, kind: type[base.Frame]
    ) -> None:
        operation = self._world.did(OPERATOR_LINE, f"{what} in {self._vhost}", adds, removes)
        self._wire.ask(method, kind)
        self._world.truth.answered(operation)
        self.done += 1

    def _arguments(self) -> dict[str, Any]:
        self._world.next_name += 1
        return {"x-expires": 10_000_000 + self._world.next_name}

    def _declare_queue(self) -> None:
        name, arguments = self._world.chance.choice(QUEUES), self._arguments()
        if not self._there("queue", name):
            method = commands.Queue.Declare(queue=name, durable=True, arguments=arguments)
            queue = self._fact("queue", name, json.dumps(arguments, sort_keys=True))
            self._ask(f"declare {name}", [queue], [], method, commands.Queue.DeclareOk)

    def _delete_queue(self) -> None:
        name = self._world.chance.choice(QUEUES)
        queue = self._there("queue", name)
        if queue:
            bound = [one for one in self._there("binding") if one[4:6] == ("queue", name)]
            gone = [*queue, *self._there("message", name), *bound]
            self._ask(f"delete {name}", [], gone, commands.Queue.Delete(queue=name), commands.Queue.DeleteOk)

    def _declare_exchange(self) -> None:
        name, arguments = self._world.chance.choice(EXCHANGES), self._arguments()
        if not self._there("exchange", name):
            kind = self._world.chance.choice(("fanout", "direct", "topic", "headers"))
            method = commands.Exchange.Declare(exchange=name, exchange_type=kind, durable=True, arguments=arguments)
            exchange = self._fact("exchange", name, kind, json.dumps(arguments, sort_keys=True))
            self._ask(f"declare {name}", [exchange], [], method, commands.Exchange.DeclareOk)

    def _delete_exchange(self) -> None:
        name = self._world.chance.choice(EXCHANGES)
        exchange = self._there("exchange", name)
        if exchange:
            bound = [one for one in self._there("binding") if one[3] == name or one[4:6] == ("exchange", name)]
            method = commands.Exchange.Delete(exchange=name)
            self._ask(f"delete {name}", [], [*exchange, *bound], method, commands.Exchange.DeleteOk)

    def _bind(self) -> None:
        chance = self._world.chance
        exchanges = [str(one[3]) for one in self._there("exchange")]
        queues = [str(one[3]) for one in self._there("queue")]
        source, key = chance.choice([*exchanges, "amq.topic"]), self._world.new_name("key.")
        kind, target = chance.choice(
            [*(("queue", one) for one in queues), ("exchange", chance.choice([*exchanges, ""]))]
        )
        if not target:
            return
        binding = self._fact("binding", source, kind, target, key)
        if kind == "queue":
            method: base.Frame = commands.Queue.Bind(queue=target, exchange=source, routing_key=key)
            self._ask(f"bind {key}", [binding], [], method, commands.Queue.BindOk)
        else:
            method = commands.Exchange.Bind(destination=target, source=source, routing_key=key)
            self._ask(f"bind {key}", [binding], [], method, commands.Exchange.BindOk)

    def _unbind(self) -> None:
        bindings = self._there("binding")
        if not bindings:
            return
        binding = self._world.chance.choice(bindings)
        source, kind, target, key = map(str, binding[3:])
        if kind == "queue":
            method: base.Frame = commands.Queue.Unbind(queue=target, exchange=source, routing_key=key)
            self._ask(f"unbind {key}", [], [binding], method, commands.Queue.UnbindOk)
        else:
            method = commands.Exchange.Unbind(destination=target, source=source, routing_key=key)
            self._ask(f"unbind {key}", [], [binding], method, commands.Exchange.UnbindOk)

    def _publish(self) -> None:
        """Some with confirms, and wait for those."""
        world, name = self._world, self._world.chance.choice(QUEUES)
        if not self._there("queue", name) or len(self._there("message", name)) > MESSAGES_MAX:
            return
        operations = []
        octets = b""
        for _ in range(world.chance.randrange(1, 6)):
            number = world.new_number()
            octets += publish_octets(number, name, 1)
            fact = self._fact("message", name, number)
            operations.append(world.did(OPERATOR_LINE, f"publish {number} to {name} in {self._vhost}", [fact]))
        self._wire.write(octets)
        until = self._tag + len(operations)
        while self._tag < until:
            for event in self._wire.wait():
                if not isinstance(event, Confirmed):
                    raise Unexpected(f"no confirm: {event}")  # an orderly end says goodbye meanwhile
                self._tag = event.tag if event.multiple else max(self._tag, event.tag)
        for operation in operations:
            world.truth.answered(operation)
