"""Updates that are replayed on the same memory, as a CUDA graph is, against the loop: bit for bit,
on a CPU whose recorder (recorded.py) takes the graph's place."""

from pathlib import Path
from typing import Any

import pytest
import torch
from recorded import record
from running import recipe, run_of

from electrify import cli
from electrify.recipe import Recipe
from electrify.train import loop
from electrify.train.graphs import WARM, Graphs
from electrify.train.loop import Run
from small import DROPOUT, pretrain_words, same_ending

CASES: list[tuple[str, dict[str, Any]]] = [
    ("electra-tiny", DROPOUT | {"bf16": True}),
    ("electra-tiny", {"clip": "apart", "generator_learning_rate": 1e-3, "optim": "adamw"}),
    ("electra-tiny", {"seq_length_schedule": {8: 0.5}, "adam_beta2_tokens": 1e4}),
    ("bert-tiny", DROPOUT),
    ("corrective-tiny", {"mlm_share": 0.5}),
    ("teams-tiny", {}),
    ("amos-tiny", {}),
    ("adversarial-tiny", {}),
    ("electra-modernbert-tiny", {}),
    ("electra-deberta-tiny", {}),
]


def with_graphs(run: Run, *, graphs: bool = True) -> Run:
    """As on a GPU. graphs: False leaves it to the loop."""
    run.fixed = True
    run.rates_as_tensors()
    run.graphs = Graphs(run.compute, run.world.device) if graphs else None
    return run


def pair(data: Path, folder: Path, recipe: Recipe, *, steps: int) -> tuple[Run, Run]:
    """The loop and the graphs after so many updates."""
    runs = [with_graphs(run_of(data, folder, recipe), graphs=graphs) for graphs in (False, True)]
    for step in range(steps):
        for run in runs:
            run.update(run.batch(step))
    return runs[0], runs[1]


def spoil_some(patch: pytest.MonkeyPatch, *, one_in: int, rest: int = 0) -> None:
    """The loss of about one in so many updates, by their numbers of tokens, is not a number."""
    weighted = loop.weighted

    def spoiled(terms: Any, weights: Any, counts: Any) -> torch.Tensor:
        odd = torch.stack(list(counts.values())).sum() % one_in == rest
        return torch.where(odd, torch.nan, weighted(terms, weights, counts))

    patch.setattr(loop, "weighted", spoiled)


@pytest.mark.parametrize(("name", "fields"), CASES, ids=str)
def test_the_bits_of_the_loop(small_data, tmp_path, monkeypatch, name, fields):
    """Parameters, optimiser, sums and verdicts, with updates that are refused."""
    monkeypatch.setattr(Graphs, "record", lambda _, work: record(work))
    spoil_some(monkeypatch, one_in=3)
    config = recipe(name, max_steps=10, train_batch_size=8, **fields)
    loops, graph = pair(small_data, tmp_path, config, steps=10)
    assert graph.graphs is not None
    assert len(graph.graphs.captured) == 1
    assert min(graph.graphs.seen.values()) > WARM
    verdicts = [run.state.guard._unread for run in (loops, graph)]
    assert {bool(figures[0]) for _, figures in verdicts[0]} == {False, True}
    for (step, figures), (at, others) in zip(*verdicts, strict=True):
        assert (step, figures.nan_to_num(-1).tolist()) == (at, others.nan_to_num(-1).tolist())
    assert loops.state.sums.save() == graph.state.sums.save()
    assert loops.state.guard.state() == graph.state.guard.state()
    kept = [run.state.tensors(keep=True) for run in (loops, graph)]
    for group in ("model", "optimizer"):
        assert kept[0][group].keys() == kept[1][group].keys()
        for n, t in kept[0][group].items():
            assert torch.equal(t, kept[1][group][n]), n


@pytest.mark.parametrize(
    "own", [{"non_finite": "rollback"}, {"non_finite": "skip", "batch_size_schedule": "4=.3"}]
)
def test_a_whole_run(small_data, tmp_path, monkeypatch, own):
    """Log lines, validations, checkpoints, rollbacks, a batch that grows, and an interruption: the
    ending of the loop."""
    made = Run.__init__
    fields = DROPOUT | {"max_steps": 24, "max_non_finite": 30, "train_batch_size": 8} | own
    fields |= {"eval_steps": 9, "save_steps": 5, "logging_steps": 2}
    spoil_some(monkeypatch, one_in=9, rest=4)
    replays = 0

    def counted(_: Graphs, work: Any) -> Any:
        replay = record(work)

        def again() -> Any:
            nonlocal replays
            replays += 1
            return replay()

        return again

    monkeypatch.setattr(Graphs, "record", counted)
    for folder, graphs in (("loop", False), ("graphs", True)):

        def begun(self: Run, *given: Any, graphs: bool = graphs, **how: Any) -> None:
            made(self, *given, **how)
            with_graphs(self, graphs=graphs)

        monkeypatch.setattr(Run, "__init__", begun)
        words = pretrain_words(small_data, tmp_path / folder, **fields)
        if graphs:
            assert cli.main([*words, "--max-minutes", "1e-9"]) == 75
        assert cli.main(words) == 0
        assert (replays > 5) is graphs
    same_ending(tmp_path / "loop", tmp_path / "graphs", step=24)
