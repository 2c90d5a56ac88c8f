"""Checkpoint <-> Hugging Face folder."""
