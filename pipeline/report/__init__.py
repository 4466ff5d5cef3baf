"""The page of `leveret pipeline report`: from figures to one HTML file that needs no network."""
