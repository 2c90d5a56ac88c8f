"""The options of `electrify finetune`, `predict` and `embed`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Lt

from ..errors import UserError, need
from ..exporting.places import RANDOM, model_in
from ..names import nearest
from ..process import thread_count
from ..values import (
    BelowOne,
    Count,
    Inside,
    Natural,
    NotNegative,
    Options,
    Positional,
    Positive,
    from_text,
    kinds,
)

HELD_OUT = 0.2
"""Share of the training examples for validation where no file is given for it."""
NEEDS = (
    ("early_stopping_patience", "load_best_model_at_end"),
    ("data_dir", "task"),
    ("predict_test", "task"),
    ("validation_fraction", "train_file"),
    ("overwrite", "output_file"),
)
"""Options that have no effect without another one."""
OF_FILES = ("train_file", "validation_file", "header", "text_column", "pair_column")
OF_FILES += ("label_column", "problem_type", "metrics")
EXCLUDING = {
    "task": OF_FILES,
    "validation_file": ("validation_fraction",),
    "num_train_epochs": ("min_train_steps",),
    "max_steps": ("num_train_epochs", "min_train_steps"),
    "frozen_encoder": ("min_train_steps", "layerwise_lr_decay", "protocol", "save_model"),
    "protocol": ("save_model",),
    "hyperparameter_search": ("save_model", "predict_test", "baselines"),
    "json": ("output_file",),
    "center": ("whiten",),
}


def must_go_together(options: Any) -> None:
    """Raises UserError for an option without the one that it needs, or with one that it
    excludes. Those that have their default are not given."""
    given = set()
    for part in (options, getattr(options, "settings", None)):
        for its in fields(part) if part is not None else ():
            value = getattr(part, its.name)
            if value != its.default and (its.default is not None or value is not False):
                given.add(its.name)
    for name, needed in NEEDS:
        need(name not in given or needed in given, f"{name} needs {needed}")
    for one, others in EXCLUDING.items():
        both = sorted(given & {*others}) if one in given else []
        need(not both, f"{one} and {', '.join(both)} exclude each other")


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(Options):
    """How each run goes."""

    protocol: Literal["electrify", "published"] = "electrify"
    """electrify's own protocol, or published: that of ELECTRA's public code, to compare with its
    scores. published has the same default learning rate for tags as for texts, and saves no
    model."""
    learning_rate: Positive | None = None
    """Peak learning rate, that of the head. Layers below it get less (layer-wise decay) [default:
    3e-4 up to width 256, 1e-4 below 1024, 5e-5 from there; for tags, up to width 128, 3e-3]."""
    layerwise_lr_decay: Positive | None = None
    """Learning rate of each layer as a share of that of the layer above. 1 disables it [default:
    0.8, from width 1024 0.9]."""
    weight_decay: NotNegative = 0.0
    """Decoupled weight decay of matrices."""
    per_device_train_batch_size: Count = 32
    """Examples per update."""
    num_train_epochs: Positive | None = None
    """Epochs [default: 3, STS-B and RTE 10, SQuAD 2, BabyLM 10 or 30, more if --min-train-steps
    asks for them]."""
    max_steps: Count | None = None
    """Number of updates, in place of --num-train-epochs."""
    min_train_steps: Natural | None = None
    """Minimum number of updates, within 50 epochs [default: 1000 for tags and your own files, 0
    otherwise and under --protocol published]."""
    load_best_model_at_end: bool = False
    """Hold out a tenth of the training examples and keep the weights of the evaluation that is best
    on it by the first metric."""
    early_stopping_patience: Count | None = None
    """With --load-best-model-at-end: stop after this many evaluations without improvement."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: weight classes by their inverse frequency (classification and tagging)."""
    warmup_ratio: BelowOne = 0.1
    """Share of the updates until the peak learning rate."""
    max_seq_length: Annotated[int, Ge(16)] | None = None
    """Tokens per sequence [default: 128, tagging 256, questions and BabyLM 512, at most the model's
    maximum]. Longer texts are truncated, for tags and questions read in windows."""
    max_train_samples: Count | None = None
    """Train on this many examples, sampled by the seed."""
    dropout: BelowOne | None = None
    """Dropout of the head [default: the model's, under --protocol published 0.1 for texts, else
    0]."""
    bf16: Literal["auto", "true", "false"] = "auto"
    """Compute in bfloat16 with float32 weights. auto: if the device has instructions for it."""
    frozen_encoder: Literal["none", "last", "last4", "all"] = "none"
    """Linear probe: freeze the encoder and train a head on the hidden states of its last layer, its
    last four, or all."""
    eval_steps: Count | None = None
    """Updates between evaluations [default: at ends of epochs, about five in all]."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""

    def check(self) -> None:
        must_go_together(self)


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(Options):
    """What is fine-tuned on what, and where the results go."""

    models: Positional[tuple[str, ...]]
    """Runs, folders or Hub ids. random:MODEL is the same shape with random weights."""
    output_dir: str | None = None
    """Folder for scores.jsonl, the report, predictions and models. The same command resumes there
    [default: finetuned/NAME of the file or the tasks]."""
    task: tuple[str, ...] = ()
    """Known tasks: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli (glue); conll2000, conll2003,
    wnut17, wikiann, ud (tagging); squad1, squad2 (squad); babylm_boolq, babylm_multirc, babylm_rte,
    babylm_wsc, babylm_mrpc, babylm_qqp, babylm_mnli (babylm)."""
    data_dir: str | None = None
    """Folder that holds the folders of the tasks, or folders glue/, tagging/, squad/ and babylm/
    with them. Or the id of a data set on the Hub [default: nyu-mll/glue, rajpurkar/squad or
    squad_v2]."""
    train_file: str | None = None
    """Your training examples: csv, unquoted tsv, jsonl, parquet, for tagging also columns
    (conll, conllu, txt), for questions SQuAD's json."""
    validation_file: str | None = None
    """Your validation examples, in the same columns."""
    validation_fraction: Inside | None = None
    """Share of the training examples for validation, sampled by --seed, stratified. Equal texts
    stay in one part [default: 0.2 without --validation-file]."""
    header: bool = True
    """The first line of a csv or tsv names the columns. Otherwise they are numbers from 0."""
    text_column: str | None = None
    """Column of the text, by name or number [default: text, sentence, sentence1, content, document,
    sequence, seq, smiles, code, review, utterance, tweet or body]."""
    pair_column: str | None = None
    """Column of the second text [default: by the name of the text column: sentence1 -> sentence2,
    text -> text_pair, ...]."""
    label_column: str | None = None
    """Column of the label, by name or number [default: label, labels, category, class, target,
    intent, sentiment, gold_label or label_text]. Several columns are multilabel: a class each, with
    0, 1 or nothing (unknown)."""
    problem_type: Literal[
        "auto", "classification", "multilabel", "regression", "tagging", "answering"
    ] = "auto"
    """Kind of your examples. auto: lists of words and tags are tagging, SQuAD's json is answering.
    Else lists of labels are multilabel, decimal numbers regression, words and whole numbers
    classification."""
    metrics: tuple[str, ...] = ()
    """Metrics for your own file: accuracy, balanced_accuracy, matthews, f1, macro_f1, micro_f1,
    roc_auc, pr_auc, ece, pearson, spearman. The first one ranks models [default: by the kind of
    labels]."""
    seeds: Count = 1
    """Runs of each model on each task. Compare models with 5 or more."""
    seed: Annotated[int, Ge(0), Lt(2**32)] = 0
    """First seed."""
    random_baseline: bool = False
    """Also run every model with random weights."""
    baselines: bool | None = None
    """Add baselines: majority class, TF-IDF, word overlap, and first a linear layer on the frozen
    encoder [default: for your own texts and tags, if scikit-learn is installed]."""
    predict_test: bool = False
    """Predict GLUE's test sets and write submission-MODEL.zip."""
    hyperparameter_search: str | None = None
    """Grid of settings, NAME=VALUE,VALUE;NAME=..., with all seeds. auto:
    learning_rate=1e-4,3e-4,1e-3,3e-3;num_train_epochs=3,10."""
    save_model: bool | None = None
    """Save the fine-tuned model of the first seed as a Hugging Face folder [default: with one model
    and one task]."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured, for a second)."""
    settings: FinetuneSettings = field(default_factory=FinetuneSettings)

    def check(self) -> None:
        need(bool(self.models), "models are missing: name a folder or a Hub id")
        thread_count(self.threads)
        must_go_together(self)
        need(bool(self.task or self.train_file), "task is missing: give it, or train_file")
        if self.train_file and not (self.validation_file or self.validation_fraction):
            self.set("validation_fraction", HELD_OUT)
        self.set("models", tuple(map(model_named, self.models)))
        search_grid(self.hyperparameter_search, self.settings)

    @property
    def grid(self) -> list[tuple[str, FinetuneSettings]]:
        """The settings of the runs, in a search each point's by its name."""
        return search_grid(self.hyperparameter_search, self.settings)

    @property
    def folder(self) -> Path:
        """The output folder."""
        name = "-".join(self.task) or Path(self.train_file or "").name.partition(".")[0]
        return Path(self.output_dir or Path("finetuned") / name)

    @property
    def adds_baselines(self) -> bool:
        """Whether baselines run, too."""
        if self.baselines is not None:
            return self.baselines
        asks = self.problem_type == "answering" or self.settings.protocol == "published"
        can = find_spec("sklearn") is not None
        return can and not (self.task or asks or self.hyperparameter_search)

    @property
    def saves_model(self) -> bool:
        """Whether the model of the first seed is saved."""
        if self.save_model is not None:
            return self.save_model
        one = len(self.models) == 1 and len(self.task) < 2 and self.hyperparameter_search is None
        s = self.settings
        return one and s.protocol == "electrify" and s.frozen_encoder == "none"


