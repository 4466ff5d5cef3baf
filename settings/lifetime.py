"""When a change of the configuration takes effect in a broker that reloads it. Source: address-settings page 3.8."""

from enum import Enum


class Lifetime(Enum):
    """The values are the texts of `leveret diff` and docs/configuration.md."""

    LIVE = "at once"
    #: Applied to messages as they arrive; messages already in a queue stay as they are.
    ARRIVAL = "messages that come from now on"
    AT_CREATION = "new queues only"
    AT_BINDING = "new bindings only"
    #: Of leased queues: what one consumer may have.
    AT_CONSUMER = "new consumers only"
    #: Sent to a client, or fixed for it, when it connects.
    AT_CONNECTION = "new connections only"
    #: Of the profile: some of it is fixed when a client connects.
    MIXED = "at once; product-version, message-size and channel.flow: new connections only"
    RESTART = "when the broker starts anew"
    #: For an existing queue of the configuration.
    NEVER = "not on a queue that exists: delete it first"
    #: Accepted for the files of other brokers: there is nothing here that it could be about.
    WITHOUT_MEANING = "never: it means nothing here"


(
    LIVE,
    ARRIVAL,
    AT_CREATION,
    AT_BINDING,
    AT_CONSUMER,
    AT_CONNECTION,
    MIXED,
    RESTART,
    NEVER,
    WITHOUT_MEANING,
) = Lifetime
