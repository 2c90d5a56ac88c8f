from pathlib import Path

import pytest

from tiny_models import write_models

CLASSES = {
    "run/discriminator": "ElectraForPreTraining",
    "run/generator": "ElectraForMaskedLM",
    "bert": "BertForMaskedLM",
    "tuned": "ElectraForSequenceClassification",
    "tagger": "ElectraForTokenClassification",
    "reader": "ElectraForQuestionAnswering",
}


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each class."""
    letters = [chr(i) for i in range(33, 127)]
    words = [*letters, *(f"##{c}" for c in letters), "the", "chef", "ate", "meal"]
    return write_models(
        tmp_path_factory.mktemp("served"), words, CLASSES, max_position_embeddings=64
    )
