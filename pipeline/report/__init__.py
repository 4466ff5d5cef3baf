"""The page of `leveret pipeline report`: one HTML file that needs no network."""
