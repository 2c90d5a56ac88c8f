"""The machine: devices, what a run records about it, and its memory."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest
import torch

from electrify.errors import UserError
from electrify.train import machine

CPU = torch.device("cpu")


def test_pick_device() -> None:
    assert machine.pick_device("cpu") == CPU
    assert machine.pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "", "mps"])
def test_a_device_that_nobody_knows_is_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match="known: auto, cpu, cuda"):
        machine.pick_device(name)


def test_describe_says_what_a_result_depends_on_and_not_where_it_ran() -> None:
    facts = machine.describe(CPU)
    assert facts["device"] == "cpu"
    assert torch.__version__.startswith(facts["torch"])  # the package may lack "+cu130"
    assert facts["python"] == platform.python_version()
    assert facts["threads"] == torch.get_num_threads()
    assert 1 <= facts["cores"] <= (os.cpu_count() or 1)
    assert facts["transformers"]
    text = json.dumps(facts)
    assert platform.node() not in text
    assert str(Path.home()) + "/" not in text
    assert str(Path(__file__).parents[2]) not in text


# --- commit
