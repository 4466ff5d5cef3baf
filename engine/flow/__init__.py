"""Flow control: the use of limits, the clients that wait for room, and the order in which they continue."""
