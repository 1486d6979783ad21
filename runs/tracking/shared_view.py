"""How an experiment opens in MLflow's UI: its runs as a table sorted by agreement, with what its columns mean.

MLflow keeps both as tags of the experiment: a note in Markdown, and a view that people share, which is named in the
address of the page. Neither is changed once it is there, so that people may edit it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

KEY = "agreement"
"""Name of the view in an address."""

TRAINING = "workflowType=machine_learning"
"""In an address: the pages of runs."""

_NOTE = "mlflow.note.content"
_VIEW = f"mlflow.sharedViewState.{KEY}"

_COLUMNS = (
    "metrics.`agreement`",
    "metrics.`agreement_low`",
    "metrics.`agreement_high`",
    "params.`aspects`",
    "params.`judge`",
    "params.`lm`",
    "params.`tuner`",
    "params.`max_rounds`",
    "metrics.`agreement_single`",
    "metrics.`gain`",
    "metrics.`gain_low`",
    "metrics.`calls_per_item`",
    "metrics.`unscored`",
    "attributes.`Models`",
)
"""From left to right, as MLflow names them."""

GUIDE = """**Judges compared by their agreement with human raters.** The view *Agreement* is the table sorted by it.

- `agreement`: held-out agreement of the judge, averaged over aspects, in the measure that `metric` and `level` name;
  `agreement_low` to `agreement_high` is its 95 % interval, `agreement/ASPECT` the figure of one aspect.
- `agreement_single`, `agreement_informed_single`, `agreement_uncompiled`: on the same sources, that of a single call,
  of one that is given what the judge learnt about the raters, and of the judge before the compile.
- `gain`: compiled judge minus single call, source by source; shown to be above 0 only if `gain_low` is.
- `calls_per_item`: LM calls that a score takes. `unscored`: items without a score.
- `choice_agreement`: on the sources that the judge was chosen by, and so too high. Trials of a search have no other.
- `looks`: compiles that have seen figures of these held-out sources; the best of several is inflated.

Runs about other `aspects` average over others: compare those with the same. Intervals of two runs are comparable only
on the same data with the same `seed`. Parameters are the main ones and those
that were changed; all settings are in `settings.json`, all other numbers in `metrics.json`.
"""


def experiment_tags(present: Mapping[str, str]) -> dict[str, str]:
    """The tags that an experiment still needs, given those that it has."""
    wanted = {_NOTE: GUIDE, _VIEW: _view()}
    return {name: value for name, value in wanted.items() if name not in present}


def _view() -> str:
    state = {
        # Without trials, which have no held-out agreement.
        "searchFilter": "metrics.agreement > -2",
        "orderByKey": _COLUMNS[0],
        "orderByAsc": False,
        "selectedColumns": _COLUMNS,
        "columnOrder": _COLUMNS,
    }
    return json.dumps({"name": "Agreement", "createdAt": 0, "state": json.dumps(state)})
