"""`electrify compare`: plan, run, report."""

from __future__ import annotations

from ..config.compare import CompareConfig
from ..files.inside import must_be_utf8, must_not_be_in_a_checkpoint
from ..files.lock import lock
from ..progress import say
from .forecast import Forecast, forecast
from .report import write_report
from .run import run_study
from .study import Study, plan_study
from .table import Table, table_of


def planned(config: CompareConfig) -> tuple[Study, Forecast]:
    """The plan of a study, checked, with what it will take. Raises UserError."""
    study = plan_study(config)
    if config.against and len(config.budgets) == 1:
        say(
            f"--against {config.against} changes nothing: the picture of a single budget has no "
            "axis of costs"
        )
    must_be_utf8(study.out)
    must_not_be_in_a_checkpoint(study.out)
    return study, forecast(study)


def compare(study: Study) -> Table:
    """Runs what is left of a study and writes its report. Raises UserError for a folder that cannot
    be used."""
    c = study.config
    results = run_study(study)
    table = table_of(results, recipes=study.recipes, tasks=c.tasks, equal=c.equal)
    with lock(study.out):
        write_report(table, study.out, against=c.against or c.equal)
    return table
