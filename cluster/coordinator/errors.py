"""What can go wrong between a node and the coordinator."""


class CoordinatorError(Exception):
    """Base class."""


class Unreachable(CoordinatorError):
    """No member answered, and nothing was changed: the request was not sent, or was refused, or only read."""


class InDoubt(CoordinatorError):
    """The request was sent and its answer was not read: it may take effect, now or later. Read the keys to know."""


class UnfitCoordinator(CoordinatorError):
    """An operator has to act: a version that is refused, a login that fails, keys that are not ours, no etcd at all."""
