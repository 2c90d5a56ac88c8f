"""electrify from Python: each command is a function with keyword arguments and a small result.

The keywords are the flags of the command, with underscores, and the fields of a recipe. Texts and
labelled examples may be files, or objects in memory: lists, generators, pandas data frames, data
sets of `datasets`.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import UserError, nearest
from .values import kinds

if TYPE_CHECKING:
    from .recipe import Recipe

Name = str | os.PathLike[str]
TEXT = "text"


# ------------------------------------------------------------------ options and data


def options(cls: Any, function: str, given: Mapping[str, Any], **fixed: Any) -> Any:
    """The dataclass of a command's options from keywords. The fields of a dataclass inside it
    (`settings` of `finetune`) are keywords, too. Raises UserError that names a keyword which the
    function does not have, or a value that is wrong."""
    own = {f.name: f for f in dataclasses.fields(cls)}
    inner = {
        name: {f.name for f in dataclasses.fields(kind)}
        for name, kind in kinds(cls).items()
        if dataclasses.is_dataclass(kind)
    }
    known = own.keys() | set().union(*inner.values())
    for name in given:
        if name not in known:
            raise UserError(f"{function}() has no argument {name!r}{nearest(name, known)}")
    for section, names in inner.items():
        fixed[section] = kinds(cls)[section](**{n: v for n, v in given.items() if n in names})
    return cls(**fixed, **{name: value for name, value in given.items() if name in own})


def rows_of(data: Any) -> Iterator[Any]:
    """The elements of a data frame, of a data set, or of any iterable."""
    if hasattr(data, "to_dict") and hasattr(data, "columns"):
        yield from data.to_dict("records")
    else:
        yield from data


def is_named(data: Any) -> bool:
    """Whether this is the name of something to read, or a list of names, and not the texts
    themselves: a path that exists, a pattern, `pydocs` or hub:NAME."""
    if isinstance(data, str | os.PathLike):
        return True
    if not isinstance(data, list | tuple) or not data:
        return False
    return all(map(_is_name, data))


def _is_name(one: Any) -> bool:
    if not isinstance(one, str):
        return isinstance(one, os.PathLike)
    known = one == "pydocs" or one.startswith("hub:")
    return known or bool(glob.glob(os.path.expanduser(one)))


@contextmanager
def as_file(data: Any, *, columns: Sequence[str]) -> Iterator[str]:
    """The path of a file: the one that is named, or a temporary one with these rows. Rows that are
    no mappings are given these columns, as many as they have."""
    if isinstance(data, str | os.PathLike):
        yield os.fspath(data)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number, row in enumerate(rows_of(data), start=1):
                file.write(json.dumps(as_mapping(row, columns, number), default=plain) + "\n")
        yield str(path)


def as_mapping(row: Any, columns: Sequence[str], number: int) -> dict[str, Any]:
    """A row as a mapping. Raises UserError for one that is neither a mapping nor a tuple."""
    if isinstance(row, Mapping):
        return dict(row)
    cells = (row,) if isinstance(row, str) else tuple(row) if isinstance(row, Iterable) else ()
    if not 1 <= len(cells) <= len(columns):
        raise UserError(f"row {number} is {row!r:.60}. Give ({', '.join(columns)}), or a mapping")
    names = [*columns[: len(cells) - 1], columns[-1]] if len(cells) > 1 else columns[:1]
    return dict(zip(names, cells, strict=True))


def plain(value: Any) -> Any:
    """What json does not know: a number or an array of numpy."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


# ------------------------------------------------------------------ text -> corpus -> encoder


@dataclass(frozen=True)
class PreparedCorpus:
    """A corpus of shards, which `pretrain` takes in place of its folder."""

    folder: Path
    documents: int
    tokens: int
    vocab_size: int
    counts: Mapping[str, int] = field(repr=False)
    """Everything that `prepare` counted."""

    def __fspath__(self) -> str:
        return str(self.folder)


