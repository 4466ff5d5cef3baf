"""Users, their permissions, and limits of virtual hosts, as a configuration declares them. Frozen.

Source: interfaces page, "Configuration keys"; behaviour page 3.13 to 3.15.
"""

from dataclasses import dataclass, field

from ..faults import Origin

USER_TAGS = ("administrator", "monitoring", "policymaker", "management", "impersonator", "x-internal-link")


@dataclass(slots=True, frozen=True)
class TopicPermissionDeclaration:
    """`[[user.topic-permission]]`: patterns on the keys of one topic exchange."""

    vhost: str
    exchange: str
    write: str = ".*"
    read: str = ".*"


@dataclass(slots=True, frozen=True)
class PermissionDeclaration:
    """`[[user.permission]]`: patterns on names. An empty one allows nothing."""

    vhost: str
    configure: str = ""
    write: str = ""
    read: str = ""


@dataclass(slots=True, frozen=True)
class UserDeclaration:
    """`[[user]]`. Either `password` or `password_hash`; neither: no login by password. Limits: None is no limit."""

    name: str
    password: str = field(default="", repr=False)
    password_hash: str = field(default="", repr=False)
    hashing_algorithm: str = "rabbit_password_hashing_sha256"
    tags: frozenset[str] = frozenset()
    loopback_only: bool = False
    max_connections: int | None = None
    max_channels: int | None = None
    permissions: tuple[PermissionDeclaration, ...] = ()
    topic_permissions: tuple[TopicPermissionDeclaration, ...] = ()
    origin: Origin = field(default=Origin("", 0), compare=False)
    password_origin: Origin = field(default=Origin("", 0), compare=False)

    def __str__(self) -> str:
        """Text for people, without secrets."""
        grants = ", ".join(
            f"{one.vhost}: {one.configure!r} {one.write!r} {one.read!r}" for one in sorted(self.permissions, key=str)
        )
        return f"tags {' '.join(sorted(self.tags)) or 'none'}; permissions {grants or 'none'}"


@dataclass(slots=True, frozen=True)
class LimitsDeclaration:
    """`[[vhost]]` limits, and the default type of queues; None: not set, no limit."""

    max_connections: int | None = None
    max_queues: int | None = None
    default_queue_type: str | None = None


NO_LIMITS_DECLARED = LimitsDeclaration()
