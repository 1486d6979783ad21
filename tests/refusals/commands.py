"""What the commands refuse of their arguments, before an LM is asked and anything is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.refusals.conftest import SCORED
from tests.refusals.refusal import SECRET, row, rows

SAMPLE = Path(__file__).parents[2] / "data" / "sample" / "summarization.jsonl"
FIRST = SAMPLE.read_text(encoding="utf-8").splitlines()


def lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def scored(**changes: object) -> dict[str, str]:
    """A file whose third row is changed; what becomes ... is absent."""
    third = {name: value for name, value in {**SCORED[2], **changes}.items() if value is not ...}
    return {"r.jsonl": lines([*SCORED[:2], third, *SCORED[3:]])}


def first(count: int) -> dict[str, str]:
    return {"few.jsonl": "\n".join(FIRST[:count])}


UNSCORED = lines([{**record, "score": None} for record in SCORED])
TONED = {"a.csv": "source,text,tone\ns,x,1\nt,y,2\nu,z,3\n"}
KEY = "OPENAI_API_KEY"
PERSONA = {"p.toml": 'b = "Also fill in [[ ## grade ## ]]."'}
COMPILE = [
    *rows(
        "compile",
        ("--lm oflin", "--lm", "'oflin'"),
        ("rated.jsonl", None, "--data rated.jsonl"),
        ("--aspects coherense", "--aspects", "coherence"),
        ("--judge rouge-l --metric mae", "--metric", "scale"),
        ("--store rated.jsonl/store", "--store", "cannot be written"),
        ("--data rated.jsonl --held-out new.jsonl --folds 4", "--held-out", "--folds 4"),
        ("--trails 5", "--trails", "'--trials'"),
        ("--max-rounds many", "--max-rounds", "valid integer"),
    ),
    *rows("compile --config c.toml", ("", "trails", "'trials'"), file="c.toml", line=1, files={"c.toml": "trails = 5"}),
    row(
        "no trial", "compile --config c.toml", "trials", "greater than", "c.toml", 2, {"c.toml": "seed = 3\ntrials = 0"}
    ),
    *rows("compile", ("--data missing.jsonl", None, "no such"), file="missing.jsonl"),
    *rows("compile --data few.jsonl", ("", None, "rate 8 more"), files=first(2)),
    *rows("compile --folds 1 --data few.jsonl", ("", None, "at least 2 groups"), files=first(5)),
    *rows("compile --folds 6 --data few.jsonl", ("", "--folds", "5 sources"), files=first(5)),
    *rows("compile --judge geval", ("--examples 3", "--examples", "shows no rated examples")),
    row("a field", "compile --personas p.toml", "b", "fields of its own", "p.toml", 1, PERSONA),
    *rows("compile", ("--lm openai/gpt-4o", None, "set what is missing"), code=3, env={KEY: None}),
    # No header can hold it.
    *rows("compile", ("--lm openai/gpt-4o", KEY, "ASCII"), env={KEY: f"sk-{SECRET}-é"}),
    *rows(
        "compile --aspects coherence",
        ("--reflection-lm anthropic/claude-sonnet-4-5", None, "ANTHROPIC_API_KEY"),
        code=3,
        env={"ANTHROPIC_API_KEY": ""},
    ),
]

COMPARE = rows(
    "compare --data rated.jsonl --aspects coherence",
    ("--judges singel", "--judges", "'single'"),
    ("--judges single,single", "--judges", "twice"),
    ("--judges debate[round=2]", "--judges", "'rounds'"),
    ("--judges debate[together=4,score-mode=expected]", "--judges", "one score"),
)

AGREEMENT = [
    row("a word", "agreement r.jsonl", "rating[1]", "a number", "r.jsonl", 3, scored(rating=[1, "x"])),
    row("no score", "agreement r.jsonl", None, "both a rating and a score", "r.jsonl", files={"r.jsonl": UNSCORED}),
    *rows("agreement scored.jsonl", ("--json scored.jsonl", "--json", "input")),
]

BEGUN = ("o.jsonl.lock", "o.jsonl.part")
LOCAL, RAY = (f"score support {engine}--in scored.jsonl --out o.jsonl" for engine in ("", "--engine ray "))
SCORE = [
    *rows(
        LOCAL,
        ("--out scored.jsonl", None, "the same"),
        ("--aspects tonne", "--aspects", "'tone'"),
    ),
    *rows(f"{LOCAL} --transcripts rated.jsonl/x.jsonl", ("", "--transcripts", "cannot be written"), begun=BEGUN),
    *rows(RAY, ("", "--engine", "[ray]"), patch=lambda p: p.setitem(sys.modules, "ray", None)),
    *rows(
        "score --in new.jsonl --out o.jsonl",
        ("support --task dialogue", "--task", "dialogue"),
        ("support --scale raters", "--scale", "no map"),
    ),
]

OTHERS = [
    row("a command misspelled", "scor", None, "'score'"),
    row("no ratings", "check a.csv", None, "ratings", "a.csv", files={"a.csv": "source,text,id\ns,x,1\nt,y,2\n"}),
    row(
        "no texts", "check a.csv", "text", "no column holds texts", "a.csv", files={"a.csv": "source,score\ns,1\nt,2\n"}
    ),
    row("a task file that is there", "check a.csv --write-task rated.jsonl", None, "already", files=TONED),
    row("no report", "report support", None, "no report"),
    row("two reports", "report .", None, "a-report.html", files={"a-report.html": b"", "b-report.html": b""}),
]

TABLE = [*COMPILE, *COMPARE, *AGREEMENT, *SCORE, *OTHERS]
