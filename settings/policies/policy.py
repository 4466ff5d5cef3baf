"""A policy or operator policy: its parts, and the check of them in RabbitMQ's words.

Source: behaviour page 3.12; rulings 10, 11, 19.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..addresses.queue_arguments import check_conflicts
from ..faults import ArgumentFault, Origin
from ..frozen import frozen
from ..queue_types import ADDED_TYPES
from ..values import LONG_MAX
from .policy_keys import EXCHANGE, POLICY_KEYS, as_accepted_now, erlang, fault_of_definition, fault_of_mirroring

if TYPE_CHECKING:
    from ...expressions.patterns.patterns import Pattern  # 3 ms that a broker without policies saves

#: apply-to -> the kinds of objects it includes.
APPLY_TO: dict[str, frozenset[str]] = {
    "all": frozenset({"classic", "quorum", "stream", *ADDED_TYPES, EXCHANGE}),
    "queues": frozenset({"classic", "quorum", "stream", *ADDED_TYPES}),
    "exchanges": frozenset({EXCHANGE}),
    "classic_queues": frozenset({"classic"}),
    "quorum_queues": frozenset({"quorum"}),
    "streams": frozenset({"stream"}),
    **{added.apply_to: frozenset({added.name}) for added in ADDED_TYPES.values()},
}
NAME_OCTETS_MAX = 255
#: The prefix of arguments, which policy keys do not have.
_ARGUMENT_PREFIX = re.compile(r"\bx-")


class PolicyFault(ValueError):
    """An invalid policy; the text is RabbitMQ's if it has one."""


@frozen
class Policy:
    """One policy, or (`is_operator`) operator policy. Made by `make_policy`.

    `origin`: the configuration's line; None: it is not from the configuration.
    """

    name: str
    vhost: str
    pattern: str
    definition: Mapping[str, object]
    apply_to: str = "all"
    priority: int = 0
    is_operator: bool = False
    origin: Origin | None = field(default=None, compare=False)
    compiled: "Pattern | None" = field(default=None, compare=False, repr=False)  # `pattern`, compiled once

    @property
    def identity(self) -> tuple[str, bool, str]:
        """The unique key: virtual host, whether it is an operator policy, name."""
        return self.vhost, self.is_operator, self.name

    @property
    def title(self) -> str:
        """A name for people."""
        where = f"{self.origin}: " if self.origin is not None else ""
        return f"{where}{self.kind} {self.name!r}"

    @property
    def kind(self) -> str:
        return "operator policy" if self.is_operator else "policy"

    @property
    def matcher(self) -> "Pattern":
        if self.compiled is not None:
            return self.compiled
        from ...expressions.patterns.patterns import Pattern  # of a policy that was not made by make_policy

        return Pattern(self.pattern)

    def may_apply_to(self, kind: str) -> bool:
        """Whether it can apply to queues of type `kind`, or to exchanges.

        `apply_to` must include the kind. A type of queue must also have all keys of the definition that are not for
        exchanges alone.
        """
        if kind not in APPLY_TO[self.apply_to]:
            return False
        return kind == EXCHANGE or all(
            kind in POLICY_KEYS[key].on or POLICY_KEYS[key].on == {EXCHANGE} for key in self.definition
        )

    def value(self) -> dict[str, Any]:
        """The policy in RabbitMQ's JSON."""
        return {
            "vhost": self.vhost,
            "name": self.name,
            "pattern": self.pattern,
            "apply-to": self.apply_to,
            "definition": dict(self.definition),
            "priority": self.priority,
        }


def make_policy(
    name: str,
    vhost: str,
    pattern: object,
    definition: object,
    *,
    apply_to: object = "all",
    priority: object = 0,
    is_operator: bool = False,
    origin: Origin | None = None,
    is_stored: bool = False,
) -> Policy:
    """A checked policy. `is_stored`: an earlier release may have accepted it. Raises: PolicyFault."""
    if not name or len(name.encode()) > NAME_OCTETS_MAX:
        raise PolicyFault("the name must be text of 1 to 255 octets")
    if is_stored and isinstance(definition, dict | MappingProxyType):
        definition = as_accepted_now(definition)
    faults, compiled = _faults(pattern, definition, apply_to, priority, is_operator=is_operator, is_stored=is_stored)
    if faults:
        raise PolicyFault("\n".join(faults))
    assert isinstance(pattern, str) and isinstance(apply_to, str)
    assert isinstance(definition, dict | MappingProxyType) and isinstance(priority, int | float)
    plain = {key: POLICY_KEYS[key].plain(value) for key, value in definition.items()}
    try:
        check_conflicts({POLICY_KEYS[key].argument: value for key, value in plain.items()})
    except ArgumentFault as fault:
        raise PolicyFault(_ARGUMENT_PREFIX.sub("", str(fault))) from None
    return Policy(name, vhost, pattern, MappingProxyType(plain), apply_to, int(priority), is_operator, origin, compiled)


def read_policy(
    name: str, vhost: str, value: Mapping[str, Any], *, is_operator: bool, is_stored: bool = False
) -> Policy:
    """A policy from RabbitMQ's JSON, the inverse of `Policy.value`; unknown keys are ignored. Raises: PolicyFault."""
    return make_policy(
        name,
        vhost,
        value.get("pattern"),
        value.get("definition"),
        apply_to=value.get("apply-to", "all"),
        priority=value.get("priority", 0),
        is_operator=is_operator,
        is_stored=is_stored,
    )


def faults_of_policy(
    pattern: object, definition: object, apply_to: object, priority: object, *, is_operator: bool
) -> list[str]:
    """The faults of a policy's parts, in RabbitMQ's words and order.

    Its name, and keys that contradict each other, are checked by `make_policy` only.
    """
    return _faults(pattern, definition, apply_to, priority, is_operator=is_operator, is_stored=False)[0]


def _faults(
    pattern: object, definition: object, apply_to: object, priority: object, *, is_operator: bool, is_stored: bool
) -> tuple[list[str], "Pattern | None"]:
    """The faults, and the compiled pattern."""
    from ...expressions.patterns.pattern_syntax import PatternFault
    from ...expressions.patterns.patterns import Pattern

    faults, compiled = [], None
    if not isinstance(definition, dict | MappingProxyType):
        faults.append("the definition must be an object")
    else:
        fault_text = fault_of_definition(definition, is_operator=is_operator)
        if not is_stored:  # earlier releases took any value of keys of mirrored queues, which have no effect
            fault_text = fault_text or fault_of_mirroring(definition)
        if fault_text:
            faults.append(fault_text)
    if not isinstance(apply_to, str) or apply_to not in APPLY_TO:
        word = apply_to if isinstance(apply_to, str) else erlang(apply_to)
        faults.append(f"apply-to '{word}' unrecognised; should be 'queues', 'exchanges' or 'all'")
    if not isinstance(pattern, str):
        faults.append(f"pattern should be a binary but was {erlang(pattern)}")
    else:
        try:
            compiled = Pattern(pattern)
        except PatternFault as fault:
            faults.append(f"pattern should be regular expression but is invalid: {fault}")
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        faults.append(f"priority should be a number, actually was {erlang(priority)}")
    elif priority != priority // 1 or not -LONG_MAX <= priority <= LONG_MAX:
        faults.append(f"priority should be a 64-bit integer, actually was {erlang(priority)}")
    return faults, compiled
