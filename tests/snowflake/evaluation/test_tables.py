"""The tables fit a terminal of 80 columns and show the numbers of the result."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console

from snowflake.evaluation.range_share import RangeShare
from snowflake.evaluation.results import RULE
from snowflake.evaluation.score import FORMULA, Expert
from snowflake.evaluation.siblings import SiblingOrders
from snowflake.evaluation.tables import number, print_result


def printed(result: Any) -> str:
    out = io.StringIO()
    print_result(result, Console(file=out, width=80, highlight=False))
    return out.getvalue()


def test_tables_show_the_result(result: Any) -> None:
    made = result("transfer", ("centipede-6", "centipede-6-crippled-2-3"))
    share = RangeShare(np.full(6, 5), np.full(6, 40), {})
    made = replace(made, bodies=(replace(made.bodies[0], outside={"mean_action": share}), made.bodies[1]))
    text = printed(made)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text
    row = next(line for line in lines if line.startswith(" mean action"))
    returns = made.bodies[0].episodes["mean_action"].returns
    assert f"{returns.mean():.0f} ± {returns.std(ddof=1):.1f}" in row
    assert f"{np.median(returns):.0f}" in row
    # Mean length, mean distance and speed (5 of 6 went 9 m), falls, cost of transport of those 5.
    assert re.search(r"\s90\.0\s+7\.50\s+", row)
    assert re.search(r"\s1\s+0\.14\s+12\.50$", row.rstrip())
    assert "centipede-6-crippled-2-3, zero-shot" in lines
    assert [sum(line.startswith(f" {way}") for line in lines) for way in ("stochastic", "random")] == [4, 2]
    differences = [line for line in lines if line.startswith(" mean action")][2]
    assert "+750" in differences
    assert "better" in differences
    assert "walks 7.5 m" in differences


def test_rules_and_notes_stand_below_the_table(result: Any) -> None:
    text = " ".join(printed(result()).split())
    assert RULE in text
    assert text.endswith("note")


def test_scores_and_sibling_orders_stand_where_they_were_measured(result: Any) -> None:
    made = result("transfer", ("centipede-6", "centipede-8"))
    assert FORMULA not in " ".join(printed(made).split())
    own, other = made.bodies
    returns = {way: other.episodes[way].returns + 1000.0 for way in ("mean_action", "stochastic")}
    orders = SiblingOrders(450.0, np.array([225.0, 450.0]), np.array([0.5, 0.0]))
    other = replace(other, expert=Expert(("runs/expert",), returns), siblings=orders)
    text = printed(replace(made, bodies=(own, other)))
    assert max(map(len, text.splitlines())) <= 80
    # The mean action returns 450 on average over the baselines' offsets of 150 and -30, the expert 1000 more.
    assert re.search(r"mean action\s+1452\s+0\.23\s+0\.32", text)
    assert re.search(r"mean action\s+2\s+25\.0\s+45\.0\s+5\.0e-01", text)
    assert FORMULA in " ".join(text.split())


def test_number() -> None:
    assert [number(x) for x in (12.345, -99.96, 100.4, 2483.2, float("nan"))] == ["12.3", "-100.0", "100", "2483", "-"]