def model_named(name: str) -> str:
    """The model that a name means, which may begin with random:."""
    prefix = RANDOM * name.startswith(RANDOM)
    return prefix + model_in(name.removeprefix(RANDOM))


def search_grid(text: str | None, settings: FinetuneSettings) -> list[tuple[str, FinetuneSettings]]:
    """Every combination of `name=value,value;name=...` in the order written, with a name each.
    Raises UserError."""
    if text is None:
        return [("", settings)]
    known = kinds(FinetuneSettings)
    if text.strip() == "auto":
        text = "learning_rate=1e-4,3e-4,1e-3,3e-3;num_train_epochs=3,10"
    axes: dict[str, list[Any]] = {}
    for part in text.split(";"):
        name, _, values = part.strip().partition("=")
        name = name.strip().replace("-", "_")
        if name not in known or name in ("device", "eval_steps"):
            raise UserError(f"hyperparameter_search: no setting {name!r}{nearest(name, known)}")
        if not values.strip() or name in axes:
            raise UserError(f"hyperparameter_search is NAME=VALUE,VALUE;NAME=..., not {text!r}")
        if getattr(settings, name) != getattr(FinetuneSettings(), name):
            raise UserError(f"{name} is given and searched. Leave one out")
        axes[name] = list(dict.fromkeys(from_text(v, known[name]) for v in values.split(",")))
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    shown = (",".join(f"{k}={v}" for k, v in point.items()) for point in points)
    return [(name, replace(settings, **point)) for name, point in zip(shown, points, strict=True)]


