"""electrify from Python: each command is a function with keyword arguments and a small result.

The keywords are the flags of the command, with underscores, and the fields of a recipe. Texts and
labelled examples may be files, or objects in memory: lists, generators, pandas data frames, data
sets of `datasets`.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from . import recipe as _recipe
from .checkup import doctor as doctor
from .errors import UserError as UserError
from .errors import need
from .exporting.options import Export, Push
from .files import must_be_ours, sha256, written
from .finetuning.options import OF_FILES, FinetuneConfig
from .inputs import (
    TEXT,
    are_names,
    are_texts,
    as_file,
    as_keywords,
    columns_of,
    keywords,
    known,
    nbest,
    seeds_of,
    texts_in,
    with_labels,
)
from .names import Figures, Named, table
from .progress import show_on_terminals
from .progress import show_progress as show_progress
from .recipe import Recipe as Recipe
from .recipe import override as override
from .scoring.options import EvaluateConfig, RerankConfig
from .studies.options import CompareConfig
from .text.options import Prepare
from .train.options import Pretrain
from .values import kinds

show_on_terminals()
load_recipe = _recipe.load
Name = str | os.PathLike[str]
OF_EXAMPLES = {*OF_FILES} - {"train_file", "validation_file"}
OF_EMBEDDING = ("normalize_embeddings", "batch_size", "show_progress_bar", "center", "whiten")
OF_EMBEDDING += ("convert_to_tensor", "pooling", "max_seq_length", "bf16")
OF_DETECTION = ("threshold", "max_seq_length", "batch_size", "threads")
OF_PREDICTION = ("threshold", "no_answer_threshold", "max_seq_length", "bf16", "threads")


class Folder(str):
    """The path of a folder as text, as other libraries take it, with what a `Path` has."""

    def __truediv__(self, name: Name) -> Path:
        return Path(self) / name

    def __getattr__(self, name: str) -> Any:
        return getattr(Path(self), name)


@dataclass(frozen=True)
class InFolder(Named):
    """A result that stands for its folder."""

    folder: Path

    def __fspath__(self) -> str:
        return str(self.folder)


# ------------------------------------------------------------------ text -> corpus -> encoder


@dataclass(frozen=True)
class PreparedCorpus(InFolder):
    """A corpus of shards, which `pretrain` takes in place of its folder."""

    documents: int
    tokens: int
    vocab_size: int
    counts: Mapping[str, int] = field(repr=False)
    """Everything that `prepare` counted."""

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, of transformers."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder / "tokenizer")


@keywords(Prepare, but={"inputs"})
def prepare(
    texts: Any, output_dir: Name, *, preset: str | None = None, **given: Any
) -> PreparedCorpus:
    """Tokenises text into a corpus of shards. The same call resumes.

    Args:
        texts: A file, folder, glob, `pydocs` or hub:NAME; a list of these; or texts in memory: an
            iterable of str, a data frame or data set with the column `text_column`.
        output_dir: The folder of the corpus.
        preset: Defaults for a kind of text: prose, code, smiles, protein, dna or logs.
        given: Options of `electrify prepare`, such as vocab_size, lowercase, tokenizer (also a
            tokenizer of transformers).

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .text.prepare import prepare as made

    tokenizer: Any = given.get("tokenizer")
    with ExitStack() as held:
        file = as_file(texts, given.get("text_column", TEXT))
        inputs = texts if are_names(texts) else (held.enter_context(file),)
        if hasattr(tokenizer, "save_pretrained"):
            folder = Path(held.enter_context(tempfile.TemporaryDirectory())) / "tokenizer"
            tokenizer.save_pretrained(folder)
            given |= {"tokenizer": folder}
        given |= {"preset": preset} if preset else {}
        manifest = made(Prepare.of({"inputs": inputs, "output_dir": output_dir, **given}))
    counts = manifest.counts
    return PreparedCorpus(
        Path(output_dir), counts["documents"], counts["tokens"], manifest.vocab_size, counts
    )