def prepare(
    texts: Any, *, output_dir: Name, preset: str | None = None, **given: Any
) -> PreparedCorpus:
    """Tokenises text into a corpus of shards. The same call resumes.

    Args:
        texts: A file, folder, glob, `pydocs` or hub:NAME; a list of these; or texts in memory: an
            iterable of str, a data frame or data set with the column `text_column`.
        output_dir: The folder of the corpus.
        preset: Defaults for a kind of text: prose, code, smiles, protein, dna or logs.
        given: Options of `electrify prepare`, such as tokenizer, vocab_size, lowercase.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .text.options import PrepareConfig, defaults_of
    from .text.prepare import prepare as made

    given = (defaults_of(preset, given) if preset else {}) | given
    fixed: dict[str, Any] = {"output_dir": os.fspath(output_dir)}
    if is_named(texts):
        one = isinstance(texts, str | os.PathLike)
        names = tuple(os.fspath(name) for name in ([texts] if one else texts))
        manifest = made(options(PrepareConfig, "prepare", given, inputs=names, **fixed))
    else:
        with as_file(texts, columns=[given.get("text_column", TEXT)]) as file:
            manifest = made(options(PrepareConfig, "prepare", given, inputs=(file,), **fixed))
    counts = manifest.counts
    return PreparedCorpus(
        Path(output_dir), counts["documents"], counts["tokens"], manifest.vocab_size, counts
    )


@dataclass(frozen=True)
class PretrainedRun:
    """A run, finished or stopped."""

    folder: Path
    exported: Mapping[str, Path]
    """The Hugging Face folder of each network; empty if the run was stopped before its end."""
    step: int
    finished: bool
    """False if a signal or `max_minutes` ended the call; the same call then resumes."""
    validation: Mapping[str, float]
    """The metrics of the last validation."""
    tokens: int
    seconds: float

    @property
    def discriminator(self) -> Path:
        """The folder of the encoder. Raises UserError if the run was stopped before its end."""
        if not self.exported:
            raise UserError(f"{self.folder} was stopped at step {self.step}: nothing is exported")
        return self.exported.get("discriminator") or next(iter(self.exported.values()))

    @property
    def history(self) -> list[dict[str, Any]]:
        """The records of the log, `kind` train, valid or event, in order."""
        from .train import METRICS
        from .train.log import read

        return read(self.folder / METRICS)


def pretrain(
    data: Any,
    *,
    output_dir: Name,
    recipe: str | Recipe = "electra-small",
    resume: Literal["auto", "never", "must"] = "auto",
    train_minutes: float | None = None,
    flops: float | None = None,
    **fields: Any,
) -> PretrainedRun:
    """Pre-trains an encoder. The same call resumes.

    Args:
        data: What `prepare` returned, its folder, or a text file, which is prepared first.
        output_dir: The folder of the run.
        recipe: A shipped name (see `recipes`), a .yaml file, a `Recipe`, or auto: the one for
            `flops` or `train_minutes`, of those measured.
        resume: auto resumes from the newest checkpoint if there is one, must fails without one,
            never refuses a folder that holds a run.
        train_minutes: Train for about this many minutes: throughput is measured, then max_steps is
            set.
        flops: With recipe auto: the FLOPs of the run.
        fields: Fields of the recipe, such as max_steps, learning_rate, mask_rate.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .recipe import load as load_recipe
    from .recipe import override
    from .train.auto import auto
    from .train.run import pretrain as trained

    if train_minutes is not None and "max_steps" in fields:
        raise UserError("train_minutes and max_steps exclude each other")
    if flops is not None and recipe != "auto":
        raise UserError("flops is for recipe auto")
    if recipe == "auto":
        budget = {"flops": flops, "minutes": train_minutes}
        data, config = auto(os.fspath(data), Path(output_dir), fields, **budget)
    else:
        base = load_recipe(recipe) if isinstance(recipe, str) else recipe
        config = override(base, fields)
    done = trained(
        os.fspath(data),
        output_dir=os.fspath(output_dir),
        config=config,
        resume=resume,
        train_minutes=train_minutes,
        given=fields,
    )
    s = done.summary
    return PretrainedRun(
        done.run, done.exported, s.step, s.finished, s.validation, s.tokens, s.seconds
    )


def recipes() -> list[dict[str, str]]:
    """The shipped recipes: name, layers, width, parameters, FLOPs, hours, what was measured."""
    from .recipe import listing

    head, *rows = listing()
    return [dict(zip(head, row, strict=True)) for row in rows]


# ------------------------------------------------------------------ encoder -> task


@dataclass(frozen=True)
class Score:
    """A metric over the seeds of fine-tuning, as a fraction."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def std(self) -> float | None:
        """The sample standard deviation; None for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class FineTuned:
    """An encoder that was fine-tuned on a task."""

    folder: Path
    """Scores, report, predictions and models."""
    scores: Mapping[str, Score]
    """By metric. With several tasks by `TASK METRIC`."""
    table: str = field(repr=False)
    """The report as a table of text."""
    model: Path | None
    """The saved model of the first seed, which transformers loads; None where none was saved."""

    def predict(self, texts: Any, **given: Any) -> Any:
        """See `electrify.predict`."""
        if self.model is None:
            raise UserError(f"{self.folder} holds no model: several tasks, a probe, or `published`")
        return predict(self.model, texts, **given)


