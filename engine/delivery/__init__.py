"""Who gets the next message: consumers and their credit, whose turn it is, groups."""
