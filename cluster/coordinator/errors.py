"""Errors of requests to the coordinator."""


class CoordinatorError(Exception):
    """Base class."""


class Unreachable(CoordinatorError):
    """No member answered, and nothing was changed: the request only reads, was not sent, or was refused."""


class InDoubt(CoordinatorError):
    """The request was sent, but no answer was read: it may take effect, now or later. Only the keys can tell."""


class UnfitCoordinator(CoordinatorError):
    """An operator has to act: etcd's version is refused, a login fails, keys are not ours, or this is not etcd."""
