"""The systems of the study, by the names of their recipes."""

from typing import Any

# All but ELECTRA and BERT.
STUDY = (
    "electra-15",
    "replace-mlm",
    "all-tokens-mlm",
    "corrective",
    "teams",
    "amos",
    "two-stage",
    "adversarial",
    "electric",
    "unigram",
    "uniform",
    "fast-electra",
    "gdes",
    "metro",
    "coco-lm",
    "coco-lm-rtd",
)
SYSTEMS = ("electra", "bert", *STUDY)

# What a run of four rows changes in a recipe: short first stages, and groups of a contrast that fit
# into half a batch. The branch that selects shares a block and has one of its own.
FEW_ROWS: dict[str, dict[str, Any]] = {
    "two-stage": {"generator_steps": 10},
    "fast-electra": {"generator_steps": 10},
    "teams": {"num_hidden_layers": 2},
    "coco-lm": {"contrast_rows": 2},
}
