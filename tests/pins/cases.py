"""The commands whose calls are pinned, and what is pinned of each."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from debate_judge.optimize import cli
from tests.config_keys import keys
from tests.pins.recording import ADDRESS, LM, Call, Recorder, at_the_address, digest, stored_keys

PINNED = Path(__file__).with_name("pinned")
SAMPLE = Path(__file__).parents[2] / "data" / "sample"


def _case(
    judges: str, settings: str = "", *, candidates: int = 3, aspects: str = "coherence,relevance"
) -> tuple[str, str, int, str]:
    return (judges, settings, candidates, aspects)


_DEBATES = "single,multiagent,debate,debate+tiebreak"
COMPARED = {
    "debate_tiebreak": _case("debate+tiebreak"),
    "debates_side_by_side": _case(_DEBATES, "together=2"),
    "debate_two_briefs": _case("debate", "persona=two-briefs"),
    "geval": _case("geval"),
    "geval_sampled": _case("geval", "score-mode=sampled:2"),
    "chateval": _case("chateval"),
    "chateval_simultaneous": _case("chateval-simultaneous"),
    "chateval_summarizer": _case("chateval-summarizer"),
    "chateval_without_talk": _case("chateval-single,chateval-ensemble"),
    "chateval_compare": _case("chateval-compare", candidates=2),
    "hallucination": _case("hallucination", candidates=2, aspects="consistency"),
    "hallucination_verify": _case("hallucination-verify", candidates=2, aspects="consistency"),
    "hallucination_single": _case(
        "hallucination-single,self-check-0,self-check-3,halueval-few-shot", aspects="consistency"
    ),
    "dialogue": _case("debate+tiebreak,geval,chateval", aspects="naturalness,groundedness", candidates=2),
}
"""Judges, their settings, candidates of each of three sources, and aspects."""


def write_sample(file: Path, sources: int, candidates: int, task: str = "summarization") -> Path:
    """Write the first candidates of the first sources of the sample."""
    lines = [json.loads(line) for line in (SAMPLE / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()]
    for group in lines[:sources]:
        group["candidates"] = group["candidates"][:candidates]
    file.write_text("".join(json.dumps(group) + "\n" for group in lines[:sources]), encoding="utf-8")
    return file


def debate(*arguments: object) -> None:
    """Run the `debate` command in this process, which must succeed."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = cli.main([str(argument) for argument in arguments])
    assert code == 0, output.getvalue()


def compare_arguments(name: str, folder: Path) -> list[object]:
    """Arguments of the comparison of a case, without the LM and the store; its data are written to `folder`."""
    judges, settings, candidates, aspects = COMPARED[name]
    judges = ",".join(f"{judge}[{settings}]" if settings else judge for judge in judges.split(","))
    task = "dialogue" if name == "dialogue" else "summarization"
    data = write_sample(folder / f"{name}.jsonl", 3, candidates, task)
    return [
        *("compare", "--data", data, "--part", "all", "--aspects", aspects, "--judges", judges),
        *("--metric", "auto/pearson,spearman", "--report", "none"),
        *("--json", folder / f"{name}.json"),
    ]


AT_SERVER: list[object] = ["--lm", LM, "--api-base", ADDRESS, *keys(preflight=False)]


def compared(name: str, folder: Path, store: Path, server: Recorder) -> dict[str, Any]:
    """Run the comparison of a case at the server and return its table."""
    with at_the_address(server.port):
        debate(*compare_arguments(name, folder), *AT_SERVER, "--store", store)
    return table(folder / f"{name}.json")


