"""The two protocols of `electrify finetune --protocol`: the values that each sets if the user gives
no flag.

`published` computes as the public code of ELECTRA does (google-research/electra:
model/optimization.py, run_finetuning.py, finetune/). Peak rates, their decay by layer, weight decay
0, batches, epochs and lengths are those of the paper (2003.10555, table 7) under both.
docs/finetuning.md has the table with the places in the public code, and the differences that
remain.
"""

from __future__ import annotations

from typing import Any, Literal

ProtocolName = Literal["electrify", "published"]
WordPooling = Literal["first", "mean"]

PROTOCOLS: dict[str, dict[str, Any]] = {
    "electrify": {
        "optim": "adamw",
        "lr_scheduler_type": "linear",
        "loss_reduction": "mean",
        "layerwise_lr_skip": False,
        "head_init": "normal",
        "regression_targets": "standardised",
        "group_by_length": True,
        "double_unordered": False,
        "answer_head": "joint",
        "word_pooling": "mean",
        "encoder_dropout": None,  # the model's own
    },
    "published": {
        "optim": "electra_adam",
        "lr_scheduler_type": "electra",
        "loss_reduction": "sum",
        "layerwise_lr_skip": True,
        "head_init": "glorot",
        "regression_targets": "unit",
        "group_by_length": False,
        "double_unordered": True,
        "answer_head": "electra",
        "word_pooling": "first",
        "encoder_dropout": 0.1,
    },
}

PUBLISHED_DROPOUT = {
    "classification": 0.1,
    "multilabel": 0.1,
    "regression": 0.1,
    "tagging": 0.0,
    "answering": 0.0,
}
"""Dropout before the head in the public code: keep_prob .9 before classes and values, none before
tags and answers."""
