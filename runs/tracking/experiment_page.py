"""An experiment's page in MLflow's UI: a table of runs sorted by agreement, and a note about its columns.

MLflow stores both as tags of the experiment: a note in Markdown, and a shared view, which is named in the URL of the
page. Neither is overwritten, so that people may edit it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

VIEW_KEY = "agreement"
"""Name of the view in a URL."""

RUNS_QUERY = "workflowType=machine_learning"
"""Query of a URL that opens the pages of runs instead of those of traces."""

_NOTE_TAG = "mlflow.note.content"
_VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"

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
"""From left to right, with MLflow's names."""

NOTE = """**Judges compared by their agreement with human raters.** The view *Agreement* is the table sorted by it.

- `agreement`: held-out agreement of the judge, averaged over aspects, in the metric that the run's settings name;
  `agreement_low` to `agreement_high` is its 95 % interval, `agreement/ASPECT` the figure of one aspect.
- `agreement_single`, `agreement_informed_single`, `agreement_uncompiled`: on the same sources, that of a single call,
  of a single call with what was learnt about the raters in its prompt, and of the judge before the compile.
- `gain`: compiled judge minus single call, paired by source; significantly above 0 only if `gain_low` is above 0.
- `calls_per_item`: LM calls per score. `unscored`: items without a score.
- `choice_agreement`: agreement on the sources that the judge was chosen by, biased upwards. Trials have no other.
- `held_out_uses`: compiles that showed results on these held-out sources; the best of several is biased upwards.

Compare only runs with the same `aspects`, over which they average. Intervals of two runs are comparable only on the
same data with the same `seed`. Parameters are the main ones and those that were changed; all settings are in
`settings.json`, all other numbers in `metrics.json`.
"""


def experiment_tags(existing: Mapping[str, str]) -> dict[str, str]:
    """The tags that an experiment still needs, given those that it has."""
    tags = {_NOTE_TAG: NOTE, _VIEW_TAG: _view()}
    return {name: value for name, value in tags.items() if name not in existing}


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
