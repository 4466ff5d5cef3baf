"""Leveret beside the real thing: brokers started for a test (`brokers.peers`), the clients' own test suites (`suites`),
and scenarios by drivers of real clients against any broker (`python -m leveret.interop`).

Everything here is a tool for people who develop or judge a broker; the broker itself never imports it. A peer is a
process of its own on a free loopback port with a directory of its own, so several of them, of either kind, run side by
side and leave nothing behind. Nothing in this room listens on anything but 127.0.0.1, nor dials anything else but a URL
that it is given.

Rooms, each of which imports only those before it: `wire` < `brokers` < `running` < `suites`, `workers`; `artemis` and
`differential` stand on `wire` and `brokers` alone. `drivers` are programs in many languages, `scenarios` are data.
"""
