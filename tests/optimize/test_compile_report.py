"""The reports of a compile and of a comparison: where they lie, what they hold, and that they can be made again."""

from __future__ import annotations

import json
import os
import re
import shutil
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize import compile as compile_command
from debate_judge.runs import compare, report
from debate_judge.runs.mlflow_setup import prepare_mlflow
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


def quotes_nothing(store: Path, page: str) -> bool:
    return not any(text in page for text in (*texts_of(store), "remark on"))


def read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text())
    return content


# --- where texts are ---


def test_the_export_quotes_no_text_but_in_its_page_and_the_run_holds_a_page_without(store: Path) -> None:
    export, run_id = export_of(store), read(store.parent / "compiled.json")["run_id"]
    assert [file.name for file in quoting(store, export)] == ["report.html"]
    assert {file.name for file in export.rglob("*.*") if "remark on" in file.read_text()} == {"report.html"}
    assert "quotes the texts" in (export / "report.html").read_text()
    assert "take it out" in (export / "README.md").read_text()
    (artifacts,) = (store / "artifacts").glob(f"{run_id}/artifacts")
    assert (artifacts / "report.json").read_text() == (export / "report.json").read_text()
    page = (artifacts / "report.html").read_text()
    assert "quotes no text" in page
    assert quotes_nothing(store, page)


def test_texts_lie_in_the_store_where_the_readme_says(store: Path) -> None:
    files = [file.relative_to(store) for file in quoting(store, store)]
    places = {file.name if file.parts[0] == "artifacts" else file.parts[0] for file in files}
    # MLflow keeps the spans of a trace in its database, and in a file as well where the trace was there before them.
    assert places - {"traces.json"} == {"replies", "reports", "exports", "mlflow.db"}


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


# --- what a report says, and that it can be made again ---


def test_the_report_says_what_the_compile_printed(store: Path) -> None:
    content, result = read(export_of(store) / "report.json"), read(store.parent / "compiled.json")
    assert [*content["sections"]][-2:] == ["Cost", "Reproduce"]
    table = next(block for block in content["verdict"] if block["kind"] == "table")
    value = result["held_out"]["compiled"]["average"]["summary"]["spearman"]["value"]
    assert table["rows"][-1][0] == "average"
    assert table["rows"][-1][4].startswith(f"{value:.2f} [")
    command = content["sections"]["Reproduce"][0]["text"]
    assert command.startswith("debate compile ")
    flags = set(re.findall(r"--\w+ \S+", command))
    assert flags >= {"--data small.jsonl", "--aspects coherence,fluency", "--trials 3"}
    assert not re.findall("--(store|json)", command)
    assert str(store) not in json.dumps(content)
    assert "stand-in" in content["stand_in"]


def test_it_is_made_again_from_export_run_and_file(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////nowhere.db")
    export, run_id = export_of(store), read(store.parent / "compiled.json")["run_id"]
    first = (export / "report.html").read_bytes()
    page, page_of_run = export / "report.html", store / "reports" / run_id / "report.html"
    pages = {export: page, export / "report.json": page, run_id: page_of_run, f"runs:/{run_id}": page_of_run}
    for address, file in pages.items():
        file.unlink(missing_ok=True)
        assert report.main([str(address), "--store", str(store)]) == 0
        assert file.read_bytes() == first
    assert os.environ["MLFLOW_TRACKING_URI"] == "sqlite:////nowhere.db"


def test_texts_come_from_the_store_alone(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "export"
    shutil.copytree(export_of(store), copy)
    monkeypatch.chdir(tmp_path)
    assert report.main([str(copy)]) == 2
    assert "not in the store" in capsys.readouterr().err
    assert report.main([str(copy), "--store", str(store)]) == 0
    assert capsys.readouterr().out.strip() == str(copy / "report.html")
    assert "remark on" in (copy / "report.html").read_text()


@pytest.mark.parametrize("opened", [True, False])
def test_on_a_terminal_the_page_is_opened(
    opened: bool, store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or opened)
    page = export_of(store) / "report.html"
    for terminal in (False, True):
        monkeypatch.setattr(report, "is_terminal", lambda stream, terminal=terminal: terminal)
        assert report.main([str(export_of(store))]) == 0
        assert addresses == [page.resolve().as_uri()] * terminal
    output = capsys.readouterr()
    assert output.out.startswith(str(page))
    assert ("no browser" in output.err) == (not opened)


def test_the_page_to_be_passed_on_quotes_no_text(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(export_of(store)), "--share"]) == 0
    page = Path(capsys.readouterr().out.strip())
    assert page == export_of(store) / "report-share.html"
    text = page.read_text()
    page.unlink()
    assert "quotes no text" in text
    assert quotes_nothing(store, text)


# --- comparisons ---


def test_a_comparison_leaves_its_report_beside_its_table_and_is_a_run(store: Path) -> None:
    prepare_mlflow()
    from mlflow.tracking import MlflowClient

    assert "remark on" in (store.parent / "table-report.html").read_text()
    content = read(store.parent / "table-report.json")
    judges = [(judge["name"], judge["on_scale"]) for judge in content["debates"]["judges"]]
    assert judges == [("single", True), ("rouge-l", False), (export_of(store).name, True)]
    # A metric makes no call.
    ended = {tuple(outcome["stop"] for outcome in item["outcomes"][:2]) for item in content["debates"]["items"]}
    assert ended == {("single call", "metric")}
    client = MlflowClient(f"sqlite:///{store / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'debate/small'")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    comparison = runs[content["name"]]
    assert "| judge |" in comparison.data.tags["mlflow.note.content"]
    assert {"report.html", "report.json"} <= {file.path for file in client.list_artifacts(comparison.info.run_id)}
    table = read(store.parent / "table.json")["judges"]["single"]["agreement"]["average"]["summary"]["spearman"]
    assert runs["single"].data.metrics["agreement"] == table["value"]
    assert runs["single"].data.tags["mlflow.parentRunId"] == comparison.info.run_id
