"""What is refused once something was made: a finished run, a store, an export, a run's evidence."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from debate_judge import examples
from debate_judge.data import load
from debate_judge.programs import JUDGES, build, metrics
from debate_judge.programs.chateval import ChatEval
from debate_judge.programs.examples import RatedExample, with_examples
from debate_judge.runs.mlflow_store import open_tracking_store
from debate_judge.runs.tracking import Tracker
from tests.data.files_of_rows import TASK as SUPPORT
from tests.refusals.refusal import alike, row
from tests.runs import exports

Change = Callable[[Path], object]
STORE = Path("runs", "store")


# --- stores and exports ---


def old_schema(folder: Path) -> None:
    open_tracking_store(None, STORE, "debate/old")
    shutil.copy(STORE / "mlflow.db", STORE / "old.db")
    with sqlite3.connect(STORE / "old.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")


def tracked() -> object:
    return Tracker(uri=f"sqlite:///{STORE}/old.db", store=STORE, experiment="debate/old", run_name="run").__enter__()


def thesis(folder: Path) -> None:
    (folder / "thesis").mkdir()
    (folder / "thesis" / "thesis.tex").write_text("years of work")


STORES = [
    row("a database of another MLflow", tracked, None, "out-of-date", change=old_schema),
    row("an export in the place of work", lambda: exports.write(Path("thesis")), None, "no export", change=thesis),
]

# --- judges and data ---

EXAMPLE = RatedExample("tone", "7", "A source.", "", "A candidate.", 3.5, (3.0, 4.0))
EQUAL = [{"id": n, "text": n, "ratings": {"tone": [2]}} for n in "xy"]
ALIKE = {"b.jsonl": json.dumps({"group": "b", "source": "m", "candidates": EQUAL})}


def overlapping(folder: Path) -> None:
    """A test set that has one source of the rated data, nearly to the letter, and another of its own."""
    first, second, *_ = (json.loads(line) for line in (folder / "rated.jsonl").read_text().splitlines())
    copy = {**first, "group": "copy", "source": first["source"] + " Indeed."}
    (folder / "held.jsonl").write_text("\n".join(map(json.dumps, (copy, {**second, "source": "Another."}))))


def without_package(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(metrics.importlib.util, "find_spec", lambda package: None)


def reference_metric(name: str) -> object:
    return build(JUDGES[name].kind, JUDGES[name].config)


HELD_OUT = "compile --data rated.jsonl --held-out held.jsonl --aspects coherence"
CHATEVAL = ChatEval({"alpha": "You are alpha."})
JUDGED = [
    *alike(reference_metric, None, ".[metrics]", "rouge-l", "bertscore", patch=without_package),
    row("examples for a judge without a place", lambda: with_examples(CHATEVAL, [EXAMPLE]), None, "chateval"),
    row("rated alike", lambda: examples(load("b.jsonl", SUPPORT), ["tone"]), None, "rated differently", files=ALIKE),
    row("a source in both files", HELD_OUT, "--held-out", "held-out", change=overlapping),
]

TABLE = [*STORES, *JUDGED]