@dataclass(frozen=True)
class PretrainedRun(InFolder):
    """A run, finished or stopped."""

    step: int
    finished: bool
    """False if a signal or `max_minutes` ended the call; the same call then resumes."""
    validation: Mapping[str, float] = field(repr=False)
    """The metrics of the last validation; `loss` is `eval_loss` in `history`."""
    tokens: int
    seconds: float
    signalled: bool = field(repr=False)
    exported: Mapping[str, Path]
    """The Hugging Face folder of each network; empty if the run was stopped before its end."""
    term_weights: Mapping[str, float] = field(repr=False)
    """The weight of each loss."""

    @property
    def discriminator(self) -> Folder:
        """The folder of the encoder. Raises UserError if the run was stopped before its end."""
        if not self.exported:
            raise UserError(f"{self.folder} was stopped at step {self.step}: nothing is exported")
        return Folder(self.exported.get("discriminator") or next(iter(self.exported.values())))

    path = discriminator

    @property
    def loss(self) -> float:
        """The training loss in the last line of the log. Raises UserError if the run was stopped
        before the first."""
        logged = [line["loss"] for line in self.history if "loss" in line]
        need(bool(logged), f"{self.folder}: no loss is logged up to step {self.step}")
        return logged[-1]

    @property
    def history(self) -> list[dict[str, Any]]:
        """The records of the log, `kind` train, valid or event, sorted by step, validation first.
        As in transformers, `loss` (in validation `eval_loss`) is the sum of the losses, weighted by
        `term_weights`."""
        from .train import METRICS
        from .train.log import read, with_numbers

        records = list(map(with_numbers, read(self.folder / METRICS)))
        records.sort(key=lambda one: (one["step"], one["kind"] == "train"))
        return [Figures(with_loss(one, self.term_weights)) for one in records]


def with_loss(record: Mapping[str, Any], weights: Mapping[str, float]) -> dict[str, Any]:
    """The record with the sum of its losses by their weights, if it has any."""
    losses = [weight * record[one] for one, weight in weights.items() if one in record]
    name = "eval_loss" if record.get("kind") == "valid" else "loss"
    return dict(record) | ({name: sum(losses)} if losses else {})


@keywords(Pretrain, _recipe.SECTION_OF, but={"base", "changes"})
def pretrain(
    data: Any,
    recipe: Name | Recipe | None = None,
    *,
    output_dir: Name,
    resume: Literal["auto", "never", "must"] | bool = "auto",
    train_minutes: float | None = None,
    flops: float | None = None,
    **fields: Any,
) -> PretrainedRun:
    """Pre-trains an encoder. The same call resumes.

    Args:
        data: What `prepare` returned, its folder, or text as `prepare` takes it, which is prepared
            first, into the folder OUTPUT_DIR-data.
        recipe: A shipped name (see `recipes`), a .yaml file, a `Recipe`, or auto: the one for
            `flops` or `train_minutes`, of those measured [default: electra-small, and where a run
            is resumed its own].
        output_dir: The folder of the run.
        resume: auto (or True) resumes from the newest checkpoint if there is one, must fails
            without one, never (or False) refuses a folder that holds a run.
        train_minutes: Train for about this many minutes: throughput is measured, then max_steps is
            set.
        flops: With recipe auto: the FLOPs of the run.
        fields: Fields of the recipe, such as max_steps, learning_rate, mask_rate.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .text.prepare import data_folder_of
    from .train.run import pretrain_as

    swapped = isinstance(data, str) and data in _recipe.names() and not Path(data).exists()
    need(not swapped, f"{data} is a recipe: pretrain(data, {data!r}, output_dir=...)")
    in_memory = not isinstance(data, str | os.PathLike)
    folder = data_folder_of(Path(output_dir)) if in_memory else data
    given = {"data": folder, "output_dir": output_dir, "train_minutes": train_minutes, **fields}
    if isinstance(resume, bool):
        resume = "auto" if resume else "never"
    given |= {"flops": flops, "resume": resume}
    if recipe is not None:
        given["base" if isinstance(recipe, Recipe) else "recipe"] = recipe
    asked = Pretrain.of(given)
    if in_memory:
        prepare(data, folder, **({"tokenizer": asked.start} if asked.start else {}))
    run, used = pretrain_as(asked)
    weights = used.objective.term_weights
    found: dict[str, Any] = vars(run) | {"validation": with_loss(run.validation, weights)}
    return PretrainedRun(**found, term_weights=weights)


def recipes() -> dict[str, dict[str, Any]]:
    """The shipped recipes by name: layers, width, parameters, FLOPs, hours, what was measured."""
    return Figures((name, Listed(its | {"name": name})) for name, its in _recipe.listing().items())


class Listed(Figures):
    """What is listed of a recipe, and every field of it."""

    def __missing__(self, name: str) -> Any:
        return Figures(_recipe.values_of(load_recipe(self["name"])))[name]


# ------------------------------------------------------------------ encoder -> task


@dataclass(frozen=True)
class Score:
    """A metric over the seeds of fine-tuning, as a fraction."""

    values: tuple[float, ...]

    def __repr__(self) -> str:
        spread = "" if self.std is None else f", std={self.std:.4g}"
        middle = f"median={self.median:.4g}, mean={self.mean:.4g}"
        return f"Score({middle}{spread}, values={self.values})"

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    def __float__(self) -> float:
        return self.median

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def std(self) -> float | None:
        """The sample standard deviation; None for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True, repr=False)
