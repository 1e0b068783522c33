"""The catalogue: one pathology, one file."""
