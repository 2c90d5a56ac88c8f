from pathlib import Path

import pytest

from tiny_models import write_models

WORDS = ["the", "chef", "cook", "##ed", "##s", "ate", "meal", ",", ".", "a", "b", "c", "d"]
CLASSES = {
    "run/discriminator": "ElectraForPreTraining",
    "run/generator": "ElectraForMaskedLM",
    "bert": "BertForMaskedLM",
}


@pytest.fixture(scope="session")
def models_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders run/discriminator, run/generator and bert."""
    return write_models(tmp_path_factory.mktemp("models"), WORDS, CLASSES)