class Prediction(Named):
    """What a fine-tuned model predicts for one text: the fields of its kind, the others None."""

    label: str | None = None
    """Of classification."""
    labels: Sequence[str] | None = None
    """Of several labels a text."""
    probability: Any = None
    """Of the label, or of each of the labels."""
    probabilities: Mapping[str, float] | None = None
    """Of every label, of classification and of several labels."""
    value: float | None = None
    """Of regression."""
    tags: Sequence[str] | None = None
    """One a word, of tagging."""
    words: Sequence[str] | None = None
    """Those that have the tags."""
    answer: str | None = None
    """Of question answering; empty if the context holds none."""
    answer_score: float | None = None
    no_answer_score: float | None = None
    text: str | None = None
    """What was given, but for the words of tagging."""

    def __repr__(self) -> str:
        known = (f"{name}={value!r}" for name, value in vars(self).items() if value is not None)
        return f"Prediction({', '.join(known)})"

    @property
    def score(self) -> Any:
        """The probability, value or score of the answer, under the name that transformers'
        pipelines have for them."""
        found = (self.probability, self.value, self.answer_score)
        return next((score for score in found if score is not None), None)


@dataclass(frozen=True)
class FineTuned(InFolder):
    """An encoder that was fine-tuned on a task; the folder has scores, report, predictions and
    models."""

    scores: Mapping[str, Score]
    """By metric. With several tasks by `TASK METRIC`."""
    table: str = field(repr=False)
    """The report as a table of text."""
    model: Folder | None
    """The saved model of the first seed, which transformers loads; None where none was saved."""

    def __str__(self) -> str:
        return self.table

    def __getattr__(self, name: str) -> Any:
        """A metric: `tuned.accuracy`."""
        scores = vars(self).get("scores", {})
        return scores[name].median if name in scores else super().__getattr__(name)

    @property
    def path(self) -> Folder:
        """The same as `model`. Raises UserError if none was saved."""
        if self.model is None:
            raise UserError(f"{self.folder} holds no model: several tasks, a probe, or `published`")
        return self.model

    @property
    def metrics(self) -> Figures:
        """The medians of the scores."""
        return Figures((name, score.median) for name, score in self.scores.items())

    @property
    def labels(self) -> list[str]:
        """The names of the classes or tags; none of a regression or of question answering."""
        from .finetuning.tasks import saved

        return list(saved(self.path).labels)

    def predict(self, texts: Any, **given: Any) -> Any:
        """See `electrify.predict`."""
        return predict(self.path, texts, **given)

    @keywords(OF_EXAMPLES)
    def evaluate(self, examples: Any, labels: Any = None, **given: Any) -> Figures:
        """See `Encoder.evaluate`."""
        return Encoder(self.path).evaluate(examples, labels, **given)

    def save_pretrained(self, folder: Name) -> None:
        """See `Encoder.save_pretrained`."""
        Encoder(self.path).save_pretrained(folder)


PROBLEMS = table("""
classification text-classification sentiment-analysis -> classification
multilabel multi-label-classification -> multilabel
regression -> regression
tagging token-classification ner -> tagging
answering question-answering -> answering
""")
"""Names of tasks of transformers, and our own, for a `problem_type`."""


