"""Whether the options of `finetune` fit its tasks. This is known before the first model is
loaded."""

from __future__ import annotations

from ..errors import UserError
from . import metrics
from .glue_tasks import GLUE
from .options import FinetuneConfig, FinetuneSettings
from .tasks import Kind, TaskData

_ONLY_FOR: dict[str, tuple[Kind, str]] = {
    "word_pooling": ("tagging", "tagging"),
    "tagging_head": ("tagging", "tagging"),
    "answer_head": ("answering", "question answering"),
    "doc_stride": ("answering", "question answering"),
    "n_best_size": ("answering", "question answering"),
    "max_answer_length": ("answering", "question answering"),
    "regression_targets": ("regression", "regression"),
}


def require_use(options: FinetuneConfig, tasks: list[TaskData]) -> None:
    """Raises UserError for an option that none of the tasks would use, if a model could not be
    saved, and if a library that scores is missing."""
    for task in tasks:
        if task.kind not in ("tagging", "answering"):  # whose scores we compute ourselves
            metrics.require(task.metrics)
    kinds: set[Kind] = {task.kind for task in tasks}
    _require_kinds(options.settings, kinds)
    if options.settings.double_unordered and all(task.symmetric is False for task in tasks):
        raise UserError(
            "--double-unordered is for pairs whose order does not matter (MRPC, STS-B, your own); "
            "none of the tasks has such"
        )
    if options.baselines:
        if kinds == {"answering"}:
            raise UserError("--baselines are for texts and tagging; none of the tasks is")
        metrics.require(("accuracy",))  # the baselines are scikit-learn's, too
    if options.predict_test and not any(task.test or task.name in GLUE for task in tasks):
        raise UserError("--predict-test is for GLUE's test sets; none of the tasks has one")
    if (
        options.save_model
        and "answering" in kinds
        and options.settings.filled().answer_head != "plain"
    ):
        raise UserError(
            "--save-model with question answering needs --answer-head plain: the library has no "
            "other head"
        )


def _require_kinds(settings: FinetuneSettings, kinds: set[Kind]) -> None:
    """Raises UserError for a setting that is for other kinds of task."""
    for name, (kind, shown) in _ONLY_FOR.items():
        if kind not in kinds and getattr(settings, name) != getattr(FinetuneSettings(), name):
            raise UserError(f"--{name.replace('_', '-')} is for {shown}; none of the tasks is")
    if settings.class_weights != "none" and not kinds & {"classification", "multilabel", "tagging"}:
        raise UserError("--class-weights is for classes and tags; none of the tasks has them")
    if settings.frozen_encoder != "none" and "answering" in kinds:
        raise UserError("--frozen-encoder is for tagging and texts, not for questions")
