"""Expressions over messages: content filters as AMPS has them, and selectors of JMS. One grammar, two dialects.

A leaf: it imports nothing of ours. Text in, functions of a `Subject` out; no I/O, no clock. `language` is the door.
`patterns` are regular expressions whose time is bounded, also for permissions and policies; `functions` are those of
expressions. The path of a text: tokens, parser, (printing), compiling, expression. Source: queues page B.
"""
