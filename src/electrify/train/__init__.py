"""The loop and what it stands on: optimiser, schedule, ranks, checkpoints, log, monitors."""
