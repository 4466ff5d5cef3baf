"""Leveret beside the real thing: brokers started for a test (`brokers.peers`), the clients' own test suites (`suites`),
and scenarios by drivers of real clients against any broker (`python -m leveret.interop`).

Everything here is a tool for developing or judging a broker; the broker itself never imports it. A peer is a process of
its own on a free loopback port with a directory of its own, so several of them, of either kind, run side by side and
leave nothing behind. Everything in this room listens on 127.0.0.1 only, and connects only to that or to a given URL.

Rooms, each of which imports only those before it: `wire` < `brokers` < `running` < `suites`, `workers`, `flow`;
`artemis` and `differential` import only `wire` and `brokers`. `drivers` are programs in many languages, `scenarios` are
data.
"""
