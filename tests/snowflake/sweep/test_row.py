"""What a row says of how its run was computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from snowflake.sweep.cells import cells_of
from snowflake.sweep.folder import SweepFolder
from snowflake.sweep.worker import run_cell
from tests.snowflake.sweep import studies

MIXED = """\
name: mixed
total_timesteps: 128
agents: [centipede-4]
variants:
  mixed:
    method: snowflake
    precision: fp8-mor
    env: {n_envs: 4, max_episode_steps: 8}
    ppo: {n_steps: 16, batch_size: 32, n_epochs: 1}
    policy: {hidden_size: 8, propagation_steps: 1}
    numerics: {statistics_every: 1}
    evaluation: {eval_episodes: 1, eval_freq: 0}
episodes: 1
"""


def test_a_row_has_ratio_errors_and_shares_of_formats_and_no_single_operand(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path / "out")
    sweep.prepare(cells_of(studies.read(tmp_path, MIXED), "mixed.yaml"), MIXED)
    run_cell(sweep, "mixed__centipede-4__seed0")
    row = sweep.read_result("mixed__centipede-4__seed0")
    numerics, curves = row["numerics"], row["curves"]
    assert (numerics["precision"], numerics["parametrization"]) == ("fp8-mor", "standard")
    errors = curves["snowflake/first_ratio_error"]["values"]
    assert numerics["first_ratio_error"] == max(errors) < 1e-5
    assert numerics["skipped_steps"] == 0
    for network in ("actor", "critic"):
        for what in ("operands", "flops"):
            shares = numerics["shares"][network][what]
            assert sum(shares.values()) == pytest.approx(1.0)
            tag = f"numerics/{network}/share/{what}/e4m3"
            assert shares["e4m3"] == pytest.approx(sum(curves[tag]["values"]) / 2)
    assert 0 < numerics["shares"]["actor"]["flops"]["fp32"] < 1  # encoder and read-out
    assert "numerics/actor/log2_scale/x/median" in curves
    assert not [tag for tag in curves if tag.startswith("numerics/actor/update")]