@keywords(FinetuneConfig, but={"models", "settings"})
def finetune(
    model: Name,
    train_file: Any = None,
    validation_file: Any = None,
    *,
    labels: Any = None,
    task: str | Sequence[str] = (),
    output_dir: Name | None = None,
    seeds: int | Sequence[int] = 1,
    **given: Any,
) -> FineTuned:
    """Fine-tunes an encoder: transformers' own class with a new head. The same call resumes.

    Args:
        model: A run, a folder or a Hub id of an encoder.
        train_file: Labelled examples: a csv, tsv, jsonl or parquet file, a data frame or data set,
            or a list of (text, label), (text, second text, label), or mappings.
        validation_file: Further examples. Without them a fifth of `train_file` is held out.
        labels: The labels of texts (or lists of words) in a list. Those of texts may also take the
            place of `validation_file`, as in scikit-learn.
        task: Known tasks in place of `train_file`, e.g. sst2. Beside it, what the examples are: a
            value of `problem_type`, or transformers' name of it, e.g. token-classification.
        output_dir: The folder of the results [default: finetuned/NAME of the file or the tasks, of
            examples in memory finetuned/examples-HASH].
        seeds: The number of runs, each with another seed (the first is `seed`), or consecutive
            seeds, such as [1, 2, 3].
        given: Options of `electrify finetune`, such as text_column (of pairs two columns),
            label_column, learning_rate, num_train_epochs, max_steps, metrics.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .finetuning.run import finetune as tuned

    if labels is None and validation_file is not None and are_texts(train_file):
        labels, validation_file = validation_file, None
    train_file = train_file if labels is None else with_labels(train_file, labels)
    columns = columns_of(given)
    if train_file is not None and isinstance(task, str) and task in PROBLEMS:
        given["problem_type"], task = PROBLEMS[task][0], ()
    given |= {"models": (model,), "task": task, **seeds_of(seeds, given)}
    with as_file(train_file, *columns) as train, as_file(validation_file, *columns) as validation:
        if output_dir is None and not isinstance(train_file, str | os.PathLike | None):
            # Each set of examples has a folder of its own.
            output_dir = f"finetuned/examples-{sha256(Path(train))[:6]}"
        files = {"train_file": train, "validation_file": validation, "output_dir": output_dir}
        asked = FinetuneConfig.of(given | files)
        report = tuned(asked)
    label = report.records[0]["model"]  # baselines come after it
    scores: dict[str, list[float]] = {}
    for record in (record for record in report.records if record["model"] == label):
        for metric, value in record["scores"].items():
            key = metric if len(asked.task) < 2 else f"{record['task']} {metric}"
            scores.setdefault(key, []).append(value)
    return FineTuned(
        asked.folder,
        Figures((name, Score(tuple(values))) for name, values in scores.items()),
        as_keywords(report.table()),
        Folder(report.saved[0]) if report.saved else None,
    )


# ------------------------------------------------------------------ models on texts


class Encoder(Named):
    """A model that stays loaded between calls. Each method takes one text or several."""

    def __init__(
        self, model: Name, *, architecture: str | None = None, device: str = "auto"
    ) -> None:
        from .exporting.places import check_place, model_in

        self.model = model_in(os.fspath(model))
        """The folder or Hub id."""
        self.architecture, self.device = architecture, device
        self._models: dict[str, tuple[dict[str, Any], Any]] = {}
        check_place(self.model)

    def __repr__(self) -> str:
        return f"Encoder({self.model!r})"

    def __fspath__(self) -> str:
        return self.model

    def _loaded(self, load: Callable[..., Any], **how: Any) -> Any:
        """What `load` makes of the model, kept until other options are asked for: every keyword
        given here loads the model anew when its value changes."""
        if load.__name__ not in self._models or self._models[load.__name__][0] != how:
            self._models[load.__name__] = how, load(self.model, **how)
        return self._models[load.__name__][1]

    @property
    def hidden_size(self) -> int:
        """The width of the vectors."""
        from .exporting.loading import load_config

        return load_config(self.model, causal=True).hidden_size

    @classmethod
    def from_pretrained(cls, model: Name, **given: Any) -> Encoder:
        """The same as `electrify.load`."""
        return load(model, **given)

    @property
    def _scorer(self) -> Any:
        from .scoring.pll import load_scorer

        how = {"device": self.device, "architecture": self.architecture}
        return self._loaded(load_scorer, **how)

    @keywords()
    def similarity(self, first: Any, second: Any) -> Any:
        """The cosines [N, M] of N texts or vectors [N, D] with M others; for two texts a
        number."""
        import numpy as np

        def unit(of: Any) -> Any:
            given = [of] if isinstance(of, str) else texts_in(of)
            texts = all(isinstance(one, str) for one in given)
            found_ND = np.atleast_2d(self.embed(given) if texts else given)
            return found_ND / np.linalg.norm(found_ND, axis=1, keepdims=True)

        cosines_NM = unit(first) @ unit(second).T
        both = isinstance(first, str) and isinstance(second, str)
        return float(cosines_NM[0, 0]) if both else cosines_NM

    @keywords(OF_EMBEDDING)
    def embed(
        self,
        texts: Any,
        *,
        pooling: Literal["mean", "cls"] = "mean",
        max_seq_length: int | None = None,
        bf16: Literal["auto", "true", "false"] = "auto",
        **given: Any,
    ) -> Any:
        """Vectors, [N, D] in float32; of one text [D].

        Args:
            texts: One text, or several.
            pooling: Mean of all hidden states, or the hidden state of the class token.
            max_seq_length: Tokens per text [default: the model's maximum, at most 512].
            bf16: Compute in bfloat16.
            given: normalize_embeddings (to length 1), batch_size (texts per forward pass),
                show_progress_bar, center or whiten (texts that give the mean or the
                whitening); convert_to_tensor (of torch).
        """
        from .finetuning.embed import embed, load_embedder

        how = {"pooling": pooling, "max_seq_length": max_seq_length, "bf16": bf16}
        embedder = self._loaded(load_embedder, device=self.device, **how)
        return _of_each(texts, lambda several: embed(embedder, several, **given))

    encode = embed  # as sentence-transformers has it

    @keywords(OF_DETECTION)
    def detect(self, texts: Any, *, threads: str = "auto", **given: Any) -> Any:
        """The probability of being replaced of every token and word: a `Detection` for each text.
        The model needs an RTD head.

        Args:
            texts: One text, or several.
            threads: CPU threads: a number, or auto (measured for long texts).
            given: threshold (of `replaced`), max_seq_length, batch_size: see `electrify detect`.
        """
        from .scoring.detect import detect, load_detector

        how = {"architecture": self.architecture, "threads": str(threads)}
        detector = self._loaded(load_detector, **how)
        given |= {"threads": str(threads)}
        return _of_each(texts, lambda several: detect(detector, several, **given))

    @keywords()
    def score(self, texts: Any, *, per_token: bool = False) -> Any:
        """The scores of texts in nats [N], of one text a number, higher is better: the
        pseudo-log-likelihood of a masked language model (1910.14659), the sum of log P(original) of
        a discriminator, minus the energy of `electric` (2012.08561 section 3).

        Args:
            texts: One text, or several, of any length.
            per_token: Return a `TextScore` for each text, with its tokens and their scores.
        """
        import numpy as np

        if per_token:
            return _of_each(texts, self._scorer.token_scores)
        return _of_each(texts, lambda several: np.array(self._scorer.scores(several)))

    def rerank(self, lists: Any, **given: Any) -> Any:
        """See `electrify.rerank`."""
        return rerank(self, lists, **given)

    @keywords(OF_PREDICTION)
    def predict(
        self, texts: Any, *, pairs: Any = None, text_column: str | None = None, **given: Any
    ) -> Any:
        """A `Prediction` for each text, of a fine-tuned model. pairs: the second texts, or the
        contexts of questions. text_column: of a data frame or data set. given: threshold,
        no_answer_threshold, max_seq_length, bf16, threads: see `electrify predict`."""
        from .finetuning.predict import load_predictor, predict

        predictor = self._loaded(load_predictor, device=self.device, **given)
        alone, tags = isinstance(texts, str), predictor.kind == "tagging"
        reads_pairs = predictor.reading.get("pairs") or predictor.kind == "answering"
        alone = alone or (reads_pairs and pairs is None and _is_pair(texts))
        several = [texts] if alone else texts_in(texts, text_column)
        if tags:
            if several and all(isinstance(one, str) and " " not in one for one in several):
                alone, several = True, [several]  # the words of one sentence
            several = [one.split() if isinstance(one, str) else one for one in several]
        elif several and pairs is None and all(map(_is_pair, several)):
            several, pairs = map(list, zip(*several, strict=True))
        pairs = [pairs] if isinstance(pairs, str) else pairs
        rows = predict(predictor, several, pairs=pairs) if several else []
        found = list[Prediction]()
        for row, one in zip(rows, several, strict=True):
            its: Any = {name.removeprefix("predicted_"): value for name, value in row.items()}
            its["words" if tags else "text"] = one
            found.append(Prediction(**its))
        return found[0] if alone else found

    @keywords(OF_EXAMPLES)
    def evaluate(self, examples: Any, labels: Any = None, **given: Any) -> Figures:
        """The metrics of a fine-tuned model on labelled examples, as fractions.

        Args:
            examples: What `finetune` takes as `train_file`, or `texts`.
            labels: The labels of texts (or lists of words) in a list.
            given: text_column, pair_column, label_column, header, metrics: see `finetune`.
        """
        from .finetuning.predict import load_predictor, scores

        predictor = self._loaded(load_predictor, device=self.device)
        examples = examples if labels is None else with_labels(examples, labels)
        with as_file(examples, *columns_of(given)) as file:
            return Figures(scores(predictor, file, given))

    @keywords()
    def save_pretrained(self, folder: Name) -> None:
        """Copies the model's folder to a new place, or over a model that electrify wrote. Raises
        UserError for another folder, and for a model of the Hub."""
        from .exporting.places import METADATA

        need(Path(self.model).is_dir(), f"{self.model} is a model of the Hub, not a folder")
        must_be_ours(Path(folder), METADATA)
        with written(Path(folder).resolve()) as new:
            shutil.copytree(self.model, new)


def _of_each(texts: Any, work: Callable[[list[Any]], Any]) -> Any:
    """The results for several texts, or the one for one text."""
    return work([texts])[0] if isinstance(texts, str) else work(texts_in(texts))


def _is_pair(one: Any) -> bool:
    return isinstance(one, tuple) and len(one) == 2 and all(isinstance(t, str) for t in one)


@keywords()
def load(model: Name, *, architecture: str | None = None, device: str = "auto") -> Encoder:
    """Loads a model for several calls of `embed`, `detect`, `score` or `predict`.

    Args:
        model: A run, a folder or a Hub id.
        architecture: Your own architecture that the model was trained with (module:Class).
        device: auto, cpu, cuda or cuda:N (`detect` uses the CPU).

    Raises:
        UserError: If there is no model.
    """
    return Encoder(model, architecture=architecture, device=device)


@keywords(OF_PREDICTION)
def predict(
    model: Name,
    texts: Any,
    *,
    pairs: Any = None,
    text_column: str | None = None,
    device: str = "auto",
    **given: Any,
) -> Any:
    """The predictions of a fine-tuned model: a `Prediction` for each text, not in a list
    for a single text.

    Args:
        model: A fine-tuned folder, that of `finetune`, or a Hub id.
        texts: One text, or several, or a list of pairs; for a tagger lists of words (or texts,
            whose words have blanks between them; a list of single words is one sentence), for
            question answering questions.
        pairs: The second texts, or the contexts of the questions.
        text_column: The column of the texts in a data frame or data set [default: text].
        device: auto, cpu, cuda or cuda:N.
        given: threshold, max_seq_length, ...: see `electrify predict`.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    encoder = Encoder(model, device=device)
    return encoder.predict(texts, pairs=pairs, text_column=text_column, **given)


@keywords(OF_EMBEDDING)
def embed(model: Name, texts: Any, *, device: str = "auto", **given: Any) -> Any:
    """The vectors of texts, [N, D] in float32; of one text [D].

    Args:
        model: An encoder: a run, a folder or a Hub id.
        texts: One text, or several.
        device: auto, cpu, cuda or cuda:N.
        given: As of `Encoder.embed`: normalize_embeddings, batch_size, center, pooling, ...

    Raises:
        UserError: For a mistake, with one sentence.
    """
    return Encoder(model, device=device).embed(texts, **given)


@keywords()
def similarity(model: Name, first: Any, second: Any) -> Any:
    """The cosines of the vectors of texts: see `Encoder.similarity`."""
    return Encoder(model).similarity(first, second)


@keywords(OF_DETECTION)
def detect(model: Name, texts: Any, *, architecture: str | None = None, **given: Any) -> Any:
    """The probability of being replaced of every token and word: a `Detection` for each text, not
    in a list for a single text.

    Args:
        model: A discriminator: a run, a folder or a Hub id.
        texts: One text, or several.
        architecture: Your own architecture that the model was trained with (module:Class).
        given: threshold, max_seq_length, batch_size, threads: see `electrify detect`.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    return Encoder(model, architecture=architecture).detect(texts, **given)


@keywords()
def score(
    model: Name, texts: Any, *, per_token: bool = False, architecture: str | None = None
) -> Any:
    """The score of each text in nats; of one text one number. See `Encoder.score`.

    Args:
        model: A run, a folder or a Hub id with its pre-training head.
        texts: One text, or several.
        per_token: Return a `TextScore` for each text, with its tokens and their scores.
        architecture: Your own architecture that the model was trained with (module:Class).

    Raises:
        UserError: For a mistake, with one sentence.
    """
    return Encoder(model, architecture=architecture).score(texts, per_token=per_token)


@keywords(RerankConfig, but={"file", "tune_file", "json"})
def rerank(
    model: Name,
    lists: Any,
    *,
    tune_lists: Any = None,
    weight: float | None = None,
    length_bonus: float = 0.0,
    top_k: int | None = None,
    **given: Any,
) -> Any:
    """Chooses from n-best lists by their own scores and that of a model (2012.08561 section 4.3).
    Of several lists it returns a `Reranked`, of one its `Ranked` texts (text, score, index), the
    best first.

    Args:
        model: A run, a folder or a Hub id with its pre-training head.
        lists: A jsonl file; one list of texts or of (text, score), the best first, or several; or
            mappings: `hypotheses` (texts), and, if known, `scores` and `reference`.
        tune_lists: Others with references, on which weight and length bonus are tuned.
        weight: Weight of the model's score, in place of `tune_lists` [default: 1 for lists without
            scores, where the model alone decides].
        length_bonus: Added for each word, beside `weight`.
        top_k: Of one list return only so many.
        given: Options of `electrify rerank`, such as batch_tokens, output_file.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .scoring.rerank import read_lists
    from .scoring.rerank import rerank as reranked

    (lists, alone), (tune_lists, _) = nbest(lists), nbest(tune_lists)
    need(alone or top_k is None, "top_k is for one list")
    loaded = model._scorer if isinstance(model, Encoder) else None
    both = ", ".join(sorted(given.keys() & {"architecture", "device"}))
    need(not (loaded and both), f"{both} of a loaded model: give it to load")
    with as_file(lists, "hypotheses") as file, as_file(tune_lists, "hypotheses") as tune_file:
        if tune_lists is None and weight is None:
            scored = any(any(one.first_pass) for one in read_lists(file))
            need(not scored, "rerank needs weight, or tune_lists with references")
            weight = 1.0
        given |= {"model": model, "file": file, "tune_file": tune_file}
        given |= {"weight": weight, "length_bonus": length_bonus}
        found = reranked(RerankConfig.of(given), loaded)
    return found.rankings[0][:top_k] if alone else found


