"""What a user may do at the API: by tags, by permissions in virtual hosts, and by the levels of routes.

Source: management page 1.5.
"""

from collections.abc import Container

from ..engine import Queue, User
from .dispatcher import Level
from .http_messages import Request, access_refused, not_authorised

#: Tags that admit a user to the API.
TAGS = frozenset({"administrator", "monitoring", "policymaker", "management"})
_MONITORS, _POLICYMAKERS = frozenset({"administrator", "monitoring"}), frozenset({"administrator", "policymaker"})


def is_administrator(user: User) -> bool:
    """Whether the user may do everything."""
    return "administrator" in user.tags


def is_monitor(user: User) -> bool:
    """Whether the user may see nodes, and all connections and channels."""
    return not _MONITORS.isdisjoint(user.tags)


def is_policymaker(user: User) -> bool:
    """Whether the user may set policies and parameters."""
    return not _POLICYMAKERS.isdisjoint(user.tags)


def has_vhost(user: User, vhost: str) -> bool:
    """Whether the user has a permission entry in the virtual host."""
    return user.permissions is None or vhost in user.permissions


def may_see(user: User, vhost: str) -> bool:
    """Whether the user may see the objects in a virtual host."""
    return is_administrator(user) or has_vhost(user, vhost)


def may_list(user: User, vhost: str) -> bool:
    """Whether lists of virtual hosts, and totals over them, include this one for the user."""
    return is_monitor(user) or has_vhost(user, vhost)


def missing_tag(user: User, tag: str) -> str:
    """The detail of a refusal, in words: which tag the user lacks."""
    wanted = tag if tag == "administrator" else f"{tag} or administrator"
    return f"this needs the tag {wanted}; user '{user.name}' has {', '.join(user.tags) or 'no tag'}"


def missing_vhost(user: User, vhost: str) -> str:
    """The detail of a refusal, in words: the user has no permission entry in the virtual host."""
    return f"user '{user.name}' has no permissions in vhost '{vhost}'"


def check_access(user: User, action: str, queue: Queue) -> None:
    """Check that the user may `read` from a queue or `write` to it. Raises: Refusal."""
    if not user.may(action, "queue", queue.name, queue.vhost_name):
        what = f"queue '{queue.name}' in vhost '{queue.vhost_name}'"
        raise access_refused(f"{action} access to {what} refused for user '{user.name}'")


def check_level(request: Request, level: Level, vhosts: Container[str]) -> None:
    """Check that the user may use a route of this level. Raises: Refusal.

    For a virtual host that is not among `vhosts` the route answers itself, as in RabbitMQ: 404.
    """
    user, vhost = request.user, request.names.get("V")  # V: the virtual host in the path
    if level is Level.ADMINISTRATOR and not is_administrator(user):
        raise not_authorised("Not administrator user", missing_tag(user, "administrator"))
    if level is Level.MONITORING and not is_monitor(user):
        raise not_authorised("Not monitor user", missing_tag(user, "monitoring"))
    if level is Level.POLICYMAKER and not is_policymaker(user):
        raise not_authorised("User not authorised to access object", missing_tag(user, "policymaker"))
    if level not in (Level.POLICYMAKER, Level.VHOST) or vhost is None or vhost not in vhosts:
        return
    if not may_see(user, vhost):
        what = "object" if level is Level.POLICYMAKER else "virtual host"
        raise not_authorised(f"User not authorised to access {what}", missing_vhost(user, vhost))
