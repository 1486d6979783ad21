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
from debate_judge.programs.make_lm import make_lm, open_replies
from debate_judge.runs import serve
from debate_judge.runs.flags.parser import make_parser, read_settings
from debate_judge.runs.tracking.tracker import Tracker
from tests.refusals.refusal import SECRET, row

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


def given(kind: Callable[..., object], **values: Any) -> Callable[[], object]:
    return lambda: kind(**values)


def flags(*arguments: str) -> Callable[[], object]:
    return lambda: read_settings(Settings, make_parser("compile", "", Settings).parse_args(arguments)).options()


def configured(kind: Any, **config: Any) -> Callable[[], object]:
    return lambda: kind.from_config(config)


SETTINGS = [
    row(f"{values}", given(Settings, **values), field, keyword)
    for values, field, keyword in (
        ({"seed": "1"}, "--seed", "a whole number"),
        ({"seed": -1}, "--seed", "at least 0"),
        ({"max_rounds": 1.0}, "--max-rounds", "a whole number"),
        ({"max_rounds": -1}, "--max-rounds", "at least 0"),
        ({"trials": 0}, "trials", "at least 1"),
        ({"concurrency": 0}, "--concurrency", "at least 1"),
        ({"resamples": 99}, "resamples", "at least 100"),
        ({"shared": 1}, "shared", "true or false"),
        ({"aspects": ("a", 1)}, "--aspects", "a list of texts"),
        ({"temperature": float("nan")}, "temperature", "a finite number"),
        ({"max_unscored": 1.5}, "max-unscored", "from 0 to 1"),
        ({"max_unscored": -0.5}, "max-unscored", "from 0 to 1"),
        ({"tpm": 0}, "tpm", "more than 0"),
        ({"batch": "azure"}, "batch", "openai"),
        ({"name": "a/b"}, "--name", "letters"),
        ({"name": ".."}, "--name", "letters"),
        *(
            ({"examples": text}, "--examples", "nearest:N")
            for text in ("0", "-1", "nearest", "nearest:0", "near:3", "pairs", ":3", "3.5", "many")
        ),
        *(
            ({"metric": text}, "--metric", "not a metric")
            for text in ("", "summary/sample", "spearman/pearson", "summary/spearman/auto", "system/spearman")
        ),
        *(({"metric": text}, "--metric", "not a metric") for text in ("mae/spearman", "spearman/mae", "mae,ccc")),
    )
]

OPTIONS = (
    [row(f"-J {text!r}", flags("-J", "turns=2", "-J", text), "-J", "") for text in ("turns", "=3", "turns=1", "")]
    + [
        row(f"{judge} {option}", lambda j=judge, o=option: build_preset(j, flags("-J", o)()), field, keyword)  # type: ignore[misc, arg-type]
        for judge, option, field, keyword in (
            ("chateval", "both-orders=False", "both_orders", "true or false"),
            ("chateval", "comparing=no", "comparing", "true or false"),
            ("chateval", "turns=two", "turns", "from 1 to 101"),
            ("chateval", "samples=2.5", "samples", "from 1 to 1000"),
            ("chateval", "samples=1000000", "samples", "from 1 to 1000"),
            ("chateval", "roles=critik", "roles", "'critic'"),
            ("hallucination-single", "self-check=False", "self_check", "true or false"),
            ("hallucination-selfcheck3", "examples=4", "examples", "from 0 to 3"),
            ("hallucination", "min-rounds=-1", "min_rounds", "from 0 up"),
            ("hallucination", "transition=always", "transition", "always"),
            ("debate", "order=-1", "order", "from 0 up"),
            ("debate", "score-mode=guess", "score-mode", "score mode"),
            ("debate", "turns=3", "-J", "score_mode"),
        )
    ]
    + [
        row(f"roles {content!r}", flags("-J", "roles=r.toml"), None, keyword, "r.toml", files={"r.toml": content})
        for content, keyword in (("", "no role"), ("a = 3", "text"), ("a = ", "not valid TOML"), ('a = " "', "empty"))
    ]
)

