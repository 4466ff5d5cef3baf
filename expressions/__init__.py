"""Expressions over messages: AMPS' content filters, and JMS selectors. One grammar, two dialects.

A leaf: it imports no other room. Text in, functions of a `Subject` out; no I/O, no clock. `language` is the interface
for other rooms. `patterns` are regular expressions with bounded time, also for permissions and policies; `functions`
are those of expressions. The path of a text: tokens, parser, (printing), compiling, expression. Source: queues page B.
"""
