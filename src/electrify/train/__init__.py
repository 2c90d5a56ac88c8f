"""The training loop and what it needs: optimiser, schedule, ranks, checkpoints, log, monitors."""
