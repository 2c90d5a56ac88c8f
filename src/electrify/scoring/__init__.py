"""Hugging Face folder -> scores of a text, without training."""
