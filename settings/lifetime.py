"""When a change of the configuration takes effect in a broker that reloads it. Source: address-settings page 3.8."""

from enum import Enum


class Lifetime(Enum):
    """In the words of `leveret diff` and of docs/configuration.md."""

    LIVE = "at once"
    #: Refused, changed, timed or sent elsewhere as they arrive: what is in a queue already stays as it is.
    ARRIVAL = "messages that come from now on"
    AT_CREATION = "new queues only"
    AT_BINDING = "new bindings only"
    #: Told to a client, or settled for it, when it connects.
    AT_CONNECTION = "new connections only"
    #: Of the profile: what clients are told when they connect, and everything else.
    MIXED = "at once; product-version, message-size and channel.flow: new connections only"
    RESTART = "when the broker starts anew"
    #: Of a queue that is declared in the configuration and exists.
    NEVER = "not on a queue that exists: delete it first"
    #: Accepted for what is to come.
    NOT_YET = "never: it means nothing in this version"


LIVE, ARRIVAL, AT_CREATION, AT_BINDING, AT_CONNECTION, MIXED, RESTART, NEVER, NOT_YET = Lifetime
