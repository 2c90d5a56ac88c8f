"""GLUE's test sets: predictions as files, and the archive that its server accepts (a TSV of index
and prediction for each test set)."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..oldfiles.folders import sha256
from ..oldfiles.inside import make_inside
from ..oldfiles.reading import read_bytes
from ..oldfiles.results import keep_changed, write_results
from ..oldfiles.whole import write_atomically
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


def write_files(
    folder: Path, files: Mapping[str, str], *, top: Path, earlier: Mapping[str, str]
) -> None:
    """Each file whole or not at all, in a folder below `top`; other content under its name is kept
    under another one, unless it is what an earlier run wrote. earlier: the hashes of that, by name.
    Raises UserError if a link leads out of `top`."""
    for name, content in files.items():
        make_inside(folder, top)
        there = sha256(folder / name)
        if there != hashlib.sha256(content.encode("utf-8")).hexdigest():
            if there is None or there != earlier.get(name):
                keep_changed(folder / name)
            write_atomically(folder / name, content)


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
                read_bytes(path, within=out),
                zipfile.ZIP_DEFLATED,
            )
    target = out / f"submission-{name}.zip"
    write_results(out, {target.name: archive.getvalue()})
    missing = [test for test in expected() if f"{test}.tsv" not in files]
    return [
        f"{target}: {len(files)} test sets"
        + (f"; GLUE's server also wants {', '.join(missing)}" if missing else "")
    ]
