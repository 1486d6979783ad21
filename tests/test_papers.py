"""Every command of docs/papers.md runs: on a few made-up records of its set, with the offline stand-in for the LM."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.sets import faireval
from debate_judge.optimize.cli import main
from tests.config_keys import keys
from tests.hostile_server import HostileServer, sized
from tests.source_tree import ROOT

PAGE = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.replace("\\\n", "").splitlines()
]

Rows = list[dict[str, Any]]


def _summeval() -> Rows:
    aspects = ("coherence", "consistency", "fluency", "relevance")
    return [
        {
            "id": f"a{n}",
            "text": f"The town of Elm bought {n} ploughs . The mayor was glad . It rained on {n} days .",
            "machine_summaries": [f"Elm bought {n} ploughs .", "The mayor was glad .", "Snow fell and fell ."],
            "human_summaries": [f"Elm has {n} ploughs ."],
            **{aspect: [4 + n % 2, 3 + n % 3, 1 + n % 2] for aspect in aspects},
        }
        for n in range(2, 5)
    ]


def _topical_chat() -> Rows:
    aspects = {"naturalness": 1, "coherence": 1, "engagingness": 1, "groundedness": 0}
    replies = ("I do like chess. The longest game took 269 moves.", "Wow.", "I do not know, what about you?")
    return [
        {
            "source": f"Do you like chess, number {n}?\nYes.",
            "context": "The longest game took 269 moves.",
            "system_id": f"s{i}",
            "system_output": reply,
            "scores": {a: low + (i + n) % 2 + (i % 2) * (low != 0) for a, low in aspects.items()},
        }
        for n in range(4)
        for i, reply in enumerate(replies)
    ]


def _drawn(source: str, output: str, **more: str) -> Rows:
    return [
        {source: f"Where is Elm, part {n}?", f"right_{output}": "Elm lies on the Ash.", **more}
        | {f"hallucinated_{output}": "Elm lies on the Oak in Spain."}
        for n in range(80)
    ]


def _factool() -> Rows:
    claims = [{"claim": "Elm is a town.", "label": True}, {"claim": "Elm is on the Oak.", "label": False}]
    return [
        {
            "prompt": f"Which river {n}?",
            "response": "Elm is a town. Elm is on the Oak.",
            "claims": claims,
            "label": n > 1,
        }
        for n in range(4)
    ]


RECORDS = {
    "summeval": _summeval(),
    "topical_chat": _topical_chat(),
    "halueval_drawn": _drawn("question", "answer", knowledge="Elm lies on the Ash."),
    "halueval_dialogue_drawn": _drawn("dialogue_history", "response", knowledge="Elm lies on the Ash."),
    "halueval_summarization_drawn": _drawn("document", "summary"),
    "factool": _factool(),
    "factool_claims": _factool(),
}
"""Name of a set -> records of a copy."""


def _copy(name: str, folder: Path) -> Path:
    if name != "faireval":
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in RECORDS[name]), encoding="utf-8")
        return path
    categories = ("generic", "coding", "writing", "knowledge")
    rows = {
        "question.jsonl": [
            {"question_id": n, "text": f"Question {n}?", "category": c} for n, c in enumerate(categories)
        ]
    }
    for file, text in zip(faireval.SYSTEMS.values(), ("A long and helpful answer.", "No."), strict=True):
        rows[Path(file).name] = [{"question_id": n, "text": text} for n in range(len(categories))]
    for file, records in rows.items():
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in records), encoding="utf-8")
    (folder / Path(faireval.REVIEW).name).write_text("CHATGPT\nTIE\nVICUNA13B\nCHATGPT\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("papers") / "store"


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stand-in for the web search."""
    monkeypatch.setenv("SERPER_API_KEY", "secret")
    body = json.dumps({"organic": [{"snippet": "Elm is a town on the Ash."}]}).encode()
    with HostileServer(lambda request: [sized(body)]) as server:
        monkeypatch.setenv("SERPER_API_BASE", server.origin)
        yield


def test_there_is_a_command_for_each_set_and_none_names_an_lm() -> None:
    assert all(command[:2] == ["debate", "compare"] for command in COMMANDS)
    assert {command[command.index("--data") + 1] for command in COMMANDS} == {*RECORDS, "faireval"}
    assert not any("--lm" in command for command in COMMANDS)


@pytest.mark.integration
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_runs(
    command: list[str], tmp_path: Path, store: Path, search: None, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command[1:]
    place = arguments.index("--data") + 1
    arguments[place] = f"{arguments[place]}={_copy(arguments[place], tmp_path)}"
    table = tmp_path / "table.json"
    assert main([*arguments, "--store", str(store), "--json", str(table), *keys(report="none")]) == 0, (
        capsys.readouterr()
    )
    result = json.loads(table.read_text(encoding="utf-8"))
    assert result["failed"] == {}
    assert all(not sum(judge["unscored"].values()) for judge in result["judges"].values())
