"""The training loop and what it needs: optimiser, schedule, ranks, checkpoints, log, monitors. And
the names in a run folder."""

CONFIG = "config.yaml"
FACTS = "run.json"
METRICS = "metrics.jsonl"
BOARD = "tensorboard"
WANDB = "wandb"
GENERATOR_STAGE = "generator-stage"
"""The folder, inside a run, of the run that made its generator."""
