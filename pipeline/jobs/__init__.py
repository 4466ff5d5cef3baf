"""Jobs on a lake: each takes DataFrames and returns a DataFrame of its schema; `commands` is their command line.

Most of them start from `lives`: one row per (message, queue).
"""
