"""Variants of the study's systems that no recipe names: a recipe and the fields that differ from
it."""

from typing import Any

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "correct as replaced": ("electra-tiny", {"correct_as_replaced": True}),
    "no gate": ("all-tokens-mlm-tiny", {"copy_gate": False}),
    "all tokens over unigram": (
        "all-tokens-mlm-tiny",
        {"corruptor": "unigram", "term_weights": {"all_tokens": 1.0}},
    ),
    "no gate over uniform": (
        "all-tokens-mlm-tiny",
        {"corruptor": "uniform", "copy_gate": False, "term_weights": {"all_tokens": 1.0}},
    ),
    "replace mlm over uniform": (
        "replace-mlm-tiny",
        {"corruptor": "uniform", "term_weights": {"mlm": 1.0}},
    ),
    "replace mlm over unigram": (
        "replace-mlm-tiny",
        {"corruptor": "unigram", "term_weights": {"mlm": 1.0}},
    ),
    "corrective over a mixture": (
        "amos-tiny",
        {
            "objective": "corrective",
            "term_weights": {"generator": 1.0, "rtd": 50.0, "correct": 1.0},
        },
    ),
    "electric over unigram": (
        "electric-tiny",
        {"corruptor": "unigram", "term_weights": {"nce": 50.0}},
    ),
    "electric over uniform": (
        "electric-tiny",
        {"corruptor": "uniform", "term_weights": {"nce": 50.0}},
    ),
    "contrast": (
        "corrective-tiny",
        {
            "contrast_rows": 2,
            "mlm_share": 0.4,
            "term_weights": {"generator": 1.0, "rtd": 50.0, "correct": 1.0, "contrast": 1.0},
        },
    ),
    "gate": ("corrective-tiny", {"correction": "gate"}),
    "copy": ("corrective-tiny", {"correction": "copy"}),
    "linear head": ("corrective-tiny", {"rtd_head": "linear"}),
}
