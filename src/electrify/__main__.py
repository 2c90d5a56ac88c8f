"""`python -m electrify`, also for torchrun."""

from .cli import program

program()
