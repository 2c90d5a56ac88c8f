"""GLUE's test sets: predictions as files, and the archive that its server accepts (a TSV of index
and prediction for each test set)."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..files import write
from .glue_tasks import GLUE
from .tasks import TaskData

Candidate = tuple[
    TaskData, Path, Mapping[str, float]
]  # a run: its task, the folder of its predictions, its development scores


def expected() -> list[str]:
    """Names of the files of a whole submission."""
    return [name for task in GLUE.values() for name in task.test_files]


def answers_tsv(answers: Sequence[str]) -> str:
    """A file of a submission: index and prediction."""
    return "index\tprediction\n" + "".join(f"{k}\t{answer}\n" for k, answer in enumerate(answers))


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Each file whole or not at all; the folder is made if there are any."""
    for name, content in files.items():
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / name, content)


def assemble(out: Path, runs: Iterable[Candidate], *, name: str) -> list[str]:
    """OUT/submission-NAME.zip: for each task the predictions of the run with the best first metric.
    Returns lines that say what is in it.

    Nothing is written if there was no test set. The archive's bytes depend on its files only.
    """
    best: dict[str, Candidate] = {}
    for run in runs:
        task, _, scores = run
        if task.test and (
            task.name not in best or scores[task.metrics[0]] > best[task.name][2][task.metrics[0]]
        ):
            best[task.name] = run
    files = {
        f"{test}.tsv": folder / f"{test}.tsv"
        for task, folder, _ in best.values()
        for test, _ in task.test
    }
    if not files:
        return ["there is no test set to predict: a task's folder holds it as test.tsv"]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
        for file, path in sorted(files.items()):
            z.writestr(
                zipfile.ZipInfo(file, date_time=(1980, 1, 1, 0, 0, 0)),
                path.read_bytes(),
                zipfile.ZIP_DEFLATED,
            )
    target = out / f"submission-{name}.zip"
    write(target, archive.getvalue())
    missing = [test for test in expected() if f"{test}.tsv" not in files]
    return [
        f"{target}: {len(files)} test sets"
        + (f"; GLUE's server also wants {', '.join(missing)}" if missing else "")
    ]
