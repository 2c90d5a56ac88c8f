"""The encoder, its heads and its initialisation. Code here takes numbers and modules, never the
configuration."""
