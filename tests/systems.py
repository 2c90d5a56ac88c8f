"""The systems of the study, by the names of their recipes."""

SYSTEMS = (
    "electra",
    "bert",
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
