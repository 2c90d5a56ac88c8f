"""What a run with a mixture leaves: the detector, and the deepest of its language models, as
transformers computes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runs import RTD, export_run, write_run

from electrify.recipe import override
from electrify.tokens import from_sequences

SENTENCE = [2, 5, 4, 7, 4, 9, 3]


def test_both_folders_compute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits to 1e-5, and no weight of the library is left at random or over: v stays behind."""
    from transformers import AutoModelForMaskedLM, AutoModelForPreTraining

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = override(RTD, {"corruptor": "mixture", "tie": "tokens", "read_outs": (1, 2)})
    built = write_run(tmp_path / "run", config)
    folders = export_run(tmp_path / "run", built)
    assert set(folders) == {"discriminator", "generator"}
    tokens = from_sequences([SENTENCE], row_length=len(SENTENCE), pad=0)
    built.objective.eval()
    mixture = built.objective.corruptor
    at_M = torch.arange(len(SENTENCE))
    with torch.no_grad():
        deepest_MV = mixture.lm.head(mixture.states(tokens, at_M)[-1])
        ours = {"discriminator": built.objective.head(built.objective.encoder(tokens))}
    ours["generator"] = deepest_MV
    for name, kind in (
        ("discriminator", AutoModelForPreTraining),
        ("generator", AutoModelForMaskedLM),
    ):
        theirs, info = kind.from_pretrained(folders[name], output_loading_info=True)
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        with torch.no_grad():
            logits = theirs(input_ids=torch.tensor([SENTENCE])).logits[0]
        torch.testing.assert_close(logits, ours[name], rtol=1e-5, atol=1e-5)
