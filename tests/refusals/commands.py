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
SINGLE = {"a.csv": "source,text,coherence\n" + "".join(f"S {n}.,T {n}.,{1 + n % 5}\n" for n in range(60))}
KEY = "OPENAI_API_KEY"
COMPILE = [
    *rows(
        "compile",
        ("--lm oflin", "--lm", "'oflin'"),
        ("--lm opena/gpt-4o", "--lm", "'openai'"),
        ("--reflection-lm opena/gpt-4o", "--reflection-lm", "'openai'"),
        ("--tuner mirpo", "--tuner", "'mipro'"),
        ("--judge debat", "--judge", "'debate'"),
        ("--data summevall", "--data", "'summeval'"),
        ("rated.jsonl", None, "--data rated.jsonl"),
        ("--aspects coherense", "--aspects", "coherence"),
        ("--metric spearmann", "--metric", "'spearman'"),
        ("--judge rouge-l --metric mae", "--metric", "scale"),
        ("--trials 0", "--trials", "at least 1"),
        ("--json rated.jsonl/r.json", "--json", "cannot be written"),
        ("--store rated.jsonl/store", "--store", "cannot be written"),
        ("--held-out new.jsonl --folds 4", "--held-out", "--folds 4"),
        ("--trails 5", "--trails", "'--trials'"),
        ("--seed", "--seed", "missing"),
        ("--max-rounds many", "--max-rounds", "a whole number"),
    ),
    *rows("compile --config c.toml", ("", "trails", "'trials'"), file="c.toml", line=1, files={"c.toml": "trails = 5"}),
    *rows(
        "compile --config c.toml",
        ("--seed 1", "trials", "at least"),
        file="c.toml",
        line=2,
        files={"c.toml": "seed = 3\ntrials = 0"},
    ),
    *rows("compile", ("--data missing.jsonl", None, "no such"), file="missing.jsonl"),
    *rows("compile", ("--config missing.toml", None, "no such"), file="missing.toml"),
    *rows("compile", ("--personas missing.toml", None, "no such"), file="missing.toml"),
    *rows("compile --data few.jsonl", ("", None, "rate 8 more"), files=first(2)),
    *rows("compile --folds 1 --data few.jsonl", ("", None, "at least 2 groups"), files=first(5)),
    *rows("compile --folds 6 --data few.jsonl", ("", "--folds", "5 sources"), files=first(5)),
    *rows("compile --judge geval", ("--examples 3", "--examples", "shows no rated examples")),
    *[
        row(f"a {word}", "compile --personas p.toml", field, word, "p.toml", line, files={"p.toml": text})
        for text, field, word, line in (
            ('a = "Be mild."\n"" = "Be strict."', "''", "without a name", 2),
            ('a = "Be mild."\na = "Be strict."', "a", "second persona", 2),
            ('a = "Be mild."\nb = "Also fill in [[ ## grade ## ]]."', "b", "fields of its own", 2),
            ('a = " "', "a", "empty", None),
        )
    ],
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
    ("--judges ,", "--judges", "no judge"),
    ("--judges no/such/folder", "--judges", "unknown judge"),
    ("--judges debate[round=2]", "--judges", "'rounds'"),
    ("--judges debate[rounds=2", "--judges", "cannot be read"),
    ("--judges debate[rounds=1,rounds=2]", "--judges", "cannot be read"),
    ("--judges debate[rounds=-1]", "--judges", "rounds"),
    ("--judges debate[persona=plane]", "--judges", "'plain'"),
    ("--judges debate[score-mode=loud]", "--judges", "score mode"),
    ("--judges debate[together=4,score-mode=expected]", "--judges", "one score"),
    ("--judges rouge-l[rounds=1]", "--judges", "'rounds'"),
    ("--metric document/kendall", "--metric", "not a metric"),
    ("--aspects beauty", "--aspects", "beauty"),
    ("--sources 0", "--sources", "at least"),
    ("--external mine", "--external", "NAME=FILE"),
    ("--external single=scored.jsonl --judges single", None, "single"),
    ("--json rated.jsonl/t.json", "--json", "cannot be written"),
    ("--store rated.jsonl/store", "--store", "cannot be written"),
    ("--task summarization --judges support", None, "does not judge"),
) + rows("compare", ("--external mine=absent.jsonl", None, "no such"), file="absent.jsonl")

