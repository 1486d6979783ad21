"""Settings, judges, their options and addresses that are refused, from Python, flags and TOML files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import find_tuner
from debate_judge.programs import build_preset
from debate_judge.programs.chateval.judge import ChatEval
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.geval.judge import GEval
from debate_judge.programs.hallucination.baselines import HallucinationCheck
from debate_judge.programs.hallucination.judge import Hallucination
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs import serve
from debate_judge.runs.flags.parser import make_parser, read_settings
from debate_judge.runs.tracking.tracker import Tracker
from tests.refusals.refusal import SECRET, alike, row, rows

OWN = """
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import ItemJudge

class Named(Debate):
    kind = "debate"

class Unready(Debate):
    pass

class Bare(ItemJudge):
    pass

class Picky(Debate):
    def __init__(self, colour):
        super().__init__()

    @classmethod
    def from_config(cls, config):
        return cls(**config)

number = 3
"""


SETTINGS = rows(
    Settings,
    ({"seed": "1"}, "--seed", "a whole number"),
    ({"max_rounds": 1.0}, "--max-rounds", "a whole number"),
    ({"concurrency": 0}, "--concurrency", "at least 1"),
    ({"examples": 0}, "--examples", "at least 1"),
    ({"preflight": 1}, "--preflight", "true or false"),
    ({"aspects": ("a", 1)}, "--aspects", "a list of texts"),
    ({"temperature": float("nan")}, "--temperature", "a finite number"),
    ({"temperature": -1}, "--temperature", "at least 0"),
    ({"max_unscored": 1.5}, "--max-unscored", "from 0 to 1"),
    ({"tpm": 0}, "--tpm", "more than 0"),
    ({"name": "a/b"}, "--name", "letters"),
    ({"name": ".."}, "--name", "letters"),
)
METRICS = ("", "summary/sample", "spearman/pearson", "summary/spearman/auto", "system/spearman", "mae,ccc")
TEXTS = [*alike(Settings, "--metric", "not a metric", *({"metric": text} for text in METRICS))]


def flags(*arguments: str) -> Callable[[], dict[str, Any]]:
    return lambda: read_settings(Settings, make_parser("compile", "", Settings), arguments)[0].options()


def optional(words: str) -> object:
    judge, option = words.split()
    return build_preset(judge, flags("-J", option)())


OPTIONS = (
    [row(f"-J {text!r}", flags("-J", "turns=2", "-J", text), "-J", "") for text in ("turns", "=3", "turns=1")]
    + rows(
        optional,
        ("chateval both-orders=False", "both_orders", "true or false"),
        ("chateval comparing=no", "comparing", "true or false"),
        ("chateval turns=two", "turns", "from 1 to 101"),
        ("chateval samples=1000000", "samples", "from 1 to 1000"),
        ("chateval roles=critik", "roles", "'critic'"),
        ("hallucination-single check=False", "check", "plain, self-check, few-shot"),
        ("self-check-3 examples=4", "examples", "from 0 to 3"),
        ("hallucination min-rounds=-1", "min_rounds", "from 0 up"),
        ("hallucination transition=always", "transition", "always"),
        ("debate together=-1", "together", "from 0 up"),
        ("debate turns=3", "-J", "score_mode"),
    )
    + [
        row(f"roles {content!r}", flags("-J", "roles=r.toml"), None, keyword, "r.toml", files={"r.toml": content})
        for content, keyword in (("", "no role"), ("a = 3", "text"), ("a = ", "not valid TOML"), ('a = " "', "empty"))
    ]
)


def chateval(**config: Any) -> object:
    return ChatEval.from_config({"roles": {"alpha": "You are alpha."}, **config})


def hallucination(**config: Any) -> object:
    return Hallucination.from_config(config)


def debate(**config: Any) -> object:
    return Debate.from_config({**Debate().config(), **config})


def geval(score_mode: str) -> object:
    return GEval.from_config({"score_mode": score_mode})


JUDGES = [
    *rows(
        chateval,
        ({"roles": {}}, "roles", ""),
        ({"roles": ["plumber"]}, "roles", "plumber"),
        ({"roles": {"a['b']": "text"}}, "roles", ""),
        ({"roles": {"summarizer": "text"}}, "roles", "summarizer"),
        ({"roles": {"alpha": " "}}, "roles.alpha", "empty"),
        ({"communication": "telepathy"}, "communication", ""),
        ({"communication": "none", "turns": 2}, "turns", ""),
    ),
    *rows(
        hallucination,
        ({"search": "oracle"}, "search", ""),
        ({"agents": {"judge": "You are the judge."}}, "agents", "skeptic"),
        ({"agents": {"skeptic": " "}}, "agents.skeptic", "empty"),
        ({"search": "serper"}, None, "SERPER_API_KEY"),
    ),
    *alike(geval, None, "not a score mode", "", "probabilities", "sampled:0", "text:3"),
    row("no such persona", lambda: Debate(rounds=1, persona="plane"), "persona", "'plain'"),
    row("the majority", lambda: ChatEval(roles={"majority": "You are many."}), "roles", "majority"),
    row("examples without a check", lambda: HallucinationCheck("plain", 3), "examples", ""),
    row("no steps", lambda: GEval.from_config({"steps": {"notes": {"clarity": "  "}}}), None, "clarity"),
]


def judge(name: str) -> object:
    return build_preset(name, {})


NAMED = [
    *rows(
        judge,
        ("debat", None, "'debate'"),
        ("no_such_module_here:X", None, "PYTHONPATH"),
        ("own_refused:Absent", None, "no such class"),
        ("own_refused:number", None, "not a judge"),
        ("own_refused:Named", None, "kind = 'debate'"),
        ("own_refused:Bare", None, "config"),
        ("own_refused:Unready", None, "persona"),
        ("own_refused:Picky", None, "colour"),
        ("../evil:X", None, "import path of a judge"),
        ("__main__:X", None, "module of its own"),
        files={"own_refused.py": OWN},
    ),
    *rows(find_tuner, ("dspy:", "--tuner", "import path of an optimizer"), ("nowhere:Tuner", "--tuner", "imported")),
    *alike(find_tuner, "--tuner", "not an optimizer", "dspy:Nothing", "json:JSONDecoder"),
]


def tracked(uri: str) -> object:
    return Tracker(uri=uri, store=Path("new"), experiment="debate/tests", run_name="run").__enter__()


def server(api_base: str) -> object:
    return make_lm("openai/m", api_base=api_base)


ADDRESSES = [
    *alike(make_lm, "--lm", "openai/", "gpt-4o-mini", "", "Offline"),
    *alike(server, "--api-base", "http://HOST", "localhost:8000/v1", "//host/v1", "ftp://host", "http://h:port/v1"),
    *alike(tracked, "MLFLOW_TRACKING_URI", "sqlite:///FILE", "runs", "sqlite:///", "htp://host:5000"),
    *alike(tracked, "MLFLOW_TRACKING_URI", "sqlite:///FILE", "http://h:port", "mysql://h:p/d"),
    *rows(tracked, ("sqlite:///rated.jsonl", None, "not a database")),
    *rows(tracked, (f"postgresql://me:{SECRET}@127.0.0.1:1/db", None, "cannot be reached")),
    *alike(serve.bearer_key, None, serve.KEY_VARIABLE, "0.0.0.0", "::", "10.0.0.1", "judge.example"),
    *rows(serve.bearer_key, ("127.0.0.1", None, "short"), env={serve.KEY_VARIABLE: "short"}),
]

TABLE = [*SETTINGS, *TEXTS, *OPTIONS, *JUDGES, *NAMED, *ADDRESSES]
