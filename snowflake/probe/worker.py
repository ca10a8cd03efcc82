"""The process of one run: ``python -m snowflake.probe.worker FOLDER CELL``, started as those of a sweep are."""

from __future__ import annotations

import sys
import time

import agents
from agents.errors import UserError
from snowflake.files import dump_json, write_atomic
from snowflake.probe.cells import ProbeCell
from snowflake.probe.row import ProbeRow
from snowflake.sweep.folder import SweepFolder
from snowflake.sweep.worker import main


def run_cell(folder: SweepFolder, name: str) -> None:
    """Bring a run to its row; one that is done is left alone.

    Raises:
        Busy: Another process is at it.
        UserError: The settings or a body are refused.
        KeyboardInterrupt: A signal stopped it; what can be continued is saved.
    """
    with folder.locked(name):
        if folder.done(name):
            return
        cell = ProbeCell.read(folder.cell_file(name))
        started = time.monotonic()
        row = run_regression(cell) if cell.objective == "bc" else _run_ppo(folder, cell)
        write_atomic(folder.result(name), dump_json(row.to_json(), indent=None))
        folder.add_timing(name, time.monotonic() - started, cell.updates)


def run_regression(cell: ProbeCell) -> ProbeRow:
    """Train and judge a run of objective ``bc``."""
    import torch

    from snowflake.probe.data import FEATURES, regression_set
    from snowflake.probe.network import TokenRegression
    from snowflake.probe.regression import row_of, train_regression

    torch.set_num_threads(1)
    data = regression_set(cell.seed)
    model = TokenRegression(FEATURES, cell.config.policy, torch.Generator().manual_seed(cell.seed))
    run = train_regression(model, data, rate=cell.rate, updates=cell.updates, batch_size=cell.samples, seed=cell.seed)
    return row_of(run, data, variant=cell.variant, rate=cell.rate, seed=cell.seed)


def _run_ppo(folder: SweepFolder, cell: ProbeCell) -> ProbeRow:
    from snowflake.probe.reinforcement import run_ppo

    for name, known in cell.models.items():
        if agents.model_hash(agents.load(name).compile()) != known:
            raise UserError(f"body {name!r} was changed since the probe began: run the probe into another --output")
    return run_ppo(cell, folder.run(cell.name))


if __name__ == "__main__":
    sys.exit(main(run=run_cell))