# ------------------------------------------------------------------ models for others


@keywords(Export)
def export(model: Name, output_dir: Name, **given: Any) -> Path:
    """Writes a network of a run as a folder that transformers loads, or a run or folder in another
    format, and returns the folder.

    Args:
        model: A run; with `format` onnx or sentence-transformers also a Hugging Face folder, with
            onnx also a Hub id.
        output_dir: The folder to write: new, empty, or an earlier export.
        given: part (discriminator, generator, corrector or selector), step (by default the newest
            complete checkpoint), format (hf, onnx or sentence-transformers) and quantize (int8
            with format onnx): see `electrify export`.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .exporting.folder import export_as
    from .progress import say

    formats = typing.get_args(kinds(Export)["format"])
    misplaced = "format" not in given and output_dir in formats
    fact = f"{output_dir} is a format: export(model, output_dir, format=...)"
    need(not misplaced, fact)
    asked = Export.of({"model": model, "output_dir": output_dir, **given})
    asked.must_exist()
    say(export_as(asked))
    return Path(output_dir)


@keywords(Push)
def push(folder: Name, repo_id: str, **given: Any) -> Figures:
    """Uploads a model folder to the Hugging Face Hub. Returns its files with their sizes in bytes.

    Args:
        folder: An export, a fine-tuned model, or a run, of which discriminator/ is sent.
        repo_id: USER/NAME.
        given: private, dry_run, revision, commit_message: see `electrify push`.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .exporting.pushing import upload

    return Figures(upload(Push.of({"folder": folder, "repo_id": repo_id, **given})))


