"""What is refused once something was made: a finished run, a store, an export, a run's evidence."""

from __future__ import annotations

import json
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from debate_judge import examples
from debate_judge.data import load
from debate_judge.optimize import cli
from debate_judge.programs import JUDGES, build
from debate_judge.programs.chateval.judge import ChatEval
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.lm.store import FILE
from debate_judge.programs.metrics import metric
from debate_judge.programs.metrics.metric import RougeL
from debate_judge.programs.roles.examples import RatedExample, with_examples
from debate_judge.runs.export.manifest import cuts_in
from debate_judge.runs.tracking.store import open_tracking_store
from debate_judge.runs.tracking.tracker import Tracker
from tests.data.files_of_rows import TASK as SUPPORT
from tests.refusals.refusal import alike, row, rows
from tests.runs import exports

Change = Callable[[Path], object]
STORE = Path("runs", "store")


# --- a file of scores that another run goes on with ---


SCORE = "score support --in in.jsonl --out out.jsonl"


def scored(change: Change, arguments: str = SCORE) -> Change:
    """Score a file, then change something."""

    def make(folder: Path) -> None:
        groups = [
            {"group": f"g{n}", "source": f"message {n}", "candidates": [{"id": "c", "text": f"reply {n}"}]}
            for n in range(2)
        ]
        (folder / "in.jsonl").write_text("".join(json.dumps(group) + "\n" for group in groups))
        assert cli.main(shlex.split(arguments)) == 0
        change(folder)

    return make


def another_judge(folder: Path) -> None:
    judges = {name: AspectJudge(build("debate", JUDGES["single"].config)) for name in ("tone", "help")}
    exports.write(folder / "support", CompiledJudge(exports.TASK, judges), lm={"spec": "offline"})


def state(content: bytes) -> Change:
    return lambda folder: (folder / "out.jsonl.state.json").write_bytes(content)


def swapped(folder: Path) -> None:
    first, second, *rest = (folder / "out.jsonl").read_text().splitlines(keepends=True)
    (folder / "out.jsonl").write_text("".join([second, first, *rest]))


def one_more(folder: Path) -> None:
    last = json.loads((folder / "out.jsonl").read_text().splitlines()[-1])
    with (folder / "out.jsonl").open("a") as file:
        file.write(json.dumps({**last, "group": "g9"}) + "\n")


def edited_table(folder: Path) -> None:
    pd.read_parquet(folder / "out.parquet").assign(mine="x").to_parquet(folder / "out.parquet")


def edited_text(folder: Path) -> None:
    path = folder / "in.jsonl"
    path.write_text(path.read_text().replace("reply 0", "reply 1"))


def written(file: str, text: str) -> Change:
    return lambda folder: (folder / file).write_text(text)


PARQUET = SCORE.replace("out.jsonl", "out.parquet")
LATE = "--config transcripts=late.jsonl"
RUNS = [
    row(f"to go on, {name}", f"{SCORE} {more}", None, keyword, change=scored(change), begun=("late.jsonl.lock", FILE))
    for name, change, more, keyword in (
        ("another judge", another_judge, "", "different program"),
        ("another aspect", lambda folder: None, "--aspects tone", "different aspects"),
        ("an edited text", edited_text, "", "input has changed"),
        ("no state", lambda f: (f / "out.jsonl.state.json").unlink(), "", "made from"),
        ("a deep state", state(b"[" * 100_000), "", "made from"),
        ("a state of no characters", state(b'{"program": "\xff'), "", "made from"),
        ("other rows", written("out.jsonl", '{"group": "g0"}\n'), "", "something else"),
        ("rows in another order", swapped, "", "line 1"),
        ("a row too many", one_more, "", "end of the file"),
        ("transcripts of something else", written("late.jsonl", "{}\n"), LATE, "something else"),
    )
]
RUNS += rows(
    PARQUET, ("", None, "changed after"), change=scored(edited_table, PARQUET), begun=("out.parquet.rows.jsonl",)
)

# --- stores and exports ---


