"""The systems of the study, by the names of their recipes."""

from __future__ import annotations

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
)
SYSTEMS = ("electra", "bert", *STUDY)
