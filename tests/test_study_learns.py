"""Every system of the study learns from real text: a language model falls below the entropy of the
unigram, a detector tells replaced tokens.

1.5 million tokens (4.5 for electric), one to four minutes on one core, longer with a contrast; what
a longer run reaches is in research/results.md.
"""

from pathlib import Path
from typing import Any

import pytest

from electrify.recipe import load
from electrify.text.corpus import Corpus
from electrify.train.monitor import unigram_entropy
from small import electrify, flags, records

TEXT = Path(__file__).parents[2] / "shared" / "data" / "corpus" / "wiki-00.txt.xz"
FIELDS: dict[str, Any] = {
    "max_steps": 750,
    "train_batch_size": 32,
    "max_seq_length": 64,
    "warmup_steps": 100,
    "eval_steps": 0,
    "eval_rows": 512,
    "save_steps": 10_000,
    "logging_steps": 250,
    "report_to": "none",
    "device": "cpu",
}
# What each system must have learnt: losses of language models on tokens that they could not see,
# and detectors.
LANGUAGE, DETECTION = "language", "detection"
SYSTEMS: dict[str, dict[str, list[str]]] = {
    "electra": {LANGUAGE: ["generator_loss_masked"], DETECTION: ["rtd_detection_auc"]},
    "bert": {LANGUAGE: ["mlm_loss_masked"], DETECTION: []},
    "electra-15": {LANGUAGE: ["generator_loss_masked"], DETECTION: ["rtd_chosen_detection_auc"]},
    "replace-mlm": {LANGUAGE: ["generator_loss_masked", "mlm"], DETECTION: []},
    "all-tokens-mlm": {
        LANGUAGE: ["generator_loss_masked", "softmax_loss_replaced"],
        DETECTION: ["copy_detection_auc"],
    },
    "corrective": {
        LANGUAGE: ["generator_loss_masked", "correct"],
        DETECTION: ["rtd_detection_auc"],
    },
    "teams": {LANGUAGE: ["generator_loss_masked"], DETECTION: ["rtd_detection_auc"]},
    "amos": {
        LANGUAGE: ["generator_loss_masked", "generator_loss_depth_3"],
        DETECTION: ["rtd_detection_auc"],
    },
    "two-stage": {LANGUAGE: ["generator_loss_masked"], DETECTION: ["rtd_detection_auc"]},
    "adversarial": {LANGUAGE: [], DETECTION: ["rtd_detection_auc"]},
    "electric": {LANGUAGE: ["generator"], DETECTION: ["energy_ranking_auc"]},
    "unigram": {LANGUAGE: [], DETECTION: ["rtd_detection_auc"]},
    "uniform": {LANGUAGE: [], DETECTION: ["rtd_detection_auc"]},
    "fast-electra": {LANGUAGE: ["generator_loss_masked"], DETECTION: ["rtd_detection_auc"]},
    "gdes": {LANGUAGE: ["generator_loss_masked"], DETECTION: ["rtd_detection_auc"]},
    "metro": {LANGUAGE: ["generator_loss_masked", "correct"], DETECTION: ["rtd_detection_auc"]},
    "coco-lm": {LANGUAGE: ["generator_loss_masked"], DETECTION: ["rtd_detection_auc"]},
    "coco-lm-rtd": {LANGUAGE: ["generator_loss_masked"], DETECTION: ["rtd_detection_auc"]},
    "corrective after mlm": {
        LANGUAGE: ["generator_loss_masked", "correct"],
        DETECTION: ["rtd_detection_auc"],
    },
    "corrective gate": {LANGUAGE: ["generator_loss_masked"], DETECTION: ["rtd_detection_auc"]},
    "corrective copy": {LANGUAGE: ["generator_loss_masked"], DETECTION: ["rtd_detection_auc"]},
}

# Rates whose chance is another one: of five candidates one is right, and a crop is one of a hundred
# or more. A correction that asks the detector first has a loss that says nothing about the
# language, so what counts is how often its first guess at a chosen place is right; the most
# frequent token would be in 3 of 100.
CORRECTS = {"correct_accuracy": 0.1}
AT_LEAST = {
    "teams": {"select_accuracy": 0.3},
    "coco-lm": {"contrast_accuracy": 0.3},
    "corrective gate": CORRECTS,
    "corrective copy": CORRECTS,
}
# Losses of the first validation, which lies in the part of the run that mlm_share names.
FIRST = {
    "corrective after mlm": ["mlm_loss_masked"],
    "corrective gate": ["mlm_loss_masked"],
    "corrective copy": ["mlm_loss_masked"],
}
AFTER_MLM: dict[str, Any] = {"mlm_share": 0.4, "max_steps": 1250, "eval_steps": 490}
# An energy must first learn how frequent each word is, which a detector need not know.
OWN: dict[str, dict[str, Any]] = {
    "two-stage": {"generator_steps": 750},
    "fast-electra": {"generator_steps": 750, "max_steps": 1250},  # nothing is shared
    "electric": {"max_steps": 2250},
    "corrective after mlm": AFTER_MLM,
    # While the detector is unsure a gate leaves little to learn, so both begin with words.
    "corrective gate": AFTER_MLM | {"correction": "gate"},
    "corrective copy": AFTER_MLM | {"correction": "copy"},
}

pytestmark = [pytest.mark.learning, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not TEXT.is_file():
        pytest.skip("no ../shared/data/corpus")
    folder = tmp_path_factory.mktemp("wiki")
    words = ["prepare", str(TEXT), "--output-dir", str(folder / "data")]
    electrify([*words, "--vocab-size", "2048", "--workers", "1"], folder)
    return folder / "data"


@pytest.mark.parametrize("system", SYSTEMS)
def test_learns(system: str, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    recipe = f"{system.split(maxsplit=1)[0]}-tiny"
    words = ["pretrain", str(data), "--output-dir", str(run), "--recipe", recipe]
    electrify([*words, *flags(**FIELDS | OWN.get(system, {}))], tmp_path, seconds=1500)
    found = records(run, "valid")
    first, valid = found[0], found[-1]
    config = load(run / "config.yaml")
    entropy = unigram_entropy(Corpus(data, "train"), config.corruption)
    assert 5.5 < entropy < 6.5
    for name in FIRST.get(system, []):
        assert first[name] < entropy - 0.5, name
        assert name not in valid, "the second part has other losses"
    for name in SYSTEMS[system][LANGUAGE]:
        assert valid[name] < entropy - 0.5, name
    for name in SYSTEMS[system][DETECTION]:
        assert valid[name] > 0.6, name
    for name, least in AT_LEAST.get(system, {}).items():
        assert valid[name] > least, name
