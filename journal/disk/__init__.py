"""Files, the directory and its segments, the writer's thread, the reserve."""
