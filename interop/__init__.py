"""Tests with other people's software: other brokers (`brokers`), the test suites of clients (`suites`), and scenarios
that real clients run against any broker (`python -m leveret.interop`).

These are tools for developing and judging a broker, which never imports them. A peer is a broker in its own process,
with a free port and a temporary directory, so that several run side by side and leave nothing behind. All listen on
127.0.0.1 only, and connect only to that or to a given URL.

docs/architecture.md says which folder may import which. `drivers` are programs in many languages; `scenarios` and
`leases` are data.
"""
