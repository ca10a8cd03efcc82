"""The report as one HTML page that needs nothing beside it."""

from __future__ import annotations

import base64
import re
from html import escape
from importlib.resources import files

from snowflake.report.build import Item, Report, Section, slug
from snowflake.report.statistics import RESAMPLES
from snowflake.report.tables import Table

LEGEND = (
    (
        "IQM",
        "Interquartile mean: the mean of the middle half of the values, so that one lucky or broken seed does not "
        "decide. Values at the edge of that half count by the fraction that lies inside: of three seeds the middle one "
        "weighs 4/6 and the others 1/6 each. Where the number of values is divisible by four, it equals scipy's "
        "trim_mean(x, 0.25).",
    ),
    (
        "95 % interval [CI]",
        f"Stratified bootstrap, percentile method, {RESAMPLES:,} resamples with a fixed seed: seeds are drawn again, "
        "with replacement, within each set of bodies trained together (mostly one body); bodies of one policy stay "
        "together. It tells how far the number would move with other seeds. With three seeds it is coarse, and too "
        "narrow.",
    ),
    ("one seed", "One seed says nothing about the spread over seeds: no interval exists, and none is drawn."),
    ("mean ± sd", "Mean and sample standard deviation (n - 1) over seeds; a seed counts as the mean of its episodes."),
    (
        "curves",
        "Each seed's curve is interpolated linearly onto a common grid of steps, inside the range that all seeds "
        "cover.",
    ),
    (
        "score",
        "A return brought to one scale per body: 0 is the return of random play on it, 1 that of the best variant "
        "(mean over seeds, mean action, end of training). Only scores are averaged over bodies.",
    ),
    (
        "P(X > Y)",
        "Probability of improvement: on each body the share of pairs of seeds in which X has the higher return, ties "
        "counting half (Mann-Whitney), averaged over the bodies that both were trained on.",
    ),
    (
        "mean action, stochastic",
        "The policy without and with its exploration noise. Beside them stand the same episodes with no action and "
        "with uniformly random actions.",
    ),
    ("falls", "Episodes with the mean action that ended before the time limit, of all episodes of all seeds."),
)
"""Terms, in words."""

BREAKS = re.compile(r"(?<=:) | (?=\[|±|of |to |\(mapped\))")
"""Blanks of a number or title where a new line begins: two short lines, so that the table fits a screen."""

SOURCE = "Agarwal et al. 2021, Deep Reinforcement Learning at the Edge of the Statistical Precipice"


def to_html(report: Report) -> str:
    """The page."""
    css = (files("snowflake.report") / "page.css").read_text(encoding="utf-8")
    links = "".join(f'<a href="#{_id(s)}">{escape(s.title)}</a>' for s in report.sections)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(report.title)}</title>",
            f"<style>\n{css}</style>",
            "</head>",
            "<body>",
            f"<header><h1>{escape(report.title)}</h1>",
            _terms(report.facts),
            f'<p class="soft">This page was made by</p><pre>{escape(report.command)}</pre>',
            *_notes(report.notes),
            f'<nav aria-label="sections">{links}<a href="#terms">What the numbers mean</a></nav></header>',
            "<main>",
            *(_section(s, report.command) for s in report.sections),
            '<section id="terms"><h2>What the numbers mean</h2>',
            _terms(LEGEND),
            f'<p class="soft">IQM, stratified bootstrap and P(X &gt; Y): {escape(SOURCE)}.</p></section>',
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _section(section: Section, command: str) -> str:
    parts = [f'<section id="{_id(section)}"><h2>{escape(section.title)}</h2>', f"<p>{escape(section.text)}</p>"]
    parts += _notes(section.notes)
    parts.append('<div class="figures">')
    parts += [_item(item, command) for item in section.items]
    return "\n".join([*parts, "</div></section>"])


def _item(item: Item, command: str) -> str:
    wide = ' class="wide"' if item.table is not None else ""
    parts = [f'<figure id="{escape(item.name)}"{wide}><figcaption>{escape(item.caption)}</figcaption>']
    parts.append('<div class="pair">')
    if item.png is not None:
        data = base64.b64encode(item.png).decode()
        parts.append(f'<img alt="{escape(item.caption)}" src="data:image/png;base64,{data}">')
    if item.table is not None:
        parts.append(_table(item.table, item.caption))
    parts.append("</div>")
    lines = "\n".join(map(escape, (*item.commands, command)))
    count = len(item.commands)
    opened = " open" if count < 4 else ""
    what = f"Commands behind it ({count} for the data, 1 for the page)"
    parts.append(f"<details{opened}><summary>{what}</summary><pre>{lines}</pre></details></figure>")
    return "\n".join(parts)


def _table(table: Table, caption: str) -> str:
    def cells(row: tuple[str, ...], head: bool) -> str:
        out = []
        for k, text in enumerate(row):
            tag = "th" if head or k == 0 else "td"
            scope = f' scope="{"col" if head else "row"}"' if tag == "th" else ""
            name = ' class="name"' if k < table.names else ""
            shown = escape(text)
            if head or k >= table.names:
                shown = BREAKS.sub("<br>", shown)
            out.append(f"<{tag}{scope}{name}>{shown}</{tag}>")
        return f"<tr>{''.join(out)}</tr>"

    body = "\n".join(cells(row, False) for row in table.rows)
    # A box that scrolls by itself must be reachable from the keyboard.
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(caption)}"><table>\n'
        f"<thead>{cells(table.head, True)}</thead>\n<tbody>{body}</tbody></table></div>"
    )


def _terms(terms: tuple[tuple[str, str], ...]) -> str:
    return "<dl>" + "\n".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in terms) + "</dl>"


def _notes(notes: tuple[str, ...]) -> list[str]:
    return [f'<p class="note">{escape(note)}</p>' for note in notes]


def _id(section: Section) -> str:
    return slug(section.title.lower())
