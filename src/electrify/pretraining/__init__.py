"""One run: what it starts from, its plan, its two stages, what is looked at before it."""