@dataclass(frozen=True, kw_only=True)
class OnNewTexts(Options):
    """What `predict`, `embed` and `score` have in common."""

    endings: ClassVar[tuple[str, ...]] = ()
    """Of the output file."""
    model: Positional[str]
    """Run, folder (of `finetune`, too) or Hub id."""
    files: Positional[tuple[str, ...]]
    """Texts: txt (one per line), csv, unquoted tsv, jsonl, parquet, fasta (fa, faa, fna,
    ffn), smi. All but parquet may be compressed."""
    header: bool = True
    """The first line of a csv or tsv names the columns. Otherwise they are numbers from 0."""
    text_column: str | None = None
    """Column of the text [default: by its name, as in `finetune`]."""
    overwrite: bool = False
    """Replace an existing output file."""
    max_seq_length: Annotated[int, Ge(16)] | None = None
    """Tokens per window [default: the model's maximum]. Longer texts are read in windows."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured, for a second)."""

    def check(self) -> None:
        given = getattr(self, "output_file", None)
        fact = f"output_file must end in {' or '.join(self.endings)}, not {given!r}"
        need(given is None or given.lower().endswith(self.endings), fact)
        thread_count(self.threads)
        self.set("model", model_in(self.model))
        must_go_together(self)


@dataclass(frozen=True, kw_only=True)
class ToRows(OnNewTexts):
    """What `predict` and `score` have in common: a line of output for each text."""

    endings = (".csv", ".tsv", ".jsonl")
    output_file: str | None = None
    """Results as csv, tsv or jsonl, with the columns of the input [default: standard output, as
    tsv]."""
    json: bool = False
    """Write JSON lines to standard output."""


