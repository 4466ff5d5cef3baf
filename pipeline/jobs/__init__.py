"""Jobs on a lake. Most of them return SQL over the lake's tables (tables.py), with the columns of outputs.py.

commands.py runs them for the command line. Many jobs start from `lives`: one row per (message, queue).
"""
