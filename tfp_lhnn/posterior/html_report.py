"""One HTML file on a run, with its warnings, costs, posterior and figures."""

import base64
import html
import io
import math
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tfp_lhnn.posterior import plots
from tfp_lhnn.posterior.convergence import scalars
from tfp_lhnn.posterior.diagnostics import summarize
from tfp_lhnn.posterior.remedies import MAX_R_HAT, MIN_ESS
from tfp_lhnn.posterior.report_figures import (
    energy_figure,
    panels,
    trace_figure,
    trace_note,
)
from tfp_lhnn.posterior.summary import Summary
from tfp_lhnn.support.atomic_files import write_atomically

__all__ = ["report"]

_MAX_ROWS = 20  # the page stays short; `summarize(...).table` has all rows
_MAX_TRACES = 6
_DOTS_PER_INCH = 160

_COSTS = {
    "fit": ("fit_gradients", "fit_evaluations", "seconds_fit"),
    "sampling": ("", "", "seconds_sampling"),
    "total": ("target_gradients", "target_evaluations", "seconds"),
}

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #57606a; --back: #fff;
  --card: #f6f8fa; --line: #d0d7de; --bad: #b3261e; --bad-back: #fdecea;
  --good: #0b6b4a; --good-back: #e6f4ee; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --soft: #9da7b3;
  --back: #0d1117; --card: #161b22; --line: #30363d; --bad: #ff9c94;
  --bad-back: #3a1715; --good: #7ee2b8; --good-back: #10291f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 66rem; color: var(--text);
  background: var(--back); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; padding-bottom: .2rem;
  border-bottom: 1px solid var(--line); }
p { margin: .4rem 0; } .soft { color: var(--soft); font-size: .9rem; }
.box { border-left: .35rem solid; border-radius: .3rem; padding: .7rem 1rem;
  margin: 1rem 0; } .box strong { display: block; }
.bad.box { background: var(--bad-back); border-color: var(--bad); }
.good.box { background: var(--good-back); border-color: var(--good); }
.box ul { margin: .3rem 0 0; padding-left: 1.2rem; } .box li { margin: .35rem 0; }
.box strong, td.bad { color: var(--bad); font-weight: 600; }
.good.box strong { color: var(--good); }
.cards { display: grid; gap: .6rem; margin: 0;
  grid-template-columns: repeat(auto-fill, minmax(11.5rem, 1fr)); }
.cards div { background: var(--card); border-radius: .4rem; padding: .5rem .8rem; }
.cards dt { color: var(--soft); font-size: .8rem; } .cards dd { margin: 0;
  font-weight: 600; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: .2rem;
  position: sticky; left: 0; background: var(--back); }
thead th { color: var(--soft); font-weight: 600; white-space: normal;
  vertical-align: bottom; }
table.wrap td + td { white-space: normal; text-align: left; overflow-wrap: anywhere; }
.figures { display: grid; gap: 1rem; margin-top: .8rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; padding: .5rem; background: #fff; color: #1b1f24; min-width: 0;
  border: 1px solid var(--line); border-radius: .5rem; }
