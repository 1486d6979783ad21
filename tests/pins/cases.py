"""The commands whose calls are pinned, and what is pinned of each."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from debate_judge.optimize import cli
from tests.config_keys import keys
from tests.pins.recording import ADDRESS, LM, Call, Recorder, at_the_address, digest, stored_keys

PINNED = Path(__file__).with_name("pinned")
SAMPLE = Path(__file__).parents[2] / "data" / "sample"


def write_sample(file: Path, sources: int, candidates: int) -> Path:
    """Write the first candidates of the first sources of the sample."""
    lines = [json.loads(line) for line in (SAMPLE / "summarization.jsonl").read_text(encoding="utf-8").splitlines()]
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


AT_SERVER: list[object] = ["--lm", LM, "--api-base", ADDRESS, *keys(preflight=False)]


def compare(folder: Path) -> object:
    """The debate, the Tie-breaker, G-Eval and ChatEval; returns agreement and calls of each judge."""
    data, out = write_sample(folder / "rated.jsonl", 3, 3), folder / "table.json"
    judges = "debate+tiebreak,geval,chateval"
    arguments = ["--data", data, "--part", "all", "--aspects", "coherence,relevance", "--judges", judges]
    debate("compare", *arguments, "--report", "none", "--json", out, *AT_SERVER, "--store", folder / "store")
    return {
        name: [round(judge["lm_calls_per_item"], 6)]
        + [_rounded(levels["sample"]["spearman"]["value"]) for levels in judge["agreement"]["aspects"].values()]
        for name, judge in json.loads(out.read_text(encoding="utf-8"))["judges"].items()
    }


def compile_small(folder: Path, *more: object) -> object:
    """Compile on eight sources; the export is `folder`/store/exports/pinned. Returns what was chosen by aspect."""
    data, result = write_sample(folder / "rated.jsonl", 8, 3), folder / "compiled.json"
    arguments = ["--aspects", "coherence,relevance", "--folds", 1, "--max-rounds", 2, "--name", "pinned"]
    arguments += keys(trials=3, report="none", json=result)
    debate("compile", "--data", data, *arguments, "--store", folder / "store", *more)
    return chosen(json.loads(result.read_text(encoding="utf-8")))


def exported(folder: Path) -> Path:
    """Compile a debate offline that is held about two texts at once; returns its export, in a store in `folder`."""
    compile_small(folder, "--tuner", "none", "--judge", "debate+tiebreak", "-J", "together=2")
    return folder / "store" / "exports" / "pinned"


def score(folder: Path) -> object:
    """Score new texts with a debate that was compiled offline; returns the rows."""
    (folder / "offline").mkdir()
    export, out = exported(folder / "offline"), folder / "scores.jsonl"
    texts = write_sample(folder / "texts.jsonl", 4, 4)
    debate("score", export, "--in", texts, "--out", out, "--store", folder / "store", *AT_SERVER)
    return out.read_text(encoding="utf-8").splitlines()


def chosen(result: dict[str, Any]) -> dict[str, Any]:
    """The judges that a compile has chosen, by aspect, from its JSON file."""
    kept = ("knowledge", "persona", "rounds", "tie_breaker")
    return {aspect: {name: judge[name] for name in kept} for aspect, judge in result["chosen"].items()}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


CASES: dict[str, Callable[[Path], object]] = {
    "compare": compare,
    "compile": lambda folder: compile_small(folder, *AT_SERVER),
    "score": score,
}
"""What is pinned -> runs its command at the server, in an empty folder with the store `store`; returns the result."""


def pin(name: str, folder: Path) -> tuple[dict[str, Any], list[Call]]:
    """Run a case; returns what is pinned of it, its calls in no order, and the calls."""
    with Recorder() as server, at_the_address(server.port):
        result = CASES[name](folder)
    each = sorted(digest(call) for call in server.calls)
    pinned = {
        "calls": len(each),
        "messages": _hashed(each),
        "keys": _hashed(stored_keys(folder / "store", LM)),
        "settings": sorted({_settings(call) for call in server.calls}),
        "result": result,
        # Of each call, so that a test which fails can show what is new.
        "each": " ".join(short[:8] for short in each),
    }
    return pinned, server.calls


def _settings(call: Call) -> str:
    limit = call.get("max_tokens", call.get("max_completion_tokens"))
    return f"{call['model']}, temperature {float(call['temperature']):g}, at most {limit} tokens"


def _hashed(parts: Iterable[str]) -> str:
    return hashlib.blake2b(" ".join(parts).encode(), digest_size=8).hexdigest()


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
