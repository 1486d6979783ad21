"""Settings, judges, their options and addresses that are refused, from Python, flags and TOML files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import find_tuner
from debate_judge.programs import build_preset
from debate_judge.programs.chateval import ChatEval
from debate_judge.programs.geval import GEval
from debate_judge.programs.hallucination.judge import Hallucination
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs import serve
from debate_judge.runs.flags import make_parser, read_settings
from debate_judge.runs.tracking import Tracker
from tests.refusals.refusal import SECRET, alike, row, rows

OWN = """
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import ItemJudge

class Named(Debate):
    kind = "debate"

class Bare(ItemJudge):
    pass
"""


SETTINGS = rows(
    Settings,
    ({"seed": "1"}, "--seed", "valid integer"),
    ({"temperature": float("nan")}, "--temperature", "a finite number"),
    ({"max_unscored": 1.5}, "--max-unscored", "less than or equal to 1"),
    ({"metric": "summary/sample"}, "--metric", "not a metric"),
)


def flags(*arguments: str) -> Callable[[], dict[str, Any]]:
    return lambda: read_settings(Settings, make_parser("compile", "", Settings), arguments)[0].options()


def optional(words: str) -> object:
    judge, option = words.split()
    return build_preset(judge, flags("-J", option)())


OPTIONS = [
    row("-J without a value", flags("-J", "turns"), "-J", ""),
    row("-J with a broken file", flags("-J", "roles=r.toml"), None, "TOML", "r.toml", files={"r.toml": "a = "}),
    *rows(optional, ("chateval roles=critik", "roles", "'critic'"), ("debate turns=3", "-J", "score_mode")),
]


def chateval(**config: Any) -> object:
    return ChatEval.from_config({"roles": {"alpha": "You are alpha."}, **config})


def hallucination(**config: Any) -> object:
    return Hallucination.from_config(config)


JUDGES = [
    *rows(chateval, ({"roles": ["plumber"]}, "roles", "plumber"), ({"communication": "none", "turns": 2}, "turns", "")),
    *rows(
        hallucination,
        ({"agents": {"judge": "You are the judge."}}, "agents", "skeptic"),
        ({"search": "serper"}, None, "SERPER_API_KEY"),
    ),
    row("no sample", lambda: GEval.from_config({"score_mode": "sampled:0"}), None, "not a score mode"),
    row("no steps", lambda: GEval.from_config({"steps": {"notes": {"clarity": "  "}}}), None, "clarity"),
]


def judge(name: str) -> object:
    return build_preset(name, {})


NAMED = [
    *rows(
        judge,
        ("debat", None, "'debate'"),
        ("own_refused:Named", None, "kind = 'debate'"),
        ("own_refused:Bare", None, "config"),
        ("__main__:X", None, "module of its own"),
        files={"own_refused.py": OWN},
    ),
    *rows(find_tuner, ("nowhere:T", "--tuner", "imported"), ("json:JSONDecoder", "--tuner", "not an optimizer")),
]


def tracked(uri: str) -> object:
    return Tracker(uri=uri, store=Path("new"), experiment="debate/tests", run_name="run").__enter__()


def server(api_base: str) -> object:
    return make_lm("openai/m", api_base=api_base)


ADDRESSES = [
    *alike(server, "--api-base", "http://HOST", "localhost:8000/v1", "http://h:port/v1"),
    *alike(tracked, "MLFLOW_TRACKING_URI", "sqlite:///FILE", "htp://host:5000", "http://[::1"),
    *rows(tracked, (f"postgresql://me:{SECRET}@127.0.0.1:1/db", None, "cannot be used")),
    *alike(serve.bearer_key, None, serve.KEY_VARIABLE, "0.0.0.0"),
    *rows(serve.bearer_key, ("127.0.0.1", None, "short"), env={serve.KEY_VARIABLE: "short"}),
]

TABLE = [*SETTINGS, *OPTIONS, *JUDGES, *NAMED, *ADDRESSES]
