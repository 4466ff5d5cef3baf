"""One connection between wire and engine: handles events, turn by turn. No code in this folder waits."""
