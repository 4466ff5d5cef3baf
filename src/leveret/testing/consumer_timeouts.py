"""Warnings about consumer timeouts that virtual time causes: the client was not slow, the clock was moved."""

import logging
from collections.abc import Callable

from ..engine import SessionFailed, errors

logger = logging.getLogger("leveret.testing")


def handler_with_warning(
    connection: Callable[[], str], ended: Callable[[SessionFailed], None]
) -> Callable[[SessionFailed], None]:
    """A handler of sessions that the engine ends, which warns first if the reason is a timeout.

    `connection`: its name.
    """

    def session_failed(effect: SessionFailed) -> None:
        if isinstance(effect.error, errors.AcknowledgementTimedOut):
            logger.warning(
                "virtual time was moved past the consumer time-out (%g s) of %s: it holds a delivery that it has not "
                "settled, and its channel is closed; settle it before, or set consumer-timeout = -1 in [broker]",
                effect.error.timeout_ms / 1000,
                connection(),
            )
        ended(effect)

    return session_failed