def table(file: Path) -> dict[str, Any]:
    """What the table of a comparison says of each judge: agreement by aspect and level, calls."""
    judges = json.loads(file.read_text(encoding="utf-8"))["judges"]
    return {
        name.partition("[")[0]: {
            "lm_calls_per_item": round(judge["lm_calls_per_item"], 6),
            "agreement": {
                f"{aspect} {level} {statistic}": _rounded(levels[level][statistic]["value"])
                for aspect, levels in judge["agreement"]["aspects"].items()
                for level in ("summary", "sample")
                for statistic in ("pearson", "spearman")
            },
        }
        for name, judge in judges.items()
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def pin(calls: Sequence[Call], keys: Iterable[str], result: object) -> dict[str, Any]:
    """What is kept of a command: its calls, in no order, their keys, and what it found."""
    each = sorted(digest(call) for call in calls)
    return {
        "calls": len(calls),
        "messages": hashed(each),
        "keys": hashed(sorted(keys)),
        "settings": sorted({settings(call) for call in calls}),
        "result": result,
        # Of each call, so that a test which fails can show what is new.
        "each": " ".join(short[:8] for short in each),
    }


def settings(call: Call) -> str:
    """Model, temperature and limit on the length of a call."""
    limit = call.get("max_tokens", call.get("max_completion_tokens"))
    return f"{call['model']}, temperature {float(call['temperature']):g}, at most {limit} tokens"


def hashed(parts: Iterable[str]) -> str:
    return hashlib.blake2b(" ".join(parts).encode(), digest_size=8).hexdigest()


def compare_case(name: str, folder: Path) -> tuple[dict[str, Any], list[Call]]:
    """Run a case in an empty store; returns its pin and its calls."""
    with Recorder() as server:
        result = compared(name, folder, folder / "store", server)
    return pin(server.calls, stored_keys(folder / "store", LM), result), server.calls


SMALL_COMPILE = [
    *("--aspects", "coherence,relevance", "--folds", 1, "--max-rounds", 2, "--name", "pinned"),
    *keys(trials=3, report="none"),
]
"""Arguments of a compile that takes seconds."""


def compile_small(folder: Path, *more: object) -> dict[str, Any]:
    """Compile on eight sources; the export is `folder`/store/exports/pinned. Returns what was chosen by aspect."""
    data, result = write_sample(folder / "rated.jsonl", 8, 3), folder / "compiled.json"
    debate("compile", "--data", data, *SMALL_COMPILE, "--store", folder / "store", *keys(json=result), *more)
    return chosen(json.loads(result.read_text(encoding="utf-8")))


def chosen(result: dict[str, Any]) -> dict[str, Any]:
    """The judges that a compile has chosen, by aspect, from its JSON file."""
    kept = ("knowledge", "persona", "rounds", "tie_breaker")
    return {aspect: {name: judge[name] for name in kept} for aspect, judge in result["chosen"].items()}


def compile_case(name: str, folder: Path) -> tuple[dict[str, Any], list[Call]]:
    """Compile with guides at the server, in an empty store."""
    with Recorder() as server, at_the_address(server.port):
        result = compile_small(folder, *AT_SERVER)
    return pin(server.calls, stored_keys(folder / "store", LM), result), server.calls


SCORED = {"score": ["debate+tiebreak"], "score_together": ["debate+tiebreak", "-J", "together=2"]}
"""Judges and options of those that are exported as they are, and then score texts at the server."""


def exported(name: str, folder: Path) -> Path:
    """Compile a judge of `SCORED` offline, in a store in `folder`; returns its export."""
    compile_small(folder, "--tuner", "none", "--judge", *SCORED[name])
    return folder / "store" / "exports" / "pinned"


def score_case(name: str, folder: Path) -> tuple[dict[str, Any], list[Call]]:
    """Export a debate, compiled offline, and score new texts with it at the server, in an empty store."""
    export = exported(name, folder)
    texts, out = write_sample(folder / "texts.jsonl", 4, 4), folder / "scores.jsonl"
    with Recorder() as server, at_the_address(server.port):
        debate(
            *("score", export, "--in", texts, "--out", out, "--store", folder / "other", *AT_SERVER),
            *keys(transcripts=folder / "debates.jsonl"),
        )
    rows = out.read_text(encoding="utf-8").splitlines()
    return pin(server.calls, stored_keys(folder / "other", LM), rows), server.calls


CASES = {
    **dict.fromkeys(COMPARED, compare_case),
    "compile": compile_case,
    **dict.fromkeys(SCORED, score_case),
}
"""What is pinned -> runs its command in an empty folder; returns its pin and its calls."""


def compile_sample(folder: Path) -> dict[str, Any]:
    """Compile the sample offline with the default settings; returns what is chosen, its agreement and its calls.

    It is the main job: where that has just been done, MAIN_JOB_RESULT names the file of its result.
    """
    file = Path(os.environ.get("MAIN_JOB_RESULT", folder / "out.json"))
    if not file.exists():
        debate("compile", "--store", folder / "store", *keys(json=file))
    result = json.loads(file.read_text(encoding="utf-8"))
    return {
        "chosen": chosen(result),
        "held_out": {
            f"{judge} {aspect}": _rounded(levels["summary"]["spearman"]["value"])
            for judge in ("single", "compiled")
            for aspect, levels in result["held_out"][judge]["aspects"].items()
        },
        "lm_calls": result["lm_calls"]["answered"],
    }
