"""Logs a probe as a run in MLflow."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Corpus
from debate_judge.runs.flags.declared import deciding, telling
from debate_judge.runs.probing.effects import figures
from debate_judge.runs.probing.flags import ProbeFlags
from debate_judge.runs.probing.report import Found


def keep_run(arguments: ProbeFlags, found: Found, record: Mapping[str, Any], corpus: Corpus, held_out: str) -> None:
    """Log a run to the server given by `--tracking-uri`, else to the store if it has runs, and print where it is.

    If the run cannot be logged, this is only a warning.

    Args:
        arguments: Flags of the command.
        found: The effects.
        record: The effects as JSON.
        corpus: The probed part of the data.
        held_out: Its fingerprint as a held-out part, or empty.
    """
    store = Path(arguments.store)
    if arguments.tracking_uri is None and not (store / "mlflow.db").is_file():
        return
    from debate_judge.runs.tracking.tracker import Tracker, TrackingError

    data = Path(arguments.data.partition("=")[0]).stem
    name = arguments.name or f"probe-{data}-{str(record['lm']['spec']).replace('/', '_')}"
    try:
        with Tracker(uri=arguments.tracking_uri, store=store, experiment=f"debate/{data}", run_name=name) as tracker:
            tracker.settings(deciding(arguments), telling(arguments, ("data", "program", "judges", "lm")))
            if held_out:
                tracker.dataset("held_out", corpus, held_out)
            for judge, effects in found.items():
                tracker.metrics(figures(effects, judge, whole=True))
                tracker.details(figures(effects, judge, whole=False))
            tracker.json("probes.json", record)
            where = (tracker.ui_command, tracker.run_link())
    except (InputError, TrackingError) as error:
        print(f"\nwarning: the run could not be kept: {error}", file=sys.stderr)
    else:
        print("\nrun: " + "\n     then open ".join(filter(None, where)), file=sys.stderr)
