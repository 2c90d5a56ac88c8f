"""The encoder, its heads and its initialisation. Takes numbers and modules, never the
configuration."""
