"""For authors: the docs generator and the scaffold of a new detector."""
