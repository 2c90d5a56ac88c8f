"""The options of `electrify finetune`: what is fine-tuned on what, and where the results go."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from ..cores import thread_count
from ..errors import UserError
from .finetune_settings import FinetuneSettings
from .flags import add_flags, from_flags
from .given import Checked
from .search import search_grid

# Options that apply only to the user's own files, with the values that count as unset.
OWN_FILES_ONLY = {
    "text_column": None,
    "pair_column": None,
    "label_column": None,
    "problem_type": "auto",
    "header": True,
    "metrics": (),
}


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(Checked):
    """What is fine-tuned on what, how often, and where the results go."""

    HEADINGS: ClassVar = {
        "models": "where the results go",
        "task": "a known task",
        "train_file": "or files of your own",
        "seeds": "which runs, and how many",
        "predict_test": "what else is written or tried",
    }
    models: tuple[str, ...]
    """Folders or Hub ids that AutoModel loads; `random:MODEL` is the same shape with random
    weights."""
    output_dir: str
    """Folder for scores.jsonl, the report (report.md, .csv, .json, .png) and predictions. A rerun
    continues there."""
    task: tuple[str, ...] = ()
    """Tasks, separated by commas: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli (glue = all
    nine); conll2000, conll2003, wnut17, wikiann, ud (tagging = all five); squad1, squad2 (squad =
    both); babylm_boolq, babylm_multirc, babylm_rte, babylm_wsc, babylm_mrpc, babylm_qqp,
    babylm_mnli (babylm = all seven)."""
    data_dir: str | None = None
    """The folder that holds the tasks' own folders (CoLA, SST-2, ... as GLUE ships them; conll2003,
    ud_..., squad; the BabyLM challenge's evaluation data), itself or in glue/, tagging/, squad/ and
    babylm/; or a data set's folder or id on the Hub in GLUE's or SQuAD's layout; without it
    nyu-mll/glue, rajpurkar/squad or squad_v2 is loaded from there."""
    train_file: str | None = None
    """Your own training examples: .csv, .tsv (no quoting), .jsonl; for tagging also columns
    (.conll, .conllu, .txt), for questions SQuAD's .json."""
    validation_file: str | None = None
    """Your own validation examples, in the same columns."""
    validation_fraction: float | None = None
    """Without a validation file: this share of the training examples, of each class alike, drawn
    by --seed; equal texts stay on one side."""
    header: bool = True
    """The first line of a .csv or .tsv names its columns. --no-header: it is an example, and the
    columns are named by their numbers, from 0."""
    text_column: str | None = None
    """The column of the text, by name or by number from 0; without it one of text, sentence,
    sentence1, content, document, sequence, seq, smiles, code, review, utterance, tweet, body."""
    pair_column: str | None = None
    """The column of a second text; without it sentence2, if there is one."""
    label_column: str | None = None
    """The column of the label, by name or number; without it one of label, labels, category,
    class, target, intent, sentiment. Several columns, separated by commas, are one class each, with
    0, 1 or nothing (not known; multi-label). In a file of words and tags: its number; without it
    the last."""
    problem_type: Literal[
        "auto", "classification", "multilabel", "regression", "tagging", "answering"
    ] = "auto"
    """What your own examples are; auto: lists of labels are multi-label, decimal numbers
    regression, words and whole numbers classes; columns are tagging, SQuAD's JSON is answering."""
    metrics: tuple[str, ...] = ()
    """What your own texts are scored by, separated by commas: accuracy, balanced_accuracy,
    matthews, f1 (of the second of two classes, in the order of their names), macro_f1, micro_f1,
    roc_auc, pr_auc, ece (calibration error, lower is better), pearson, spearman. The first decides
    where something is chosen; none takes those that suit the labels."""
    seeds: int = 5
    """Runs of each model on each task."""
    seed: int = 0
    """The first seed; the others are the numbers after it."""
    random_weights: bool = False
    """Give every model random weights in place of its own."""
    random_baseline: bool = False
    """Run every model also with random weights."""
    baselines: bool = False
    """Add what needs no encoder: the most frequent class (in tagging, each word's most frequent
    tag), TF-IDF with a linear model (texts), and the share of words in common (pairs)."""
    predict_test: bool = False
    """Also answer GLUE's test sets, and write submission-MODEL.zip in its layout, with each task's
    predictions from the seed with the best development score."""
    hyperparameter_search: str | None = None
    """Try every combination, with all seeds, and report each model's best on each task; auto:
    learning_rate=1e-4,3e-4,1e-3,3e-3;num_train_epochs=3,10."""
    save_model: bool = False
    """Keep the fine-tuned model of the first seed as a Hugging Face folder (ELECTRA, BERT, RoBERTa,
    ModernBERT, DeBERTa V3)."""
    threads: str = "auto"
    """Threads that compute on a CPU: a number, or auto: OMP_NUM_THREADS if it is set, else the
    number of the finished runs, else a measurement of one second."""
    settings: FinetuneSettings = field(default_factory=FinetuneSettings)
    """How each run goes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.models:
            raise UserError("no model is given: name a folder or a Hub id")
        thread_count(self.threads)
        self._check_examples()
        self._check_results()
        if self.seeds < 1:
            raise UserError(f"seeds must be at least 1, not {self.seeds}")
        if not 0 <= self.seed < 2**32:
            raise UserError(f"seed must lie between 0 and 2**32 - 1, not {self.seed}")

    def _check_examples(self) -> None:
        """Raises UserError unless the examples are those of known tasks or of both own files."""
        own = [self.train_file, self.validation_file]
        if self.task and any(own):
            raise UserError(
                "--task and --train-file exclude each other: tasks known by name or your own files"
            )
        if any(own) and self.data_dir:
            raise UserError(
                "--data-dir is for the tasks that --task names; your own files have their paths"
            )
        for name, off in OWN_FILES_ONLY.items():
            if self.task and getattr(self, name) != off:
                flag = "no-header" if name == "header" else name.replace("_", "-")
                raise UserError(
                    f"--{flag} is for your own files; what --task names has columns of its own"
                )
        if not self.task and not any(own):
            raise UserError(
                "nothing to fine-tune on: give --task and --data-dir, or --train-file and "
                "--validation-file"
            )
        if self.validation_fraction is not None:
            self._check_fraction()
        elif any(own) and not all(own):
            raise UserError(
                f"--{'validation' if self.train_file else 'train'}-file is missing: both files are "
                "needed, or --train-file and --validation-fraction"
            )

    def _check_fraction(self) -> None:
        """Raises UserError unless a share of the user's own training file can be held out."""
        if not self.train_file:
            raise UserError("--validation-fraction is a share of --train-file, which is missing")
        if self.validation_file:
            raise UserError("--validation-file and --validation-fraction exclude each other")
        if not 0 < self.validation_fraction < 1:  # type: ignore[operator]
            raise UserError(
                f"validation_fraction must lie between 0 and 1, not {self.validation_fraction}"
            )

    def _check_results(self) -> None:
        """Raises UserError if a result is asked for that these runs cannot give."""
        if self.predict_test and not self.task:
            raise UserError("--predict-test is for GLUE's test sets: give --task")
        if self.settings.frozen_encoder != "none" and self.save_model:
            raise UserError(
                "--save-model and --frozen-encoder exclude each other: the encoder is what it was"
            )
        if self.hyperparameter_search is not None:
            search_grid(self.hyperparameter_search, self.settings)
            if self.save_model or self.predict_test or self.baselines:
                raise UserError(
                    "--hyperparameter-search keeps scores of models only: give --save-model, "
                    "--predict-test or --baselines in a run with the settings it found"
                )


def add_finetune_flags(parser: argparse.ArgumentParser) -> None:
    """Every option but the models, which are positional."""
    add_flags(parser, FinetuneConfig, skip=("models", "settings"))
    add_flags(parser, FinetuneSettings)


def finetune_from_flags(namespace: argparse.Namespace, *, models: list[str]) -> FinetuneConfig:
    """The options that the flags of `add_finetune_flags` gave. Raises UserError."""
    return replace(
        from_flags(FinetuneConfig, namespace, models=models),
        settings=from_flags(FinetuneSettings, namespace),
    )