img { display: block; width: 100%; height: auto; }
figcaption { font-size: .85rem; color: #57606a; padding: .3rem .3rem 0; }
@media (max-width: 30rem) { body { padding: .8rem; } table { font-size: .8rem; }
  th, td { padding: .3rem; } .cards { grid-template-columns: 1fr 1fr; } }
"""


def report(
    inference_data: Any,
    path: str | os.PathLike[str],
    *,
    fit: Any = None,
    title: str | None = None,
) -> pathlib.Path:
    """Writes a self-contained HTML page on a run.

    Figures are inside the file. The page loads nothing from elsewhere and runs no
    script. An existing file is replaced only by a complete one.

    Args:
        inference_data: what `sample` or `to_inference_data` made.
        path: the file. Missing directories are made.
        fit: what `fit` returned. Adds rounds, training curves and held-out errors.
        title: the page's title.

    Returns:
        The path.

    Raises:
        TypeError: if `inference_data` is not an `InferenceData`.
        ValueError: if it has no group `posterior`.
        OSError: if the file cannot be written.
    """
    summary = summarize(inference_data)
    text = _page(inference_data, summary, fit, title or "Posterior report")
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(text.encode("utf-8")))
    return path


def _page(data: Any, summary: Summary, fit: Any, title: str) -> str:
    attrs = data.attrs
    sections = [
        ("Summary", _cards(summary.items())),
        ("Costs", _costs(attrs)),
        ("Posterior", _posterior(summary)),
        ("Traces and ranks", _traces(data, summary)),
        ("Sampler and network", _figures(_sampler_figures(data, summary, fit))),
        ("Fit", _fit(list(getattr(fit, "rounds", None) or []))),
        ("Settings", _settings(attrs, versions=False)),
        ("Versions", _settings(attrs, versions=True)),
    ]
    created = str(data.posterior.attrs.get("created_at", ""))[:16].replace("T", " ")
    facts = [
        f"{summary.num_chains} chains of {summary.num_draws:,} draws",
        f"{len(summary.table):,} variable" + "s" * (len(summary.table) > 1),
        f"{created} UTC" if created else "",
    ]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            # An empty icon, or a browser would ask for one.
            f'<link rel="icon" href="data:,"><title>{_escape(title)}</title>',
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{_escape(title)}</h1>",
            f'<p class="soft">{_escape(" · ".join(filter(None, facts)))}</p>',
            _warning_box(summary.warnings),
            *(f"<h2>{name}</h2>\n{body}" for name, body in sections if body),
            "</body></html>\n",
        ]
    )


def _warning_box(messages: Sequence[str]) -> str:
    if not messages:
        return (
            '<div class="good box"><strong>No warnings</strong>Nothing in the '
            "diagnostics speaks against these draws.</div>"
        )
    items = "".join(f"<li>{_with_code(message)}</li>" for message in messages)
    head = f"{len(messages)} warning" + "s" * (len(messages) > 1)
    return f'<div class="bad box"><strong>{head}</strong><ul>{items}</ul></div>'


def _cards(items: Iterable[tuple[str, str]]) -> str:
    cards = "".join(
        f"<div><dt>{_escape(label)}</dt><dd>{_escape(value)}</dd></div>"
        for label, value in items
    )
    return f'<dl class="cards">{cards}</dl>'


def _costs(attrs: Mapping[str, Any]) -> str:
    """Costs of each phase. A hyphen stands for what is not known."""
    values = {
        phase: [float(attrs.get(name, math.nan)) for name in names]
        for phase, names in _COSTS.items()
    }
    for i in range(2):
        values["sampling"][i] = values["total"][i] - values["fit"][i]
    rows = [
        (phase, _number(gradients), _number(densities), _number(seconds, ",.1f"))
        for phase, (gradients, densities, seconds) in values.items()
        if not all(map(math.isnan, (gradients, densities, seconds)))
    ]
    if not rows:
        return ""
    note = "One value with its gradient counts as one gradient and one density."
    if "gradient_budget" in attrs:
        budget = _number(float(attrs["gradient_budget"]))
        note = f"The gradient budget was {budget}. {note}"
    header = ("phase", "gradients", "densities", "seconds")
    return f'{_table(header, rows)}<p class="soft">{_escape(note)}</p>'


def _posterior(summary: Summary) -> str:
    """The table. Of many rows, those with the smallest bulk ESS."""
    table, note = summary.table, ""
    if len(table) > _MAX_ROWS:
        note = (
            f"The {_MAX_ROWS} variables with the smallest bulk ESS; "
            f"{len(table) - _MAX_ROWS:,} more are in summarize(...).table."
        )
        table = table.loc[_worst_first(summary)[:_MAX_ROWS]]
    rows, marked = [], set()
    for i, (name, row) in enumerate(table.iterrows()):
        ess = (row["ess_bulk"], row["ess_tail"])
        mean, sd, mcse = (_number(row[x], ".4g") for x in ("mean", "sd", "mcse_mean"))
        r_hat = _number(row["r_hat"], ".3f")
        rows.append((str(name), mean, sd, r_hat, *map(_number, ess), mcse))
        marked |= {(i, 4 + j) for j in range(2) if ess[j] < MIN_ESS}
        marked |= {(i, 3)} if row["r_hat"] > MAX_R_HAT else set()
    header = ("variable", "mean", "sd", "R-hat", "ESS bulk", "ESS tail", "MCSE")
    return f'{_table(header, rows, marked)}<p class="soft">{_escape(note)}</p>'


def _traces(data: Any, summary: Summary) -> str:
    shown = _worst_first(summary)[:_MAX_TRACES]
    values = {name: x for name, x in scalars(data.posterior) if name in shown}
    note = trace_note(summary.num_chains, summary.num_draws)
    if len(summary.table) > len(shown):
        note = f"The {len(shown)} variables with the smallest bulk ESS. {note}"
    figures = [(trace_figure(name, values[name]), "") for name in shown]
    return f'<p class="soft">{_escape(note)}</p>{_figures(figures)}'


def _sampler_figures(
    data: Any, summary: Summary, fit: Any
) -> Iterator[tuple[Figure, str]]:
    """Figures with captions, as far as the run has the statistics for them."""
    stats = data.get("sample_stats", {})
    if math.isfinite(summary.bfmi) and np.isfinite(stats["energy"]).all():
        energy = stats["energy"].transpose("chain", "draw").to_numpy()
        caption = f"Changes should be as wide as the energy: BFMI {summary.bfmi:.2f}."
        yield energy_figure(energy), caption
    if "network_energy" in stats and "lp" in stats:
        caption = "A level band is a good fit; a constant offset does no harm."
        held_out = getattr(fit, "held_out", None)
        yield plots.plot_network_error(data, held_out, ax=panels(1)[0]), caption
    if "fallback" in stats:
        plane, raster = panels(2)
        plots.plot_fallbacks(data, ax=[plane, raster])
        yield plane.figure, "Draws by what gave their gradients."
        yield raster.figure, "A line is a draw made with true gradients."


def _fit(rounds: Sequence[Any]) -> str:
    """A table of the rounds, and their training curves."""
    if not rounds:
        return ""
    rows, histories = [], []
    for i, entry in enumerate(rounds):
        history = getattr(entry, "history", None)
        histories += [] if history is None else [history]
        cells = [
            _number(getattr(entry, "num_gradients", None)),
            _number(getattr(entry, "energy_error", None), ".3g"),
            _number(getattr(entry, "acceptance", None), ".1%"),
        ]
        kept = "-" if history is None else str(history.selected)
        rows.append((f"{i + 1}. {getattr(entry, 'kind', '')}", *cells, kept))
    header = ("round", "gradients so far", "energy error (nats)", "acceptance", "kept")
    body = _table(header, rows)
    if histories:
        axes = panels(2)
        plots.plot_training(histories, ax=axes)
        caption = "Dotted lines separate the rounds of training."
        body += _figures((one.figure, caption) for one in axes)
    return body


def _settings(attrs: Mapping[str, Any], versions: bool) -> str:
    ending = "_version"
    rows = [
        (
            name.removesuffix(ending),
            f"{value:.6g}" if isinstance(value, float) else str(value),
        )
        for name, value in sorted(attrs.items())
        if name.endswith(ending) == versions
    ]
    return _table((), rows, css="wrap") if rows else ""


def _worst_first(summary: Summary) -> list[str]:
    """Names of all variables; those without an ESS come first."""
    order = summary.table["ess_bulk"].sort_values(na_position="first", kind="stable")
    return list(order.index)


def _figures(figures: Iterable[tuple[Figure, str]]) -> str:
    parts = []
    for figure, caption in figures:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=_DOTS_PER_INCH, facecolor="white")
        data = base64.b64encode(buffer.getvalue()).decode("ascii")
        text = f"<figcaption>{_escape(caption)}</figcaption>" if caption else ""
        title = _escape(figure.axes[0].get_title())
        image = f'<img alt="{title}" src="data:image/png;base64,{data}">'
        parts.append(f"<figure>{image}{text}</figure>")
    return f'<div class="figures">{"".join(parts)}</div>' if parts else ""


def _table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    marked: Any = (),
    css: str = "",
) -> str:
    """A table; cells whose (row, column) is in `marked` stand out."""
    head = "".join(f"<th>{_escape(cell)}</th>" for cell in header)
    lines = []
    for i, row in enumerate(rows):
        cells = "".join(
            f"<td{' class=bad' if (i, j) in marked else ''}>{_escape(cell)}</td>"
            for j, cell in enumerate(row)
        )
        lines.append(f"<tr>{cells}</tr>")
    return (
        f'<div class="scroll"><table class="{css}">'
        f"{f'<thead><tr>{head}</tr></thead>' if header else ''}"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _number(value: float | None, form: str = ",.0f") -> str:
    is_known = value is not None and math.isfinite(value)
    return f"{value:{form}}" if is_known else "-"


def _with_code(text: str) -> str:
    """Escapes a text, and sets as code what is in backquotes."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", _escape(text))


def _escape(text: str) -> str:
    return html.escape(text, quote=True)
