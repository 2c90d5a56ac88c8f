"""Tokens -> Corrupted. Corruptors write, they never compute a loss."""
