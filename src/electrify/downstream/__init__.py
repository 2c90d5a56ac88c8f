"""Hugging Face folder -> scores on a task, by fine-tuning."""