# ------------------------------------------------------------------ measuring


@keywords(EvaluateConfig, OF_EXAMPLES)
def evaluate(
    models: Name | Sequence[Name],
    data_dir: Any = None,
    labels: Any = None,
    *,
    pairs: Any = None,
    test_file: Any = None,
    **given: Any,
) -> Figures:
    """BLiMP, minimal pairs of English grammar (1912.00582), or pairs of your own, without training;
    fine-tuned models on labelled examples.

    Args:
        models: Runs, folders or Hub ids with their pre-training head, or fine-tuned models.
        data_dir: The folder of BLiMP's files, or labelled examples as of `Encoder.evaluate`.
        labels: As of `Encoder.evaluate`.
        test_file: Labelled examples, in place of `data_dir`.
        pairs: Pairs of your own instead: one jsonl file with `sentence_good` and
            `sentence_bad`, or a list of such pairs (a good and a bad sentence).
        given: Options of `electrify evaluate`, such as output_dir, max_eval_samples; of fine-tuned
            models those of `Encoder.evaluate`.

    Returns:
        Of one model its accuracies by phenomenon, where `overall` is the mean over all paradigms
        and those of the supplement begin with `supplement `. Of `pairs` the `accuracy`, of a
        fine-tuned model its metrics. For a list of models, a mapping by name.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .exporting.places import check_place, metadata_of, model_in
    from .finetuning.tasks import TRAINED
    from .scoring.blimp import evaluate as evaluated
    from .scoring.blimp import means

    source, *others = [one for one in (data_dir, test_file, pairs) if one is not None] or [None]
    what = "data_dir (labelled examples, or the folder of BLiMP), test_file or pairs"
    need(source is not None and not others, f"evaluate needs one of {what}")
    labelled = labels is not None or test_file is not None
    need(pairs is None or not labelled, "pairs have no labels")
    several: Any = models if isinstance(models, list | tuple) else [models]
    found = Figures((os.fspath(model), None) for model in several)
    for name in found:
        check_place(model_in(name))
    trained = all(metadata_of(model_in(name)).get("part") == TRAINED for name in found)
    if labelled or trained:
        for name in found:
            found[name] = Encoder(name).evaluate(source, labels, **given)
    else:
        given = known("evaluate", given, EvaluateConfig.names())
        with as_file(source, "sentence_good", "sentence_bad") as place:
            asked = EvaluateConfig.of({"models": tuple(found), "data_dir": place, **given})
            rows = evaluated(asked)
        for name in found:
            its = means([row for row in rows if row.model == model_in(name)]).items()
            named = ((k if part == "blimp" else f"{part} {k}", share) for (part, k), share in its)
            found[name] = Figures(named)
            if pairs is not None:
                found[name] = Figures(accuracy=found[name].overall)
    return found if several is models else next(iter(found.values()))


@dataclass(frozen=True)
class Comparison(InFolder):
    """The results of a study; the folder has the report, the plots and the encoders."""

    table: str = field(repr=False)
    """The report as text."""
    failed: bool
    """Whether an encoder could not be trained or measured."""

    def __str__(self) -> str:
        return self.table

    def to_pandas(self) -> Any:
        """A data frame with a row for each recipe, budget, task and metric: mean, interval, and the
        difference to the first recipe."""
        import pandas as pd

        return pd.read_csv(self.folder / "report.csv")


@keywords(CompareConfig, but={"json"})
def compare(
    data: Any,
    recipes: Any = (),
    *,
    budgets: float | Sequence[float] = (),
    tasks: str | Sequence[str] = (),
    seeds: int | Sequence[int] = 3,
    output_dir: Name = "study",
    **given: Any,
) -> Any:
    """Trains recipes at equal budgets with several seeds, and measures every encoder on tasks. The
    same call resumes. Returns a `Comparison`, with plan_only the plan.

    Args:
        data: A prepared corpus.
        recipes: Shipped recipes, with changes after a colon. Differences are to the first one.
        budgets: FLOPs of pre-training, such as [1e13, 1e14], or what `equal` says.
        tasks: See `electrify compare` [default: those of the summary score, without `data_dir` the
            word-substitution test].
        seeds: The number of runs of each recipe and budget, or consecutive seeds.
        output_dir: The folder of the study.
        given: Options of `electrify compare`, such as data_dir, task_seeds.

    Raises:
        UserError: For a mistake, with one sentence.
    """
    from .studies.report import text
    from .studies.run import compare as compared
    from .studies.run import forecast
    from .studies.study import plan_study

    given |= {"data": data, "recipes": recipes, "tasks": tasks, "output_dir": output_dir}
    given |= {"budgets": [budgets] if isinstance(budgets, int | float) else budgets}
    study = plan_study(CompareConfig.of(given | seeds_of(seeds, given)))
    if study.config.plan_only:
        return Figures(forecast(study))
    table = compared(study)
    return Comparison(Path(output_dir), text(table), bool(table.failed))


@keywords(_recipe.SECTION_OF)
def flops(
    recipe: Any,
    *,
    convention: Literal["hardware", "paper"] = "hardware",
    vocab_size: int = 30522,
    **fields: Any,
) -> Any:
    """The FLOPs of a recipe (`RecipeFlops`): of a token, an update, the whole pre-training, and
    inference.

    Args:
        recipe: A shipped name, with changes after a colon, a .yaml file, or a `Recipe`. A list
            gives a mapping by name (of `Recipe`s by index).
        convention: hardware counts matrix products, backward twice forward; paper counts as
            ELECTRA's public script.
        vocab_size: The size of the vocabulary.
        fields: Fields of the recipe, such as max_steps.

    Raises:
        UserError: For a name that is not known.
    """
    from .flop_counts import recipe_flops
    from .rules import countable

    how: dict[str, Any] = {"convention": convention, "vocab_size": vocab_size}
    if isinstance(recipe, list | tuple):
        places = (one if isinstance(one, str) else str(k) for k, one in enumerate(recipe))
        counts = (flops(one, **how, **fields) for one in recipe)
        return Figures(zip(places, counts, strict=True))
    counted = recipe if isinstance(recipe, Recipe) else countable(os.fspath(recipe))
    return recipe_flops(override(counted, fields), **how)
