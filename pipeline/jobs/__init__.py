"""Jobs on a lake: each takes the tables of a lake (tables.py) and returns SQL with the columns of its output
(outputs.py).

`commands` runs them for the command line. Most jobs start from `lives`: one row per (message, queue).
"""
