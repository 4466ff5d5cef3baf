"""The test broker for other languages: `leveret test-server`, its HTTP interface, and clients of it.

docs/test-server.md describes it.
"""
