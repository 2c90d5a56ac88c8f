"""`electrify score`: how well the texts of files fit a model, one number a text and one per token,
in bounded memory whatever the size of the files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from ..finetuning.new_texts import Files, done, must_be_ready, rounded, write_results
from ..train.machine import pick_device
from .options import ScoreConfig
from .pll import Scorer, TextScore, load_scorer


@dataclass
class TextScorer:
    """Examples -> the columns that `score` adds."""

    reader: Scorer
    options: ScoreConfig
    texts: int = 0
    bf16 = False

    @property
    def device(self) -> Any:
        return self.reader.device

    def __call__(self, examples: list[Any], after: Any) -> list[dict[str, Any]]:
        self.texts += len(examples)
        found = self.reader.token_scores(
            [example.text for example in examples],
            max_seq_length=self.options.max_seq_length,
            batch_tokens=self.options.batch_tokens,
            after=lambda number: after(number / len(examples)),
        )
        return list(map(self._columns, found))

    def _columns(self, found: TextScore) -> dict[str, Any]:
        columns: dict[str, Any] = {"score": rounded(found.score), "tokens": len(found.tokens)}
        if self.options.per_token:
            columns |= {
                "token": list(found.tokens),
                "token_score": list(map(rounded, found.token_scores)),
            }
        return columns


def score_files(options: ScoreConfig) -> str:
    """Writes the score of every text of the files, in order, into the output file, whole or not at
    all, or to standard output; returns what it did. Mistakes in files and options are reported
    before the model is loaded. Raises UserError."""
    began = time.monotonic()
    must_be_ready(options, options.output_file)
    how: dict[str, Any] = {"text_column": options.text_column, "header": options.header}
    files = Files(options.files, "regression", pairs=False, **how)
    files.check()
    device, model = pick_device(options.device), options.model
    work = TextScorer(load_scorer(model, device=device, architecture=options.architecture), options)
    write_results(options, files, work, title="score")
    return done(options.output_file, work.texts, began)
