"""The programs of `leveret demo`: troublesome clients of a broker, and the console's pages that show the trouble."""
