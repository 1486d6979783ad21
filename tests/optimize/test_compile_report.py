"""The reports of a compile and of a comparison: where they lie, what they hold, and that they can be made again."""

from __future__ import annotations

import json
import os
import re
import shutil
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize import compile as compile_command
from debate_judge.runs import compare, report
from debate_judge.runs.mlflow_setup import prepare_mlflow
from tests.browser import Browser, needs_browser
from tests.config_keys import keys
from tests.optimize.small_corpus import small_corpus

pytestmark = pytest.mark.integration

ASPECTS = ("--aspects", "coherence,fluency")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one compile and one comparison, of data with comments; the data lie beside it."""
    folder = tmp_path_factory.mktemp("report")
    data = small_corpus(folder)
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    for group in lines:
        for candidate in group["candidates"]:
            candidate["comments"] = {"coherence": [f"remark on {candidate['id']} of {group['group']}"]}
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    quick = ["--folds", "1", "--max-rounds", "1", *keys(trials=3, resamples=100, json=folder / "compiled.json")]
    shared = ["--data", str(data), "--store", str(folder / "store"), *ASPECTS]
    assert compile_command.main([*shared, *quick]) == 0
    judges = ["--judges", f"single,rouge-l,{export_of(folder / 'store')}", "--config", "baseline=single"]
    outputs = ["--json", str(folder / "table.json"), "--config", "resamples=100", "--config", "report=full"]
    assert compare.main([*shared, *judges, *outputs]) == 0
    return folder / "store"


def export_of(store: Path) -> Path:
    (found,) = (store / "exports").iterdir()
    return found


def texts_of(store: Path) -> list[str]:
    """The beginnings of all texts of the data, none of which is a common phrase."""
    found = []
    for line in (store.parent / "small.jsonl").read_text().splitlines():
        group = json.loads(line)
        found += [group["source"], *(candidate["text"] for candidate in group["candidates"])]
    return [*(text[:60] for text in found), "remark on"]


def kept(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def artifact(store: Path, run_id: str, name: str) -> str | None:
    (found,) = [*(store / "artifacts").glob(f"{run_id}/artifacts/{name}")] or [None]
    return None if found is None else found.read_text()


def test_the_export_quotes_no_text_but_in_its_page(store: Path) -> None:
    export = export_of(store)
    assert {file.name for file in export.iterdir()} >= {"report.html", "report.json", "manifest.json"}
    files = [file for file in export.rglob("*") if file.is_file()]
    assert {file.name for file in files for text in texts_of(store) if text in file.read_text()} == {"report.html"}
    assert "quotes the texts" in (export / "report.html").read_text()
    assert "take it out" in (export / "README.md").read_text()


def test_the_run_holds_a_page_without_texts(store: Path) -> None:
    run_id = kept(store.parent / "compiled.json")["run_id"]
    assert artifact(store, run_id, "report.json") == (export_of(store) / "report.json").read_text()
    page = artifact(store, run_id, "report.html")
    assert page is not None
    assert "quotes no text" in page
    assert not [text for text in texts_of(store) if text in page]


def test_texts_lie_in_the_store_where_the_readme_says(store: Path) -> None:
    # The last is a phrase that the code in the model has as well.
    *texts, _ = texts_of(store)
    quoting = [
        file.relative_to(store)
        for file in store.rglob("*")
        if file.is_file() and any(text in file.read_text(errors="replace") for text in texts)
    ]
    places = {place.name if place.parts[0] == "artifacts" else place.parts[0] for place in quoting}
    # MLflow keeps the spans of a trace in its database, and in a file as well where the trace was there before them.
    assert places - {"traces.json"} == {"replies", "reports", "exports", "debates.json", "mlflow.db"}


@pytest.mark.integration
@pytest.mark.parametrize("log_texts", [False, True])
def test_a_tracking_store_that_others_read_gets_no_text_unless_the_user_wants_it(
    tmp_path: Path, log_texts: bool
) -> None:
    store, tracked = tmp_path / "store", tmp_path / "team.db"
    data = ["--data", str(small_corpus(tmp_path)), "--aspects", "coherence", "--tuner", "none", "--folds", "1"]
    places = ["--store", str(store), "--tracking-uri", f"sqlite:///{tracked}"]
    quick = ["--max-rounds", "0", *keys(trials=1, resamples=100, log_texts=log_texts)]
    assert compile_command.main([*data, *places, *quick]) == 0
    *texts, _ = texts_of(store)
    files = [tracked, *(file for file in (store / "artifacts").rglob("*") if file.is_file())]
    assert "report.html" in {file.name for file in files}
    quoting = {file.name for file in files if any(text in file.read_text(errors="replace") for text in texts)}
    assert quoting - {"traces.json"} == ({"debates.json", "team.db"} if log_texts else set())


def test_the_report_says_what_the_compile_printed(store: Path) -> None:
    found, result = kept(export_of(store) / "report.json"), kept(store.parent / "compiled.json")
    titles = [section["title"] for section in found["sections"]]
    assert titles[:2] == ["Verdict", "Agreement on held-out sources"]
    assert titles[-2:] == ["Cost", "Reproduce"]
    table = next(block for block in found["sections"][1]["blocks"] if block["kind"] == "table")
    value = result["held_out"]["compiled"]["average"]["summary"]["spearman"]["value"]
    assert table["rows"][-1][0] == "average"
    assert table["rows"][-1][4].startswith(f"{value:.2f} [")
    command = found["sections"][-1]["blocks"][0]["text"]
    assert command.startswith("debate compile ")
    assert {"--data small.jsonl", "--aspects coherence,fluency", "--config trials=3"} <= set(
        re.findall(r"--\w+ \S+", command)
    )
    assert not re.findall("--(store|json)", command)
    assert str(store) not in json.dumps(found)
    assert "stand-in" in found["stand_in"]


def test_it_is_made_again_from_export_run_and_file(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////nowhere.db")
    export = export_of(store)
    first = (export / "report.html").read_bytes()
    run_id = kept(store.parent / "compiled.json")["run_id"]
    places = {
        str(export): export / "report.html",
        str(export / "report.json"): export / "report.html",
        run_id: store / "reports" / run_id / "report.html",
        f"runs:/{run_id}": store / "reports" / run_id / "report.html",
    }
    for address, page in places.items():
        page.unlink(missing_ok=True)
        assert report.main([address, "--store", str(store)]) == 0
        assert page.read_bytes() == first
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
    page = Path(capsys.readouterr().out.strip())
    assert page == copy / "report.html"
    text = page.read_text()
    assert "remark on" in text
    assert "quotes the texts" in text


@pytest.mark.parametrize("there", [True, False])
def test_on_a_terminal_the_page_is_opened(
    there: bool, store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or there)
    page = export_of(store) / "report.html"
    assert report.main([str(export_of(store))]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    assert asked == []
    monkeypatch.setattr(report, "is_terminal", lambda stream: True)
    assert report.main([str(export_of(store))]) == 0
    assert asked == [page.resolve().as_uri()]
    assert ("no browser" in capsys.readouterr().err) == (not there)


def test_the_page_to_be_passed_on_quotes_no_text(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(export_of(store)), "--share"]) == 0
    page = Path(capsys.readouterr().out.strip())
    assert page == export_of(store) / "report-share.html"
    text = page.read_text()
    page.unlink()
    assert "quotes no text" in text
    assert not [one for one in texts_of(store) if one in text]


# --- comparisons ---


def test_a_comparison_leaves_its_report_beside_its_table(store: Path) -> None:
    folder = store.parent
    assert "remark on" in (folder / "table-report.html").read_text()
    found = kept(folder / "table-report.json")
    assert [judge["name"] for judge in found["debates"]["judges"]] == ["single", "rouge-l", export_of(store).name]
    assert [judge["on_scale"] for judge in found["debates"]["judges"]] == [True, False, True]
    # A metric makes no call.
    ended = {tuple(outcome["stop"] for outcome in item["outcomes"][:2]) for item in found["debates"]["items"]}
    assert ended == {("single call", "metric")}


def test_a_comparison_in_a_store_with_runs_is_one_of_them(store: Path) -> None:
    prepare_mlflow()
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{store / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'debate/small'")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    found = kept(store.parent / "table-report.json")
    own = runs[found["name"]]
    assert "| judge |" in own.data.tags["mlflow.note.content"]
    names = {file.path for file in client.list_artifacts(own.info.run_id)}
    assert {"report.html", "report.json"} <= names
    table = kept(store.parent / "table.json")["judges"]["single"]["agreement"]["average"]["summary"]["spearman"]
    assert runs["single"].data.metrics["agreement"] == table["value"]
    assert runs["single"].data.tags["mlflow.parentRunId"] == own.info.run_id


# --- in the browser ---


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@needs_browser
def test_the_pages_open_without_a_complaint(store: Path, browser: Browser) -> None:
    compiled = export_of(store) / "report"
    compared = store.parent / "table-report"
    for file, data in ((f"{compiled}.html", compiled), (f"{compared}.html", compared)):
        page = browser.open(Path(file), width=390, height=800)
        assert page.complaints == []
        assert page.requests == [Path(file).resolve().as_uri()]
        assert page.value("document.documentElement.scrollWidth") <= 390
        sections = page.value("document.querySelectorAll('main > section').length")
        assert page.value("document.querySelectorAll('nav a').length") == sections
        items = len(kept(Path(f"{data}.json"))["debates"]["items"])
        assert page.value("document.querySelector('.count').textContent") == f"{items} of {items}"