@dataclass(frozen=True, kw_only=True)
class PredictConfig(ToRows):
    """Which fine-tuned model predicts what, and where the predictions go."""

    model: Positional[str]
    """Folder that `finetune` wrote, a fine-tuned model, or a Hub id of one."""
    files: Positional[tuple[str, ...]]
    """Texts: txt (one per line), csv, unquoted tsv, jsonl, parquet, fasta (fa, faa, fna, ffn),
    smi, all but parquet also compressed. For taggers also columns of words (conll, conllu, txt),
    for questions SQuAD's json."""
    max_seq_length: Annotated[int, Ge(16)] | None = None
    """Tokens per text [default: the length used in fine-tuning]. Longer texts are truncated, for
    tags and questions read in windows."""
    pair_column: str | None = None
    """Column of the second text [default: as in `finetune` if the model was trained on pairs]."""
    probabilities: bool = False
    """Write the probability of every label."""
    threshold: Inside | None = None
    """Multilabel: probability above which a label holds [default: 0.5]."""
    no_answer_threshold: float | None = None
    """Questions: score above which there is no answer [default: the best one found in
    fine-tuning]."""
    bf16: Literal["auto", "true", "false"] = "auto"
    """Compute in bfloat16. auto: if the device has instructions for it."""


@dataclass(frozen=True, kw_only=True)
class EmbedConfig(OnNewTexts):
    """Which model makes vectors of which texts, and where they go."""

    endings = (".npy", ".parquet")
    max_seq_length: Annotated[int, Ge(16)] | None = None
    """Tokens per text [default: the model's maximum, at most 512]. Longer texts are truncated."""
    output_file: str
    """Vectors as npy (float32, [texts, size]) or parquet (with the columns of the input)."""
    pooling: Literal["mean", "cls"] = "mean"
    """Mean of all hidden states of a text, or the hidden state of the class token."""
    center: str | None = None
    """File of texts whose mean vector is subtracted. The vectors of discriminators lie close
    together (cosines of 0.78 to 0.97 for unrelated texts) without centring."""
    whiten: str | None = None
    """File of more texts than the hidden size, to centre and whiten vectors by
    (arXiv:2103.15316)."""
    bf16: Literal["auto", "true", "false"] = "auto"
    """Compute in bfloat16. auto: if the device has instructions for it."""
