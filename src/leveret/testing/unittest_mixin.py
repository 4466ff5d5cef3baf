"""The test broker for unittest: one broker for each class, reset for each test."""

import unittest
from typing import TYPE_CHECKING, ClassVar

from .broker import RunningBroker
from .engine_clock import ClockMode
from .options import QUIET_MS_DEFAULT, Config
from .start import start_broker
from .typos import check_attributes

if TYPE_CHECKING:
    _Base = unittest.TestCase
else:
    _Base = object


_OPTIONS = ("amqp_clock", "amqp_config", "amqp_profile", "amqp_quiet_ms", "amqp_fail_on_leak", "amqp_leaked_queues")


class BrokerTestMixin(_Base):
    """Put it before `unittest.TestCase`: each test has `self.amqp_broker` and `self.amqp_url`.

    Class attributes choose the broker. With `amqp_fail_on_leak` a test fails if it leaves connections behind, and with
    `amqp_leaked_queues` if it leaves queues. The check runs after the test's own clean-ups.
    """

    amqp_clock: ClassVar[ClockMode] = "real"
    amqp_config: ClassVar[Config | None] = None
    amqp_profile: ClassVar[str | None] = None
    amqp_quiet_ms: ClassVar[float] = QUIET_MS_DEFAULT
    amqp_fail_on_leak: ClassVar[bool] = False
    amqp_leaked_queues: ClassVar[bool] = False
    amqp_broker: ClassVar[RunningBroker]

    @classmethod
    def setUpClass(cls) -> None:
        """Start the class's broker. Raises: TypeError for a misspelt class attribute."""
        check_attributes(cls, _OPTIONS)
        super().setUpClass()
        context = start_broker(
            clock=cls.amqp_clock, config=cls.amqp_config, profile=cls.amqp_profile, quiet_ms=cls.amqp_quiet_ms
        )
        cls.amqp_broker = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def setUp(self) -> None:
        """Reset the broker, and create a virtual host for this test."""
        self.amqp_broker.reset()
        self.amqp_broker.default_vhost = "test " + self.id()[-120:]
        self.amqp_broker.vhost()
        self.addCleanup(self._look_for_leaks)  # added first, so run last
        super().setUp()

    @property
    def amqp_url(self) -> str:
        """The URL for clients."""
        return self.amqp_broker.url

    def _look_for_leaks(self) -> None:
        leaks = self.amqp_broker.leaks(queues=self.amqp_leaked_queues) if self.amqp_fail_on_leak else []
        if leaks:
            self.fail("left behind in the broker:\n" + "\n".join(leaks))
