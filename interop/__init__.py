"""Leveret beside the real thing: brokers started for a test (`peers`), the clients' own test suites (`clients`),
and scenarios by drivers of real clients against any broker (`python -m leveret.interop`).

Everything here is a tool for people who develop or judge a broker; the broker itself never imports it. A peer is a
process of its own on a free loopback port with a directory of its own, so several of them, of either kind, run side by
side and leave nothing behind. Nothing in this room listens on anything but 127.0.0.1, nor dials anything else but a URL
that it is given.
"""
