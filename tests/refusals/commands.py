"""What the commands refuse of their arguments, before an LM is asked and anything is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.refusals.conftest import SCORED
from tests.refusals.refusal import SECRET, row

SAMPLE = Path(__file__).parents[2] / "data" / "sample" / "summarization.jsonl"
FIRST = SAMPLE.read_text(encoding="utf-8").splitlines()


def lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def scored(**changes: object) -> dict[str, str]:
    """A file whose third row is changed; what becomes ... is absent."""
    third = {name: value for name, value in {**SCORED[2], **changes}.items() if value is not ...}
    return {"r.jsonl": lines([*SCORED[:2], third, *SCORED[3:]])}


COMPILE = [
    row("an LM of no provider", "compile --lm oflin", "--lm", "'oflin'"),
    row("a provider misspelled", "compile --lm opena/gpt-4o", "--lm", "'openai'"),
    row("an LM for tuning misspelled", "compile --reflection-lm opena/gpt-4o", "--reflection-lm", "'openai'"),
    row("no key", "compile --lm openai/gpt-4o", None, "give a valid key", code=3, env={"OPENAI_API_KEY": None}),
    row(
        "a key that no header can hold",
        "compile --lm openai/gpt-4o",
        "OPENAI_API_KEY",
        "ASCII",
        env={"OPENAI_API_KEY": f"sk-{SECRET}-é"},
    ),
    row(
        "no key for tuning",
        "compile --reflection-lm anthropic/claude-sonnet-4-5 --aspects coherence",
        None,
        "ANTHROPIC_API_KEY",
        code=3,
        env={"ANTHROPIC_API_KEY": ""},
    ),
    row("an optimizer misspelled", "compile --tuner mirpo", "--tuner", "'mipro'"),
    row("a judge misspelled", "compile --judge debat", "--judge", "'debate'"),
    row("data misspelled", "compile --data summevall", "--data", "'summeval'"),
    row("data without a flag", "compile rated.jsonl", None, "--data rated.jsonl"),
    row("an aspect misspelled", "compile --aspects coherense", "aspects", "coherence"),
    row("a correlation misspelled", "compile --metric spearmann", "--metric", "'spearman'"),
    row("a level misspelled", "compile --metric sumary", "--metric", "'summary'"),
    row("no distance on another scale", "compile --judge rouge-l --metric mae", "--metric", "scale"),
    row("too few trials", "compile --config trials=0", "trials", "at least 1"),
    row("data that are not there", "compile --data missing.jsonl", None, "no such", file="missing.jsonl"),
    row("a key misspelled", "compile --config trails=5", "trails", "'trials'"),
    row("a removed key", "compile --config choose=5", "choose", "removed"),
    row("a key of a file", "compile --config c.toml", "trails", "'trials'", "c.toml", files={"c.toml": "trails = 5"}),
    row(
        "a value of a file", "compile --config c.toml", "trials", "at least 1", "c.toml", files={"c.toml": "trials = 0"}
    ),
    row("a key as a flag", "compile --personas 'for Ann.toml'", "--personas", "--config 'personas=for Ann.toml'"),
    row("a password as a flag", f"compile --replies postgresql://judge:{SECRET}@db/r", "--replies", "replies=postgres"),
    row("settings that are not there", "compile --config missing.toml", None, "no such", file="missing.toml"),
    row("personas that are not there", "compile --config personas=missing.toml", None, "no such", file="missing.toml"),
    row(
        "nothing to learn a curve from",
        "compile --tuner none --config learning-curve=true",
        "learning-curve",
        "nothing is learnt",
    ),
    row(
        "pairs of sources with one text",
        "compile --data one.csv --task summarization --examples pairs:3",
        "--examples",
        "no pairs",
        files={"one.csv": "source,text,coherence\n" + "".join(f"S {n}.,T {n}.,{1 + n % 5}\n" for n in range(60))},
    ),
    row("too few ratings", "compile --data few.jsonl", None, "rate 4 more", files={"few.jsonl": "\n".join(FIRST[:2])}),
    row(
        "too few sources for parts",
        "compile --data few.jsonl --folds 1",
        None,
        "at least 2 groups",
        files={"few.jsonl": "\n".join(FIRST[:5])},
    ),
    row(
        "too few sources for folds",
        "compile --data few.jsonl --folds 6",
        "--folds",
        "5 sources",
        files={"few.jsonl": "\n".join(FIRST[:5])},
    ),
    row("a result below a file", "compile --config json=rated.jsonl/r.json", "json", "cannot be written"),
    row("a result in the place of a folder", "compile --config json=judge", "json", "cannot be written"),
    row("a result of too long a name", f"compile --config json={'x' * 300}.json", "json", "cannot be written"),
    row("a store below a file", "compile --store rated.jsonl/store", "--store", "cannot be written"),
    row("an LM without batch jobs", "compile --config batch=openai", "batch", "leave batch out"),
    row("an unknown batch service", "compile --config batch=azure --lm openai/m", "batch", "azure"),
    row("nobody tracks there", "compile --tracking-uri http://127.0.0.1:9", "tracking URI", "127.0.0.1:9"),
    row(
        "studies nowhere",
        "compile --config studies=postgresql://judge@127.0.0.1:1/studies",
        "studies",
        "127.0.0.1",
        env={"PGPASSWORD": SECRET},
    ),
    row(
        "folds and a test set",
        "compile --held-out new.jsonl --folds 4",
        "--held-out",
        "--folds 4",
    ),
]

REMOVED = [
    row(f"compile {flag}", f"compile {flag}", flag.partition("=")[0], instead)
    for flag, instead in (
        ("--level=summary", "--metric"),
        ("--objective=kendall", "--metric"),
        ("--repeats=3", "folds"),
        ("--choose=dev-1se", "removed"),
        ("--deadline=60", "timeout"),
        ("--attempt=60", "timeout"),
        ("--judge-option=turns=3", "-J"),
        ("--score-mode=expected", "--config score-mode=expected"),
        ("--no-preflight", "--config preflight=false"),
    )
] + [
    row(f"compare {flag}", f"compare {flag}", flag.partition(" ")[0], instead)
    for flag, instead in (
        ("--ablate rounds", "debate[persona=plain|sophisticated]"),
        ("--figure table.png", "report"),
        ("--style latex", "remedy"),
        ("--together 4", "debate[together=8]"),
        ("--statistics pearson", "--metric"),
    )
]

COMPARE = [
    row(f"compare {more}", f"compare --data rated.jsonl --aspects coherence {more}", field, keyword)
    for more, field, keyword in (
        ("--judges singel", "--judges", "'single'"),
        ("--judges single,single", "--judges", "twice"),
        ("--judges ,", "--judges", "no judge"),
        ("--judges no/such/folder", "--judges", "unknown judge"),
        ("--judges debate[round=2]", "--judges", "'rounds'"),
        ("--judges debate[rounds=2", "--judges", "cannot be read"),
        ("--judges debate[rounds]", "--judges", "cannot be read"),
        ("--judges debate[rounds=1,rounds=2]", "--judges", "cannot be read"),
        ("--judges debate[rounds=-1]", "--judges", "rounds"),
        ("--judges debate[rounds=many]", "--judges", "rounds"),
        ("--judges debate[persona=plane]", "--judges", "'plain'"),
        ("--judges debate[score-mode=loud]", "--judges", "score mode"),
        ("--judges debate[together=4,score-mode=expected]", "--judges", "one score"),
        ("--judges debate[sample=x]", "--judges", "sample=N"),
        ("--judges debate[temperature=3]", "--judges", "temperature=X"),
        ("--judges debate[rounds=1],debate[rounds=1]", "--judges", "twice"),
        ("--judges rouge-l[rounds=1]", "--judges", "'rounds'"),
        ("--config baseline=nobody", "baseline", "not among"),
        ("--metric summary/rho", "--metric", "not a metric"),
        ("--metric document/kendall", "--metric", "not a metric"),
        ("--aspects beauty", "aspects", "beauty"),
        ("--config resamples=-1", "resamples", "at least"),
        ("--seed -1", "--seed", "at least 0"),
        ("--config temperature=-1", "temperature", "at least 0"),
        ("--external mine", "--external", "NAME=FILE"),
        ("--external single=scored.jsonl --judges single", None, "single"),
        ("--lm nonsense", "--lm", "nonsense"),
        ("--probes lenght", "--probes", "lenght"),
        ("--json rated.jsonl/t.json", "--json", "cannot be written"),
        ("--config batch=openai --judges single --lm anthropic/claude", "batch", "leave batch out"),
        ("--store rated.jsonl/store", "--store", "cannot be written"),
        ("--judges support", None, "does not judge"),
    )
] + [
    row("scores that are not there", "compare --external mine=absent.jsonl", None, "no such", file="absent.jsonl"),
    row("personas of a comparison", "compare --config personas=absent.toml", None, "no such", file="absent.toml"),
]

AGREEMENT = [
    row("a rating is absent", "agreement r.jsonl", "rating", "", "r.jsonl", 3, scored(rating=...)),
    row("a score is absent", "agreement r.jsonl", "score", "", "r.jsonl", 3, scored(score=...)),
    row("a score in words", "agreement r.jsonl", "score", "not a number", "r.jsonl", 3, scored(score="4")),
    row("a score that is true", "agreement r.jsonl", "score", "not a number", "r.jsonl", 3, scored(score=True)),
    row("a rater in words", "agreement r.jsonl", "rating[1]", "not a number", "r.jsonl", 3, scored(rating=[1, "x"])),
    row("a score beyond all", "agreement r.jsonl", "score", "not a number", "r.jsonl", 3, scored(score=10**400)),
    row("a second score", "agreement r.jsonl", "candidate", "twice", "r.jsonl", 3, scored(candidate="s1")),
    row("a group is absent", "agreement r.jsonl", "group", "", "r.jsonl", 3, scored(group=...)),
    row("no row", "agreement r.jsonl", None, "no row", "r.jsonl", files={"r.jsonl": ""}),
    row(
        "no score",
        "agreement r.jsonl",
        None,
        "both a rating and a score",
        "r.jsonl",
        files={"r.jsonl": lines([{**one, "score": None} for one in SCORED])},
    ),
    row(
        "samples without a scale",
        "agreement r.jsonl",
        "samples",
        "--scale",
        "r.jsonl",
        1,
        files={
            "r.jsonl": lines(
                [{**{k: v for k, v in one.items() if k != "score"}, "samples": ["1", "2"]} for one in SCORED]
            )
        },
    ),
    row("its own input", "agreement scored.jsonl --json scored.jsonl", "--json", "input"),
    row("agreement of no seed", "agreement scored.jsonl --seed -1", "--seed", "at least 0"),
    row("agreement of no resamples", "agreement scored.jsonl --resamples -1", "--resamples", "at least"),
    row("an agreement below a file", "agreement scored.jsonl --json scored.jsonl/t.json", "--json", "cannot"),
    row("an aspect that is not scored", "agreement scored.jsonl --aspects coherence,typo", "aspect", "typo"),
    row("a scale of no numbers", "agreement scored.jsonl --scale many", "--scale", "many"),
    row("scores nowhere", "agreement missing.jsonl", None, "no such", "missing.jsonl"),
    row("groups that are no pairs", "agreement scored.jsonl --decisions pairs", "coherence", "pairs"),
    row("a margin below nothing", "agreement scored.jsonl --margin -1", "--margin", "at least 0"),
]

AFTER = [
    row("no LM to carry to", "carry judge --data known.jsonl", "--lm", ""),
    row("no data to carry on", "carry judge --lm offline", None, "mine.jsonl"),
    row("known sources alone", "recheck judge --data known.jsonl", "--data", "no source is new"),
    row("replies of falling lengths", "recheck judge --data new.jsonl --estimate 3,2,1", "--estimate", "3,2,1"),
    row("no LM is asked", "measure known.jsonl --scores scored.jsonl --estimate", "--estimate", "no LM"),
    row(
        "candidates that are no systems",
        "measure r.jsonl",
        "candidate",
        "system",
        files={"r.jsonl": lines([{**one, "candidate": f"{one['group']}{one['candidate']}"} for one in SCORED])},
    ),
    row("scores of two places", "measure scored.jsonl --scores x --program y", "--scores", "--program"),
    row("too small a budget", "next judge --pool new.jsonl --budget 4", "--budget", "at least 5"),
    row("a budget in dollars alone", "next judge --pool new.jsonl --budget usd=5", "--budget", "number of ratings"),
    row("a budget in euros", "next judge --pool new.jsonl --budget 40,eur=5", "--budget", "eur"),
    row("no budget", "next judge --pool new.jsonl", "--budget", ""),
    row("a sheet", "next judge --pool new.jsonl --budget 40 --out rate.xlsx", "--out", ".csv"),
    row("a pool that the compile knew", "next judge --pool known.jsonl --budget 40", "--pool", "used all"),
    row("nothing to estimate", "next judge --pool new.jsonl --budget 40 --estimate", "--estimate", ""),
]

OTHERS = [
    row("a command misspelled", "scor", None, "'score'"),
    row("help of a command misspelled", "help scor", None, "'score'"),
    row("a former command", "probe --program judge", None, "debate compare --judges EXPORT --probes all"),
    row("no ratings", "check a.csv", None, "ratings", "a.csv", files={"a.csv": "source,text,id\ns,x,1\nt,y,2\n"}),
    row("no store of traces", "check mlflow:n --tracking-uri sqlite:///n.db", "--data", "no file n.db"),
    row("no texts", "check a.csv", "text", "--columns text=", "a.csv", files={"a.csv": "source,score\ns,1\nt,2\n"}),
    row("an empty text", "check a.csv", "text", "empty", "a.csv", 3, {"a.csv": "source,text,tone\ns,x,1\nt,,2\n"}),
    row(
        "a task file that is there",
        "check a.csv --write-task rated.jsonl",
        None,
        "already",
        files={"a.csv": "source,text,tone\ns,x,1\nt,y,2\nu,z,3\n"},
    ),
    row("no task to guess", "check sample --write-task new.toml", "--write-task", "none is guessed"),
    row("no report", "report judge", None, "no report"),
    row("another report", "report .", None, "report", "report.json", files={"report.json": '{"format": "else"}'}),
    row("a report of no version", "report .", None, "report", "report.json", files={"report.json": '{"version": 0}'}),
    row("half a report", "report .", None, "report", "report.json", files={"report.json": "{"}),
    row("a report of no characters", "report .", None, "report", "report.json", files={"report.json": b"\xff"}),
    row("a deep report", "report .", None, "report", "report.json", files={"report.json": "[" * 100_000}),
    *(
        row(f"score {more}", f"score support --in scored.jsonl --out o.jsonl {more}", field, keyword)
        for more, field, keyword in (
            ("--in absent.jsonl", None, "no such file"),
            ("--in .", None, "format"),
            ("--out scores.txt", "--out", ".parquet"),
            ("--out scored.jsonl", None, "the same"),
            ("--config transcripts=o.jsonl", None, "the same"),
            ("--aspects tonne", "aspects", "'tone'"),
            ("--concurrency 0", "--concurrency", "at least 1"),
            ("--config max-unscored=7", "max-unscored", "from 0 to 1"),
            ("--out rated.jsonl/x.jsonl", "--out", "cannot be written"),
            ("--store rated.jsonl/x", "--store", "cannot be written"),
        )
    ),
    row(
        "transcripts below a file",
        "score support --in scored.jsonl --out o.jsonl --config transcripts=rated.jsonl/x.jsonl",
        "transcripts",
        "cannot be written",
        begun=("o.jsonl", "o.jsonl.lock", "o.jsonl.state.json"),
    ),
    *(
        row(
            f"score by Ray {more}", f"score support --engine ray --in scored.jsonl --out o.jsonl {more}", field, keyword
        )
        for more, field, keyword in (
            ("--config transcripts=t.jsonl", "transcripts", "--engine local"),
            ("--config batch=openai", "batch", "--engine local"),
            ("--concurrency 1", "--concurrency", "at least 2"),
            ("--out scores.csv", "--out", ".parquet"),
            ("--in nothing*", "--in", "no such file"),
        )
    ),
    row(
        "Ray is not installed",
        "score support --engine ray --in scored.jsonl --out o.jsonl",
        "--engine",
        "[ray]",
        patch=lambda p: p.setitem(sys.modules, "ray", None),
    ),
    row("another task", "score judge --in new.jsonl --out o.jsonl --config task=dialogue", "task", "dialogue"),
    row("a missing aspect", "score judge --in new.jsonl --out o.jsonl --aspects tone", "aspects", "tone"),
    row("no map of raters", "score support --in new.jsonl --out o.jsonl --scale raters", "scale", "no map"),
    row("no interval", "score bare --in new.jsonl --out o.jsonl --config interval=0.9", "interval", "interval"),
]

TABLE = [*COMPILE, *REMOVED, *COMPARE, *AGREEMENT, *AFTER, *OTHERS]
