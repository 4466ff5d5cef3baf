"""The programs of `leveret demo`: clients that make a broker work badly, and the places where its console shows it."""
