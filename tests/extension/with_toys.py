"""`python with_toys.py WORDS`: electrify WORDS with a toy objective, two toy corruptors and a toy
architecture among its rows."""

from __future__ import annotations

import sys

import toy_architecture
import toy_corruptor
import toy_generator
import toy_objective

from electrify.tables import ARCHITECTURES, CORRUPTORS, OBJECTIVES


def put_in() -> None:
    OBJECTIVES["toy_margin"] = toy_objective.ROW
    CORRUPTORS["toy_shift"] = toy_corruptor.ROW
    CORRUPTORS["toy_guess"] = toy_generator.ROW
    ARCHITECTURES["toy_prenorm"] = toy_architecture.ROW


if __name__ == "__main__":
    put_in()
    from electrify.cli import main

    sys.exit(main(sys.argv[1:]))
