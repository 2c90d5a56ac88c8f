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
MLM = "generator_loss_masked"
LANGUAGE = {
    "electra": [MLM],
    "bert": ["mlm_loss_masked"],
    "electra-15": [MLM],
    "replace-mlm": [MLM, "mlm"],
    "all-tokens-mlm": [MLM, "softmax_loss_replaced"],
    "corrective": [MLM, "correct"],
    "teams": [MLM],
    "amos": [MLM, "generator_loss_depth_3"],
    "two-stage": [MLM],
    "adversarial": [],
    "electric": ["generator"],
    "unigram": [],
    "uniform": [],
    "fast-electra": [MLM],
    "gdes": [MLM],
    "metro": [MLM, "correct"],
    "coco-lm": [MLM],
    "coco-lm-rtd": [MLM],
    "corrective after mlm": [MLM, "correct"],
    "corrective gate": [MLM],
    "corrective copy": [MLM],
}
DETECTION = {
    "electra-15": ["rtd_chosen_detection_auc"],
    "all-tokens-mlm": ["copy_detection_auc"],
    "electric": ["energy_ranking_auc"],
    "bert": [],
    "replace-mlm": [],
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
AFTER_MLM: dict[str, Any] = {"mlm_share": 0.4, "max_steps": 1250, "eval_steps": 490}
# An energy must first learn how frequent each word is, which a detector need not know.
OWN: dict[str, dict[str, Any]] = {
    "two-stage": {"generator_steps": 750},
    "fast-electra": {"generator_steps": 750, "max_steps": 1250},  # nothing is shared
    "gdes": {"max_steps": 1250},  # no gradient of the detector reaches the generator's vectors
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


@pytest.mark.parametrize("system", LANGUAGE)
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
    if config.objective.mlm_share:  # the first validation lies in that part of the run
        assert first["mlm_loss_masked"] < entropy - 0.5
        assert "mlm_loss_masked" not in valid, "the second part has other losses"
    for name in LANGUAGE[system]:
        assert valid[name] < entropy - 0.5, name
    for name in DETECTION.get(system, ["rtd_detection_auc"]):
        assert valid[name] > 0.6, name
    for name, least in AT_LEAST.get(system, {}).items():
        assert valid[name] > least, name