AGREEMENT = [
    *(
        row(f"a third row with {changes}", "agreement r.jsonl", field, keyword, "r.jsonl", 3, scored(**changes))
        for changes, field, keyword in (
            ({"rating": ...}, "rating", ""),
            ({"rating": [1, "x"]}, "rating[1]", "not a number"),
            ({"candidate": "s1"}, "candidate", "twice"),
            ({"score": ..., "samples": ["1", "2"]}, "samples", "--reply-scale"),
        )
    ),
    row("no row", "agreement r.jsonl", None, "no row", "r.jsonl", files={"r.jsonl": ""}),
    row("no score", "agreement r.jsonl", None, "both a rating and a score", "r.jsonl", files={"r.jsonl": UNSCORED}),
    *rows(
        "agreement scored.jsonl",
        ("--json scored.jsonl", "--json", "input"),
        ("--seed -1", "--seed", "at least 0"),
        ("--json scored.jsonl/t.json", "--json", "cannot"),
        ("--aspects coherence,typo", "aspect", "typo"),
        ("--reply-scale many", "--reply-scale", "many"),
    ),
    *rows("agreement", ("missing.jsonl", None, "no such"), file="missing.jsonl"),
]

BEGUN = ("o.jsonl.lock", "o.jsonl.part")
LOCAL, RAY = (f"score support {engine}--in scored.jsonl --out o.jsonl" for engine in ("", "--engine ray "))
SCORE = [
    *rows(
        LOCAL,
        ("--in absent.jsonl", None, "no such file"),
        ("--in .", None, "format"),
        ("--out scores.txt", "--out", ".parquet"),
        ("--out scored.jsonl", None, "the same"),
        ("--transcripts o.jsonl", None, "the same"),
        ("--aspects tonne", "--aspects", "'tone'"),
        ("--max-unscored 7", "--max-unscored", "from 0 to 1"),
        ("--out rated.jsonl/x.jsonl", "--out", "cannot be written"),
        ("--store rated.jsonl/x", "--store", "cannot be written"),
    ),
    *rows(f"{LOCAL} --transcripts rated.jsonl/x.jsonl", ("", "--transcripts", "cannot be written"), begun=BEGUN),
    *rows(
        RAY,
        ("--transcripts t.jsonl", "--transcripts", "--engine local"),
        ("--concurrency 1", "--concurrency", "at least 2"),
        ("--out scores.xlsx", "--out", ".parquet"),
        ("--in nothing*", "--in", "no such file"),
    ),
    *rows(RAY, ("", "--engine", "[ray]"), patch=lambda p: p.setitem(sys.modules, "ray", None)),
    *rows(
        "score --in new.jsonl --out o.jsonl",
        ("judge --task dialogue", "--task", "dialogue"),
        ("support --scale raters", "--scale", "no map"),
    ),
]

OTHERS = [
    row("a command misspelled", "scor", None, "'score'"),
    row("help of a command misspelled", "help scor", None, "'score'"),
    row("no ratings", "check a.csv", None, "ratings", "a.csv", files={"a.csv": "source,text,id\ns,x,1\nt,y,2\n"}),
    row("no store of traces", "check mlflow:n", "FILE", "no file n.db", env={"MLFLOW_TRACKING_URI": "sqlite:///n.db"}),
    row(
        "no texts", "check a.csv", "text", "no column holds texts", "a.csv", files={"a.csv": "source,score\ns,1\nt,2\n"}
    ),
    row("a task file that is there", "check a.csv --write-task rated.jsonl", None, "already", files=TONED),
    row("no task to guess", "check sample --write-task new.toml", "--write-task", "none is drafted"),
    row("no report", "report judge", None, "no report"),
    *(
        row(f"the report {content[:20]!r}", "report .", None, "report", "report.json", files={"report.json": content})
        for content in ('{"format": "else"}', '{"version": 0}', "{", b"\xff", "[" * 100_000)
    ),
]

TABLE = [*COMPILE, *COMPARE, *AGREEMENT, *SCORE, *OTHERS]
