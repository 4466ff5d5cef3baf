"""How a follower's journal becomes a copy of the leader's: where it goes on, what it cuts, and the full copy."""
