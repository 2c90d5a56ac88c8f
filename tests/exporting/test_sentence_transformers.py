"""`electrify export --format sentence-transformers`."""

import numpy as np
import pytest
from runs import ENCODERS, RTD, export_run, write_run

import electrify
from electrify.cli import main
from electrify.recipe import override

TEXTS = ["a cat", "the chef cooked a meal and the dog sat on the mat", "the cat sat . " * 20]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_its_vectors_are_those_of_embed(tmp_path, encoder: str):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    run, target = tmp_path / "run", tmp_path / "st"
    built = write_run(run, override(RTD, ENCODERS[encoder]), steps=(10,))
    folder = export_run(run, built)["discriminator"]
    # From the run by its checkpoint, and in its place from the folder.
    for model in (run, folder):
        how = ["--format", "sentence-transformers", "--output-dir", str(target)]
        assert main(["export", str(model), *how]) == 0
    wanted = electrify.embed(folder, TEXTS)
    found = sentence_transformers.SentenceTransformer(str(target), device="cpu").encode(TEXTS)
    assert np.allclose(wanted, found, atol=1e-5)
    assert np.std(wanted, axis=0).max() > 0.01
    assert np.allclose(wanted, electrify.embed(target, TEXTS), atol=1e-5)