def deleted_experiment(folder: Path) -> None:
    place = open_tracking_store(None, STORE, "debate/gone")
    place.client.delete_experiment(place.experiment_id)


def old_schema(folder: Path) -> None:
    open_tracking_store(None, STORE, "debate/old")
    shutil.copy(STORE / "mlflow.db", STORE / "old.db")
    with sqlite3.connect(STORE / "old.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")


def tracked(experiment: str, uri: str | None = None) -> Callable[[], object]:
    return lambda: Tracker(uri=uri, store=STORE, experiment=experiment, run_name="run").__enter__()


OLD = f"sqlite:///{STORE}/old.db"


def thesis(folder: Path) -> None:
    (folder / "thesis").mkdir()
    (folder / "thesis" / "thesis.tex").write_text("years of work")


STORES = [
    row("a deleted experiment", tracked("debate/gone"), None, "restore", change=deleted_experiment),
    row("a database of another MLflow", tracked("debate/old", OLD), None, "out-of-date", change=old_schema),
    row("an export in the place of work", lambda: exports.write(Path("thesis")), None, "no export", change=thesis),
]

# --- evidence ---

EVIDENCE = [
    row(f"evidence of {field}", partial(cuts_in, {"evidence": evidence}), f"evidence.{field}", "")
    for evidence, field in (
        ({"exported": {"judge": "x"}, "decisions": {"x": {"tone": {"cut": "3"}}}}, "decisions.x.tone.cut"),
        ({"exported": "compiled"}, "exported"),
    )
]

# --- judges and data ---

EXAMPLE = RatedExample("tone", "7", "A source.", "", "A candidate.", 3.5, (3.0, 4.0))
EQUAL = [{"id": n, "text": n, "ratings": {"tone": [2]}} for n in "xy"]
ALIKE = {"b.jsonl": json.dumps({"group": "b", "source": "m", "candidates": EQUAL})}


def overlapping(change: Callable[[str], str]) -> Change:
    """A test set that has one source of the rated data, and another of its own."""

    def make(folder: Path) -> None:
        first, second, *_ = (json.loads(line) for line in (folder / "rated.jsonl").read_text().splitlines())
        groups = [{**first, "group": "copy", "source": change(first["source"])}, {**second, "source": "Another."}]
        (folder / "held.jsonl").write_text("".join(json.dumps(group) + "\n" for group in groups))

    return make


def unrated(folder: Path) -> None:
    group = json.loads((folder / "rated.jsonl").read_text().splitlines()[0])
    for candidate in group["candidates"]:
        candidate["ratings"].pop("coherence")
    (folder / "held.jsonl").write_text(json.dumps({**group, "group": "new", "source": "A source of its own."}) + "\n")


def without_package(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(metric.importlib.util, "find_spec", lambda package: None)


def reference_metric(name: str) -> object:
    return build(JUDGES[name].kind, JUDGES[name].config)


HELD_OUT = "compile --data rated.jsonl --held-out held.jsonl --aspects coherence"
COPY, NEAR_COPY = overlapping(lambda text: text), overlapping(lambda text: f"{text} Indeed.")
CHATEVAL = ChatEval({"alpha": "You are alpha."})
JUDGED = [
    *alike(reference_metric, None, ".[metrics]", "rouge-l", "bleu", "bertscore", "bartscore", patch=without_package),
    row("a metric in half points", lambda: AspectJudge(RougeL(), "half"), None, "scale"),
    row("examples for a judge without a place", lambda: with_examples(CHATEVAL, [EXAMPLE]), None, "chateval"),
    row("rated alike", lambda: examples(load("b.jsonl", SUPPORT), ["tone"]), None, "rated differently", files=ALIKE),
    row("a source in both files", HELD_OUT, "--held-out", "held-out", change=COPY),
    row("nearly a source in both files", HELD_OUT, "--held-out", "held-out", change=NEAR_COPY),
    row("a test set without ratings", HELD_OUT, None, "coherence", change=unrated),
]

TABLE = [*RUNS, *STORES, *EVIDENCE, *JUDGED]