ROLES = {"alpha": "You are alpha."}
JUDGES = [
    row(name, build, field, keyword)
    for name, build, field, keyword in (
        ("no role", configured(ChatEval, roles={}), "roles", ""),
        ("an unknown role", configured(ChatEval, roles=["poet"]), "roles", "poet"),
        ("a role that is code", configured(ChatEval, roles={"a['b']": "text"}), "roles", ""),
        ("a role of the judge's", configured(ChatEval, roles={"summarizer": "text"}), "roles", "summarizer"),
        ("the majority", given(ChatEval, roles={"majority": "You are many."}), "roles", "majority"),
        ("a role without words", configured(ChatEval, roles={"alpha": " "}), "roles.alpha", "empty"),
        ("telepathy", configured(ChatEval, roles=ROLES, communication="telepathy"), "communication", ""),
        ("turns of nobody", configured(ChatEval, roles=ROLES, communication="none", turns=2), "turns", ""),
        ("no turn", configured(ChatEval, roles=ROLES, turns=0), "turns", ""),
        ("no sample", configured(ChatEval, roles=ROLES, samples=0), "samples", ""),
        ("no transition", given(Hallucination, transition="never"), "transition", ""),
        ("no ranker", configured(Hallucination, ranker="dense:m"), "ranker", ""),
        ("no scoring", configured(HallucinationCheck, scoring="verdict"), "scoring", ""),
        ("no search", given(Hallucination, search="oracle"), "search", ""),
        ("a search without its key", given(Hallucination, search="serper"), None, "SERPER_API_KEY"),
        ("examples without a check", lambda: HallucinationCheck(False, 3), "examples", ""),
        ("no steps", configured(GEval, steps={"notes": {"clarity": "  "}}), None, "clarity"),
        *(
            (f"the mode {mode!r}", configured(GEval, score_mode=mode), None, "not a score mode")
            for mode in ("", "probabilities", "sampled:", "sampled:0", "sampled:-3", "text:3", "sampled:2.5")
        ),
        (
            "granularity",
            lambda: Debate.from_config({**Debate().config(), "granularity": "half"}),
            "granularity",
            "again",
        ),
        ("batches", lambda: Debate.from_config({**Debate().config(), "batch_rounds": 2}), "batch_rounds", "again"),
        ("no such persona", given(Debate, rounds=1, persona="plane"), "persona", "'plain'"),
        ("rounds below nothing", given(Debate, rounds=-1), "rounds", ""),
    )
] + [
    row(f"judge {name}", lambda n=name: build_preset(n, {}), None, keyword, files={"own_refused.py": OWN})  # type: ignore[misc]
    for name, keyword in (
        ("debat", "'debate'"),
        ("no_such_module_here:X", "PYTHONPATH"),
        ("own_refused:Absent", "no such class"),
        ("own_refused:number", "not a judge"),
        ("own_refused:Named", "kind = 'debate'"),
        ("own_refused:Bare", "config"),
        ("own_refused:Unready", "persona"),
        ("own_refused:Picky", "colour"),
        ("debate_judge.programs.debate.judge:Debate", "debate"),
        ("own_refused:Small.config", "my_module:MyJudge"),
        ("../evil:X", "import path of a judge"),
        (":Small", "import path of a judge"),
        ("__main__:X", "module of its own"),
    )
]

OPTIMIZERS = [
    row(f"optimizer {name}", lambda n=name: find_tuner(n), "--tuner", keyword)  # type: ignore[misc]
    for name, keyword in (
        ("dspy:", "import path of an optimizer"),
        ("nowhere.at.all:Tuner", "imported"),
        ("dspy:Nothing", "not an optimizer"),
        ("json:JSONDecoder", "not an optimizer"),
    )
]


def tracked(uri: str) -> Callable[[], object]:
    return lambda: Tracker(uri=uri, store=Path("new"), experiment="debate/tests", run_name="run").__enter__()


def replies(address: str | None = None) -> Callable[[], object]:
    return lambda: open_replies(Path("runs", "store"), "openai/m", address)


def served(host: str) -> Callable[[], object]:
    return lambda: serve.bearer_key(host)


SECRET_STORE = f"postgresql://judge:{SECRET}@127.0.0.1:1/replies"
ADDRESSES = (
    [row(f"LM {spec!r}", given(make_lm, spec=spec), "--lm", "openai/") for spec in ("gpt-4o-mini", "", "Offline")]
    + [
        row(f"server {text}", given(make_lm, spec="openai/m", api_base=text), "--api-base", "http://HOST")
        for text in ("localhost:8000/v1", "//host/v1", "ftp://host", "http://", "http://h:port/v1")
    ]
    + [
        row(f"no tracking URI {number}", tracked(uri), "tracking URI", "sqlite:///FILE")
        for number, uri in enumerate(
            [
                *("file:./runs", "runs", "sqlite:///", "http://", "htp://host:5000", "postgresql://"),
                *("http://host:port", "http://[::1", "mysql://h:p/db"),
            ]
        )
    ]
    + [
        row("a tracking file of texts", tracked("sqlite:///rated.jsonl"), None, "not a database"),
        row("no database of runs", tracked(f"postgresql://me:{SECRET}@127.0.0.1:1/db"), None, "cannot be reached"),
        row("no server of replies", replies("postgresql://judge@127.0.0.1:1/replies"), None, "127.0.0.1"),
        row("a password in an address", replies(SECRET_STORE), None, "password"),
        row(
            "a password in a query",
            replies(f"postgresql://127.0.0.1:1/replies?user=judge&password={SECRET}"),
            None,
            "password",
        ),
        row("a password in the environment", replies(), None, "DEBATE_REPLIES", env={"DEBATE_REPLIES": SECRET_STORE}),
    ]
    + [
        row(f"no address of replies {number}", replies(address), None, "PostgreSQL")
        for number, address in enumerate(("mysql://judge@127.0.0.1/r", "replies.db", "postgresql://[::1/r"))
    ]
    + [
        row(f"served at {host} without a key", served(host), None, serve.KEY_VARIABLE)
        for host in ("0.0.0.0", "::", "10.0.0.1", "judge.example")
    ]
    + [row("too short a key", served("127.0.0.1"), None, "short", env={serve.KEY_VARIABLE: "short"})]
)

TABLE = [*SETTINGS, *OPTIONS, *JUDGES, *OPTIMIZERS, *ADDRESSES]
