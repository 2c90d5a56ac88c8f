"""Writes the golden curves anew:  python tests/golden/make.py [RECIPE...]

They move only on purpose. Run this after a change that is meant to change the numbers of a step
(initial values, draws, masking, losses, optimiser, schedule), look at the difference it prints, and
say in the commit why it moved. Never run it to turn a red test green.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parent.parent)
)  # tests/batches.py; pytest puts it there by itself

from curves import HERE, RECIPES, curve, read, write


def main(names: list[str]) -> None:
    for name in names:
        path = HERE / f"{name}.txt"
        old = read(path.read_text(encoding="utf-8")) if path.exists() else []
        with tempfile.TemporaryDirectory() as folder:
            text = write(name, curve(name, folder=Path(folder)))
        path.write_text(text, encoding="utf-8")
        moves = [
            abs(was[key] - now[key])
            for was, now in zip(old, read(text), strict=False)
            for key in was.keys() & now.keys()
        ]
        print(f"{path.name}: " + (f"moved by at most {max(moves):.6f}" if moves else "new"))


if __name__ == "__main__":
    main(sys.argv[1:] or list(RECIPES))
