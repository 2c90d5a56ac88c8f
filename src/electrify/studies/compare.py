"""`electrify compare`: plan, run, report."""

from __future__ import annotations

from collections.abc import Iterator

from ..files import claim
from ..progress import say
from .forecast import Forecast, forecast
from .measures import is_of_pairs, is_of_the_corpus, is_trained
from .options import STUDY, CompareConfig
from .report import write_report
from .results import RESULTS
from .run import run_study
from .study import Study, plan_study
from .table import Table, table_of


def planned(config: CompareConfig) -> tuple[Study, Forecast]:
    """The plan of a study, checked, with what it will take. Raises UserError."""
    study = plan_study(config)
    for line in in_vain(config):
        say(line)
    return study, forecast(study)


def in_vain(config: CompareConfig) -> Iterator[str]:
    """Lines about options that do nothing here."""
    if config.against and len(config.budgets) == 1:
        yield (
            f"--against {config.against} changes nothing: the picture of a single budget has no "
            "axis of costs"
        )
    pairs = [name for name in config.tasks if is_of_pairs(name)]
    trained = [name for name in config.tasks if is_trained(name)]
    if config.max_eval_samples is not None and not pairs:
        yield "--max-eval-samples does nothing: it is for blimp, supplement and planted"
    if config.data_dir is not None and all(map(is_of_the_corpus, config.tasks)):
        yield "--data-dir does nothing: planted is made of the corpus"
    for name in ("max_train_samples", "task_seeds"):
        if getattr(config, name) != getattr(CompareConfig, name) and not trained:
            yield f"--{name.replace('_', '-')} does nothing: no task here is trained"


def compare(study: Study) -> Table:
    """Runs what is left of a study and writes its report, with no other command in between. Raises
    UserError for a folder that cannot be used."""
    c = study.config
    with claim(study.out, STUDY, RESULTS):
        results = run_study(study)
        table = table_of(results, recipes=study.recipes, tasks=c.tasks, equal=c.equal)
        write_report(table, study.out, against=c.against or c.equal)
    return table