def finetune(
    model: Name,
    *,
    train_file: Any = None,
    validation_file: Any = None,
    task: str | Sequence[str] = (),
    output_dir: Name | None = None,
    seeds: int = 1,
    **given: Any,
) -> FineTuned:
    """Fine-tunes an encoder: the library's own class with a fresh head. The same call resumes.

    Args:
        model: A folder or Hub id of an encoder.
        train_file: Labelled examples: a csv, tsv, jsonl or parquet file, a data frame or data set,
            or a list of (text, label), (text, second text, label), or mappings.
        validation_file: Further examples. Without them a fifth of `train_file` is held out.
        task: Known tasks in place of `train_file`, e.g. sst2.
        output_dir: The folder of the results [default: finetuned/NAME of the file or the tasks].
        seeds: Runs, each with another seed.
        given: Options of `electrify finetune`, such as learning_rate, num_train_epochs, metrics.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .finetuning.options import FinetuneConfig
    from .finetuning.run import finetune as tuned

    tasks = (task,) if isinstance(task, str) else tuple(task)
    probe = given.get("frozen_encoder", "none") != "none" or "protocol" in given
    usual: dict[str, Any] = {"save_model": len(tasks) < 2 and not probe}
    if train_file is not None and validation_file is None:
        usual["validation_fraction"] = 0.2
    named = isinstance(train_file, str | os.PathLike)
    name = "-".join(tasks) or (Path(train_file).stem if named else "examples")
    folder = Path(output_dir or Path("finetuned") / name)
    columns = [given.get("text_column", TEXT), given.get("pair_column", "text_pair")]
    columns.append(given.get("label_column", "label"))
    with _given(train_file, columns) as train, _given(validation_file, columns) as validation:
        fixed = {"models": (os.fspath(model),), "output_dir": str(folder), "task": tasks}
        fixed |= {"train_file": train, "validation_file": validation, "seeds": seeds}
        report = tuned(options(FinetuneConfig, "finetune", usual | given, **fixed))
    label = report.records[0]["model"]  # baselines come after it
    scores: dict[str, list[float]] = {}
    for record in (record for record in report.records if record["model"] == label):
        for metric, value in record["scores"].items():
            key = metric if len(tasks) < 2 else f"{record['task']} {metric}"
            scores.setdefault(key, []).append(value)
    saved = sorted((folder / "models").glob("*"))
    return FineTuned(
        folder,
        {name: Score(tuple(values)) for name, values in scores.items()},
        report.table(),
        saved[0] if saved else None,
    )


@contextmanager
def _given(data: Any, columns: Sequence[str]) -> Iterator[str | None]:
    if data is None:
        yield None
        return
    with as_file(data, columns=columns) as file:
        yield file


def predict(model: Name, texts: Any, **given: Any) -> Any:
    """The predictions of a fine-tuned model: for each text a dict of the columns that `electrify
    predict` writes, such as `predicted_label` and `probability`; for one text one dict.

    Args:
        model: A fine-tuned folder or Hub id.
        texts: One text, or several; for a tagger lists of words, for question answering questions.
        given: pairs (second texts, or contexts), probabilities, threshold, max_seq_length, ...
    """
    from .finetuning.predict import predict as predicted

    if isinstance(texts, str):
        if isinstance(given.get("pairs"), str):
            given["pairs"] = [given["pairs"]]
        return predicted(model, [texts], **given)[0]
    return predicted(model, rows_of(texts), **given)


def embed(model: Name, texts: Any, **given: Any) -> Any:
    """The vectors of texts, [N, D] in float32; of one text [D].

    Args:
        model: An encoder, folder or Hub id.
        texts: One text, or several.
        given: center and whiten (texts on whose vectors these are centred or whitened), pooling,
            max_seq_length, device, bf16: see `electrify embed`.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .finetuning.embed import embed as embedded

    if isinstance(texts, str):
        return embedded(model, [texts], **given)[0]
    return embedded(model, rows_of(texts), **given)


def detect(model: Name, texts: Any, **given: Any) -> Any:
    """The probability of being replaced of every token and word: a `Detection` for each text, for
    one text one.

    Args:
        model: A discriminator, folder or Hub id.
        texts: One text, or several.
        given: max_seq_length, batch_size, threads, architecture: see `electrify detect`.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .scoring.detect import detect as detected

    if isinstance(texts, str):
        return detected(os.fspath(model), [texts], **given)[0]
    return detected(os.fspath(model), rows_of(texts), **given)
