"""The options of `start_broker`: `read_options` reads and checks them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from os import PathLike, fspath
from tempfile import gettempdir
from typing import Any

from ..configured.host_capacity import fitted_to_host
from ..configured.input_files import open_input
from ..settings import Configuration, load_configuration
from ..settings.rows.broker_keys import KEYS
from .engine_clock import ClockMode
from .typos import CLOCKS, check_word

LOOPBACK = "127.0.0.1"
#: Real time without activity before virtual time advances, in milliseconds (ruling 25).
QUIET_MS_DEFAULT = 3


@dataclass(slots=True, frozen=True)
class RuntimeOptions:
    """The options of `start_broker`, as `read_options` returns them. `host`, `port` and `seed` are not checked."""

    configuration: Configuration
    clock: ClockMode = "real"
    clock_start_ms: int | None = None  # wall time; None: now, or, with `data` in virtual time, the last end
    quiet_ms: float = QUIET_MS_DEFAULT
    virtual_heartbeats: bool = False
    history_max: int = 100_000  # events that `broker.history` keeps
    seed: int | None = None
    data: str | None = None  # directory of the journal; None: everything in memory
    management: bool = False
    host: str = LOOPBACK  # an IPv4 address of this machine; "" or 0.0.0.0: all
    port: int = 0  # 0: a free one


def reachable(host: str) -> str:
    """The host by which clients on this machine reach a listener on `host`."""
    return LOOPBACK if host in ("", "0.0.0.0") else host


#: Values of `config`: the path of a file, TOML or XML as text, or a dict in the shape of the TOML. A str that has "="
#: or a line break, or begins with "[" or "<", is text: give such a path as a Path.
Config = str | PathLike[str] | Mapping[str, Any]


class BrokerOptionsError(ValueError):
    """Invalid options of the test broker. The message has the first invalid option, or every fault of `config`."""


def read_options(
    *,
    clock: ClockMode = "real",
    config: Config | None = None,
    profile: str | None = None,
    data: str | PathLike[str] | None = None,
    clock_start: datetime | None = None,
    quiet_ms: float = QUIET_MS_DEFAULT,
    virtual_heartbeats: bool = False,
    seed: int | None = None,
    management: bool = False,
    host: str = LOOPBACK,
    port: int = 0,
) -> RuntimeOptions:
    """Check the options of `start_broker`, except host, port and seed. Raises: BrokerOptionsError."""
    check_word("clock", clock, CLOCKS, BrokerOptionsError)
    if not quiet_ms >= 0:
        raise BrokerOptionsError(f"quiet_ms: {quiet_ms!r} is invalid, expected milliseconds")
    if management and find_spec("h11") is None:
        raise BrokerOptionsError('management: needs the console, expected: pip install "leveret[console]"')
    configuration = _configuration(config)
    if configuration.system_usage is not None:
        configuration = fitted_to_host(configuration, gettempdir() if data is None else fspath(data))
    if profile is not None:
        try:
            explicit = {**configuration.explicit, ("broker", "profile"): KEYS["broker"]["profile"].kind.read(profile)}
        except ValueError as error:
            raise BrokerOptionsError(f"profile: {profile!r} is invalid, expected {error}") from None
        configuration = replace(configuration, explicit=explicit)
    start_ms = None
    if clock_start is not None:
        start = clock_start if clock_start.tzinfo is not None else clock_start.replace(tzinfo=UTC)
        start_ms = round(start.timestamp() * 1000)
    return RuntimeOptions(
        configuration,
        clock,
        start_ms,
        quiet_ms,
        virtual_heartbeats,
        configuration.broker_limits.history_events,
        seed,
        None if data is None else fspath(data),
        management,
        host,
        port,
    )


def _configuration(config: Config | None) -> Configuration:
    if config is None:
        return Configuration()
    if isinstance(config, Mapping):
        try:
            name, text = "config", toml_of(config)
        except TypeError as error:
            raise BrokerOptionsError(f"config: {error}") from None
    elif isinstance(config, str) and ("\n" in config or "=" in config or config.lstrip()[:1] in ("[", "<")):
        name, text = "config", config
    else:
        name = fspath(config)
        try:
            with open(name, encoding="utf-8", opener=open_input) as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise BrokerOptionsError(f"config: {name} cannot be read: {error}") from None
    configuration, faults = load_configuration([(name, text)])
    if not faults:
        from ..configured.configured import faults_of

        problems = faults_of(configuration)
    else:
        problems = [str(fault) for fault in faults]
    if problems:
        raise BrokerOptionsError("\n".join(problems))
    return configuration


def toml_of(tables: Mapping[str, Any]) -> str:
    """TOML text. Raises: TypeError: a value is of a type that no key has (dates, too, though TOML has them)."""
    return "\n".join(f"{_key(key)} = {_value(value)}" for key, value in tables.items()) + "\n"


def _key(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    """The value as TOML; tables and arrays inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"{value!r} is not a value of a configuration")
