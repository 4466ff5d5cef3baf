"""The contents of all configuration files together."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar, cast, overload

from ..addresses.repository import NO_SETTINGS, SettingsRepository
from ..faults import Origin
from ..frozen import frozen
from ..policies.policy import Policy
from ..profiles import PROFILES, Profile
from ..rows.broker_keys import KEY_OF, KEYS, BrokerKeys, JournalKeys, LimitKeys, ManagementKeys, TlsKeys
from ..rows.cluster import ClusterKeys, ClusterTlsKeys, EtcdTlsKeys
from ..rows.flow_control import Flow, SystemUsage, WholeLimits
from .declarations import Divert, ExchangeDeclaration, LimitsDeclaration, LoggedTopic, QueueDeclaration, UserDeclaration

T = TypeVar("T")


class _Table:
    """The values of one table as attributes; each is looked up when it is read."""

    def __init__(self, configuration: "Configuration", name: str) -> None:
        self._configuration, self._name = configuration, name

    def __getattr__(self, attribute: str) -> Any:
        return self._configuration.value(self._name, KEY_OF[self._name][attribute])


class _TableOf(Generic[T]):
    """A descriptor: the values of one table, typed as the class of its keys (`BrokerKeys` for `broker`)."""

    def __init__(self, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, configuration: None, owner: type) -> Self: ...
    @overload
    def __get__(self, configuration: "Configuration", owner: type) -> T: ...

    def __get__(self, configuration: "Configuration | None", owner: type) -> T | Self:
        return self if configuration is None else cast(T, _Table(configuration, self._name))


@frozen
class Configuration:
    """The contents of all files. `explicit` has the keys that they set; `value` also gives defaults."""

    explicit: Mapping[tuple[str, str], Any] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] = field(default=())
    repository: SettingsRepository = field(default=NO_SETTINGS)
    queues: tuple[QueueDeclaration, ...] = field(default=())
    exchanges: tuple[ExchangeDeclaration, ...] = field(default=())
    diverts: tuple[Divert, ...] = field(default=())
    vhosts: tuple[str, ...] = field(default=())  # declared, or named by a declared object; without "/"
    origins: Mapping[tuple[str, str], Origin] = field(default_factory=lambda: MappingProxyType({}))  # of `explicit`
    limits: Mapping[str, LimitsDeclaration] = field(default_factory=lambda: MappingProxyType({}))  # by virtual host
    users: tuple[UserDeclaration, ...] = field(default=())
    policies: tuple[Policy, ...] = field(default=())
    system_usage: SystemUsage | None = None  # None: without [system-usage]
    logged_topics: tuple[LoggedTopic, ...] = ()
    included: tuple[str, ...] = ()  # files that the given ones include
    is_clustered: bool = False  # whether a file has [cluster]

    broker = _TableOf[BrokerKeys]("broker")
    journal = _TableOf[JournalKeys]("journal")
    broker_limits = _TableOf[LimitKeys]("limits")  # `limits` are those of virtual hosts
    management = _TableOf[ManagementKeys]("management")
    tls = _TableOf[TlsKeys]("tls")
    cluster = _TableOf[ClusterKeys]("cluster")
    cluster_tls = _TableOf[ClusterTlsKeys]("cluster.tls")
    etcd_tls = _TableOf[EtcdTlsKeys]("cluster.etcd-tls")

    def value(self, table: str, key: str) -> Any:
        """The value of `[table] key`, or its default, which may depend on the profile."""
        row = KEYS[table][key]
        value = self.explicit.get((table, key), row.default)
        return getattr(self.profile, row.by_profile) if value is None and row.by_profile else value

    @property
    def flow(self) -> Flow:
        return Flow(**{row.attribute: self.value("flow", key) for key, row in KEYS["flow"].items()})

    @property
    def whole_limits(self) -> WholeLimits:
        """Limits for all addresses together."""
        octets, messages = self.value("broker", "global-max-size"), self.value("broker", "global-max-messages")
        return WholeLimits(octets if octets >= 0 else None, messages if messages >= 0 else None)

    @property
    def profile(self) -> Profile:
        """The profile that the broker follows."""
        return PROFILES[self.value("broker", "profile")]
