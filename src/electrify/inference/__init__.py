"""Hugging Face folder -> labels, tags, answers and vectors of new texts."""
