"""Every command of docs/papers.md runs: on a few made-up records of its set, with the offline stand-in for the LM."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.sets import published
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

ASPECTS = ("coherence", "consistency", "fluency", "relevance")
SUMMEVAL = [
    {
        "id": f"a{n}",
        "text": f"The town of Elm bought {n} ploughs . The mayor was glad . It rained on {n} days .",
        "machine_summaries": [f"Elm bought {n} ploughs .", "The mayor was glad .", "Snow fell and fell ."],
        "human_summaries": [f"Elm has {n} ploughs ."],
        **{aspect: [4 + n % 2, 3 + n % 3, 1 + n % 2] for aspect in ASPECTS},
    }
    for n in range(2, 5)
]
REPLIES = ("I do like chess. The longest game took 269 moves.", "Wow.", "I do not know, what about you?")
TOPICAL_CHAT = [
    {
        "source": f"Do you like chess, number {n}?\nYes.",
        "context": "The longest game took 269 moves.",
        "system_id": f"s{i}",
        "system_output": reply,
        "scores": {"naturalness": 1 + n % 3, "coherence": 1 + i, "engagingness": 3 - i, "groundedness": i % 2},
    }
    for n in range(3)
    for i, reply in enumerate(REPLIES)
]


def _drawn(source: str, output: str, **more: str) -> list[dict[str, Any]]:
    answers = {f"right_{output}": "Elm lies on the Ash.", f"hallucinated_{output}": "Elm lies on the Oak in Spain."}
    return [{source: f"Where is Elm, part {n}?", **answers, **more} for n in range(80)]


CLAIMS = [{"claim": "Elm is a town.", "label": True}, {"claim": "Elm is on the Oak.", "label": False}]
FACTOOL = [
    {"prompt": f"Which river {n}?", "response": "Elm is a town. Elm is on the Oak.", "claims": CLAIMS, "label": n > 1}
    for n in range(4)
]
RECORDS: dict[str, list[dict[str, Any]]] = {
    "summeval": SUMMEVAL,
    "topical_chat": TOPICAL_CHAT,
    "halueval_drawn": _drawn("question", "answer", knowledge="Elm lies on the Ash."),
    "halueval_dialogue_drawn": _drawn("dialogue_history", "response", knowledge="Elm lies on the Ash."),
    "halueval_summarization_drawn": _drawn("document", "summary"),
    "factool": FACTOOL,
    "factool_claims": FACTOOL,
}
"""Name of a set -> records of a copy."""


def _copy(name: str, folder: Path) -> Path:
    def write(file: str, rows: list[dict[str, Any]]) -> Path:
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return folder / file

    if name != "faireval":
        return write(f"{name}.jsonl", RECORDS[name])
    write("question.jsonl", [{"question_id": n, "text": f"Question {n}?", "category": "coding"} for n in range(3)])
    for file, text in zip(published.SYSTEMS.values(), ("A long and helpful answer.", "No."), strict=True):
        write(Path(file).name, [{"question_id": n, "text": text} for n in range(3)])
    (folder / Path(published.REVIEW).name).write_text("CHATGPT\nTIE\nVICUNA13B\n", encoding="utf-8")
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
