"""The operations of a test server: the methods of a test broker by name, with arguments from JSON.

An operation has the arguments, results and errors of its method in Python (docs/testing-your-application.md). Only the
operations in this table can be called.
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import count
from threading import Lock
from typing import Any, get_args

from ...settings.faults import nearest
from ..broker import RunningBroker
from ..fault import Fault
from .values import WrongValue, json_of, read_value

#: Names of faults, which are methods of `Faults`; `faults.start` takes their arguments.
FAULTS = (
    "drop_connection", "stop_reading", "stop_writing", "half_open", "close_channel", "close_connection",
    "refuse_connections", "refuse_login", "restart", "slow_network", "nack_confirms", "delay_confirms",
    "withhold_confirms", "lose_acks", "block", "memory_limit", "cancel_consumers", "chaos",
)  # fmt: skip


class UnknownOperation(LookupError):
    """There is no such operation; the message names one with a similar name, if there is any."""


class Operations:
    """The operations of one broker. Each runs in the caller's thread; several may run at a time."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._faults: dict[int, tuple[str, Fault]] = {}
        self._numbers = count(1)
        self._lock = Lock()
        self.table: Mapping[str, Callable[..., Any]] = {
            "info": self._info,
            "vhosts.create": self._create_vhost,
            "vhosts.delete": self._delete_vhost,
            "reset": self._reset,
            "restart": broker.restart,
            "queue": broker.queue,
            "queues": broker.queues,
            "published": broker.published,
            "history": self._history,
            "plain": broker.plain,
            "blocked": broker.blocked,
            "leases": broker.leases,
            "leaks": broker.leaks,
            "inject": broker.inject,
            "remove": broker.remove,
            "settled": broker.settled,
            "assert_published": broker.assert_published,
            "assert_not_published": broker.assert_not_published,
            "assert_queue": broker.assert_queue,
            "assert_blocked": broker.assert_blocked,
            "assert_leased": broker.assert_leased,
            "assert_lease_ended": broker.assert_lease_ended,
            "clock": self._clock,
            "clock.advance": self._advance,
            "clock.travel_to": self._travel,
            "faults": self._running_faults,
            "faults.start": self._start_fault,
            "faults.stop": self._stop_fault,
        }

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The result, ready for JSON.

        Raises: UnknownOperation; WrongValue, TypeError, ValueError, LookupError (arguments); AssertionError; others as
            the method does.
        """
        function = self.table.get(name)
        if function is None:
            raise UnknownOperation(f"no operation {name!r}{nearest(name, self.table)}")
        values = {key: read_value(value) for key, value in arguments.items()}
        _check_names(name, function, values)
        return json_of(function(**values))

    def described(self) -> dict[str, str]:
        """Operation -> its arguments, in Python's notation."""
        return {name: str(inspect.signature(function)) for name, function in self.table.items()}

    # -- operations that are not methods of the broker ----------------------------------------------------------------

    def _info(self) -> dict[str, Any]:
        from ... import __version__

        return {"version": __version__, "url": self._broker.url, "clock": self._broker.clock.mode}

    def _create_vhost(self, name: str | None = None) -> dict[str, str]:
        """Create a virtual host with a free name, or with this one; an existing one is used."""
        if name is None:
            hosts = self._broker.runtime.broker.virtual_hosts
            with self._lock:
                name = next(free for number in self._numbers if (free := f"test-{number}") not in hosts)
        at = self._broker.vhost(name)
        return {"name": at.name, "url": at.url}

    def _delete_vhost(self, name: str) -> None:
        self._broker.known_vhost(name)
        self._broker.vhost(name).delete()

    def _reset(self, vhost: str | None = None, clock: Any = None) -> None:
        """Reset the broker, or one virtual host."""
        if vhost is None:
            self._broker.reset(clock=clock)
        else:
            self._broker.known_vhost(vhost)
            self._broker.at(vhost).reset(clock=clock)

    def _history(
        self,
        kinds: list[str] | None = None,
        queue: str | None = None,
        message: int | None = None,
        vhost: str | None = None,
    ) -> Any:
        if isinstance(kinds, str):
            raise WrongValue(f"history: kinds: {kinds!r} is invalid, expected a list of kinds")
        return self._broker.history(*(kinds or ()), queue=queue, message=message, vhost=vhost)

    def _clock(self) -> dict[str, Any]:
        clock = self._broker.clock
        return {"mode": clock.mode, "elapsed": clock.elapsed, "now": clock.now()}

    def _advance(
        self, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> dict[str, Any]:
        self._broker.clock.advance(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        return self._clock()

    def _travel(self, when: str) -> dict[str, Any]:
        """Travel to a time in ISO 8601."""
        self._broker.clock.travel_to(datetime.fromisoformat(when))
        return self._clock()

    def _running_faults(self) -> list[dict[str, Any]]:
        with self._lock:
            self._forget_ended()
            return [{"id": id_, "fault": name} for id_, (name, _) in self._faults.items()]

    def _forget_ended(self) -> None:
        """Forget faults that ended with a reset or a deletion. Call it with the lock."""
        in_force = self._broker.runtime.faults
        self._faults = {id_: one for id_, one in self._faults.items() if one[1] in in_force}

    def _start_fault(self, fault: str, **arguments: Any) -> dict[str, Any]:
        """Start a fault by name, with its arguments; it lasts until it is stopped, or until the broker or its virtual
        host is reset.
        """
        if fault not in FAULTS:
            raise WrongValue(f"no fault {fault!r}{nearest(fault, FAULTS)}")
        start = getattr(self._broker.faults, fault)
        _check_names(fault, start, arguments)
        started = start(**arguments)
        with self._lock:
            id_ = next(self._numbers)
            self._faults[id_] = fault, started
        return {"id": id_, "fault": fault}

    def _stop_fault(self, id: int) -> None:
        with self._lock:
            self._forget_ended()
            if id not in self._faults:
                raise WrongValue(f"no fault {id!r} is running")
            _, fault = self._faults.pop(id)
        fault.stop()


def _check_names(name: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Check that arguments are known and have their types, and that none is missing.

    Raises: WrongValue; for an unknown name with a similar one, if there is any.
    """
    signature = inspect.signature(function)
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())
    for key in arguments:
        if key not in signature.parameters and not takes_any:
            raise WrongValue(f"{name}: unknown argument {key!r}{nearest(key, signature.parameters)}")
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise WrongValue(f"{name}: {error}") from None
    for key, value in arguments.items():
        parameter = signature.parameters.get(key)
        if parameter is not None and not _fits(value, parameter.annotation):
            raise WrongValue(f"{name}: {key}: {value!r} is invalid, expected {_title(parameter.annotation)}")


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a value has one of the plain types in the annotation; an int is also a float.

    Annotations with other types accept any value.
    """
    types = get_args(annotation) or (annotation,)
    if not all(one in (str, int, float, bool, bytes, type(None)) for one in types):
        return True
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, tuple(types)) or (float in types and isinstance(value, int))


def _title(annotation: Any) -> str:
    types = get_args(annotation) or (annotation,)
    return " or ".join("null" if one is type(None) else one.__name__ for one in types)
