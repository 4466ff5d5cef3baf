"""What to say of an exception of Spark's, which is some hundred lines of Java and Python."""


def last_words(error: Exception) -> str:
    """Our own message within Spark's report, or its first line."""
    text = str(error)
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("leveret.") and ": " in words:
            return words.split(": ", 1)[1]
    return (text.strip().splitlines() or [type(error).__name__])[0]
