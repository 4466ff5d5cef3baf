"""Flow control: how much there is of what is limited, who waits for room, and whose turn it is when there is some."""
