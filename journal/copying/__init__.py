"""Copying: a follower of a cluster takes its leader's journal octet by octet, and a leader reads it for that."""
