"""The time at which a change of the configuration takes effect after a reload. Source: address-settings page 3.8."""

from enum import Enum


class Lifetime(Enum):
    """When a change takes effect. The values are texts of `leveret diff` and docs/configuration.md."""

    LIVE = "at once"
    #: Applied to messages when they arrive; messages in a queue do not change.
    ARRIVAL = "messages that arrive later"
    AT_CREATION = "new queues only"
    AT_BINDING = "new bindings only"
    #: For leased queues: limits of one consumer.
    AT_CONSUMER = "new consumers only"
    #: Sent to a client, or fixed for it, when it connects.
    AT_CONNECTION = "new connections only"
    #: For the profile: part of it is fixed when a client connects.
    MIXED = "at once; product-version, message-size and channel.flow: new connections only"
    RESTART = "when the broker starts anew"
    #: For an existing queue of the configuration.
    NEVER = "not on a queue that exists: delete it first"
    #: Accepted in files of other brokers, without a counterpart here.
    WITHOUT_MEANING = "never: it means nothing here"


(LIVE, ARRIVAL, AT_CREATION, AT_BINDING, AT_CONSUMER, AT_CONNECTION, MIXED, RESTART, NEVER, WITHOUT_MEANING) = Lifetime
