"""The configurations of the brokers for the rows."""

from __future__ import annotations

#: For rows in which one address is full.
ADDRESSES = """
[[address-setting]]
match = "E01.#"
memory-limit = "1MiB"
cursor = "vm"

[[address-setting]]
match = "small.#"
memory-limit = "64KiB"
cursor = "vm"

[[address-setting]]
match = "fails.#"
memory-limit = "1MiB"
cursor = "vm"
send-fail-if-no-space = true

[[address-setting]]
match = "later.#"
memory-limit = "1MiB"
cursor = "vm"
send-fail-if-no-space-after = 500

[[address-setting]]
match = "block.#"
max-size-messages = 40
address-full-policy = "BLOCK"

[[address-setting]]
match = "fail.#"
max-size-messages = 40
address-full-policy = "FAIL"

[[address-setting]]
match = "constant.#"
pending-message-limit = 10

[[address-setting]]
match = "rate.#"
pending-message-limit-prefetch-rate = 2.5

[[address-setting]]
match = "unique.#"
pending-message-limit = 10
message-eviction = "unique-property"
message-eviction-property = "symbol"

[[address-setting]]
match = "all.#"
pending-message-limit = -1

[[address-setting]]
match = "none.#"
pending-message-limit = 0

[[address-setting]]
match = "abort.#"
abort-slow-consumer-after = 2000
abort-slow-consumer-check-period = 500

[[address-setting]]
match = "close.#"
abort-slow-consumer-after = 2000
abort-slow-consumer-check-period = 500
abort-slow-consumer-connection = true

[[address-setting]]
match = "spools.#"
memory-limit = "64KiB"
producer-flow-control = false
"""

#: For rows in which the broker as a whole is full.
MEMORY = """
[system-usage]
memory = "1MiB"
store = 0
temp = 0
"""

#: Few octets are held for a connection before its socket is left unread.
UNREAD = """
[system-usage]
memory = "1MiB"
store = 0

[flow]
hold-bytes = "64KiB"
hold-spool = 0
"""

#: The same, and a connection without any progress is closed.
STALL = (
    UNREAD
    + """
max-stall = "1s"
"""
)

#: Clients of Java and Go get channel.flow, by their product names.
CHANNEL_FLOW = """
[flow]
use-channel-flow = ["RabbitMQ", "AMQP 0.9.1 Client"]

[[address-setting]]
match = "#"
memory-limit = "64KiB"
cursor = "vm"
"""

#: Messages over the limit go to the temp store, which is small.
TEMP = """
[system-usage]
memory = 0
store = 0
temp = "1MiB"

[[address-setting]]
match = "#"
memory-limit = "64KiB"
cursor = "file"
producer-flow-control = false
"""

#: The store is small; producer flow control is off.
STORE = """
[system-usage]
memory = 0
store = "5MiB"
temp = 0

[[address-setting]]
match = "#"
producer-flow-control = false
"""

WORLDS = {
    "addresses": ADDRESSES,
    "memory": MEMORY,
    "unread": UNREAD,
    "stall": STALL,
    "channel-flow": CHANNEL_FLOW,
    "temp": TEMP,
    "store": STORE,
}
#: Configurations whose limit all clients share, so that clients run a row one after the other.
SHARED = frozenset(WORLDS) - {"addresses", "channel-flow"}
