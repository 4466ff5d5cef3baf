"""How a follower's journal becomes a copy of the leader's: what it cuts, where it continues, and the full copy."""
