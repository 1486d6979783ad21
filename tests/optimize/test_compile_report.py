"""The reports of a compile and of a comparison: where they lie, what they hold, and that they can be made again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize import compile as compile_command
from debate_judge.runs import compare, report
from tests.config_keys import keys
from tests.optimize.small_corpus import small_corpus

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one compile and one comparison, of data with comments; the data lie beside it."""
    folder = tmp_path_factory.mktemp("report")
    data = small_corpus(folder)
    groups = [json.loads(line) for line in data.read_text().splitlines()]
    for group in groups:
        for candidate in group["candidates"]:
            candidate["comments"] = {"coherence": [f"remark on {candidate['id']} of {group['group']}"]}
    data.write_text("".join(json.dumps(group) + "\n" for group in groups))
    shared = ["--data", str(data), "--store", str(folder / "store"), "--aspects", "coherence,fluency"]
    quick = keys(folds=1, max_rounds=1, trials=3, json=folder / "compiled.json")
    assert compile_command.main([*shared, *quick]) == 0
    judges = ["--judges", f"single,rouge-l,{export_of(folder / 'store')}", "--json", str(folder / "table.json")]
    assert compare.main([*shared, *judges, *keys(report="full")]) == 0
    return folder / "store"


def export_of(store: Path) -> Path:
    (export,) = (store / "exports").iterdir()
    return export


def texts_of(store: Path) -> list[str]:
    """The beginnings of all texts of the data."""
    groups = [json.loads(line) for line in (store.parent / "small.jsonl").read_text().splitlines()]
    return [text[:60] for g in groups for text in (g["source"], *(c["text"] for c in g["candidates"]))]


def quoting(store: Path, folder: Path) -> list[Path]:
    """The files in a folder that hold a text of the data."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if any(text in file.read_text(errors="replace") for text in texts_of(store))]


def read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def test_a_tracking_store_that_others_read_gets_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, tracked = tmp_path / "store", tmp_path / "team.db"
    arguments = ["--data", str(small_corpus(tmp_path)), "--aspects", "coherence", "--store", str(store)]
    arguments += keys(tuner="none", folds=1, max_rounds=0)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tracked}")
    assert compile_command.main([*arguments, *keys(trials=1)]) == 0
    assert [*(store / "artifacts").rglob("report.html")]
    names = {file.name for file in quoting(store, store / "artifacts")}
    names |= {file.name for file in quoting(store, tmp_path) if file == tracked}
    assert names - {"traces.json"} == set()


def test_texts_are_in_the_store_and_the_exports_page_and_neither_in_its_run_nor_in_what_is_shared(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export, run_id = export_of(store), read(store.parent / "compiled.json")["run_id"]
    assert [file.name for file in quoting(store, export)] == ["report.html"]
    files = [file.relative_to(store) for file in quoting(store, store)]
    places = {file.name if file.parts[0] == "artifacts" else file.parts[0] for file in files}
    # MLflow keeps the spans of a trace in its database, and in a file as well where the trace was there before them.
    assert places - {"traces.json"} == {"replies", "reports", "exports", "mlflow.db"}
    artifacts = store / "artifacts" / run_id / "artifacts"
    assert (artifacts / "report.json").read_text() == (export / "report.json").read_text()
    assert report.main([str(export), "--share"]) == 0
    shared = Path(capsys.readouterr().out.strip())
    for page in (artifacts / "report.html", shared):
        text = page.read_text()
        assert "quotes no text" in text
        assert not any(quoted in text for quoted in (*texts_of(store), "remark on"))
    shared.unlink()


def test_the_report_says_what_the_compile_printed_and_is_made_again(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export, result = export_of(store), read(store.parent / "compiled.json")
    content = read(export / "report.json")
    table = next(block for block in content["verdict"] if block["kind"] == "table")
    value = result["held_out"]["compiled"]["average"]["summary"]["spearman"]["value"]
    assert table["rows"][-1][4].startswith(f"{value:.2f} [")
    assert str(store) not in json.dumps(content)
    page, run_id = export / "report.html", result["run_id"]
    first = page.read_bytes()
    for address, file in {export: page, run_id: store / "reports" / run_id / "report.html"}.items():
        file.unlink(missing_ok=True)
        assert report.main([str(address), "--store", str(store)]) == 0
        assert file.read_bytes() == first
    # Texts come from the store alone.
    shutil.copytree(export, tmp_path / "export")
    monkeypatch.chdir(tmp_path)
    assert report.main(["export"]) == 2
    assert "not in the store" in capsys.readouterr().err


def test_a_comparison_leaves_its_report_beside_its_table(store: Path) -> None:
    assert "remark on" in (store.parent / "table-report.html").read_text()
    content = read(store.parent / "table-report.json")
    judges = [(judge["name"], judge["on_scale"]) for judge in content["debates"]["judges"]]
    assert judges == [("single", True), ("rouge-l", False), (export_of(store).name, True)]
    # A metric makes no call.
    ended = {tuple(outcome["stop"] for outcome in item["outcomes"][:2]) for item in content["debates"]["items"]}
    assert ended == {("single call", "metric")}
