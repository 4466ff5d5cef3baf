"""Files, the directory and its segments, the thread that writes them, room that is held back."""
