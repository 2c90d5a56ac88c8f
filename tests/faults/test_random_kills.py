"""SIGKILL at random times, thirty times: nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from breaking import KILLED, SAVED, SHORT, begin, prepare_words, run

from small import listing, model_files, pretrain_words, same_ending, write_text

ROUNDS = 30
RECIPES: tuple[dict[str, Any], ...] = (
    {"recipe": "electra-tiny"},
    {"recipe": "bert-tiny"},
    {"recipe": "two-stage-tiny", "generator_steps": 60},
    {"recipe": "electra-deberta-tiny", "tie": "gdes"},
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_thirty_random_kills(small_data: Path, tmp_path: Path) -> None:
    """At any time between the start of a process and the end of its export; runs that come through
    are compared, and another one begins."""
    chance = random.Random(0)
    kills, runs = 0, 0
    while kills < ROUNDS or runs < len(RECIPES):
        options = SHORT | {"max_steps": 150, "seed": runs} | RECIPES[runs % len(RECIPES)]
        whole, broken = (tmp_path / f"{name}-{runs}" for name in ("whole", "broken"))
        began = time.monotonic()
        run(pretrain_words(small_data, whole, **options), tmp_path)
        seconds = time.monotonic() - began
        here = 0
        while True:
            process = begin(pretrain_words(small_data, broken, **options), tmp_path)
            status = process.kill_after(chance.uniform(0, seconds if here < 8 else 1e6))
            assert status in (0, KILLED), process.said()
            if status == 0:
                break
            here += 1
        kills += here
        same_ending(whole, broken, step=150)
        for name in ("discriminator", "generator"):
            assert model_files(whole / name) == model_files(broken / name)
        runs += 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_random_kills_of_prepare(tmp_path: Path) -> None:
    """Fifteen kills and five SIGTERM, over the whole of its time: the same bytes."""
    text = write_text(tmp_path / "corpus.txt", size=300_000)
    began = time.monotonic()
    run(prepare_words(text, tmp_path / "whole"), tmp_path)
    seconds = time.monotonic() - began
    chance = random.Random(1)
    words = prepare_words(text, tmp_path / "broken")
    for _ in range(15):
        begin(words, tmp_path).kill_after(chance.uniform(0, seconds))
    for _ in range(5):
        process = begin(words, tmp_path)
        process.process.join(chance.uniform(0.2, 1) * seconds)
        os.kill(process.pid, signal.SIGTERM)
        assert process.end() in (SAVED, 0), process.said()
        assert "Traceback" not in process.said()
    run(words, tmp_path)
    whole, broken = (
        {n: h for n, h in listing(tmp_path / name).items() if n != "prepare.log.json"}
        for name in ("whole", "broken")
    )
    assert whole == broken
