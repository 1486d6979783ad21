"""The reports of a compile and of a comparison: where they lie and what they hold."""

from __future__ import annotations

import json
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


def embedded(page: Path) -> dict[str, Any]:
    """The debates and texts that a page's script shows."""
    data = page.read_text().partition('id="data">')[2].partition("</script>")[0]
    content: dict[str, Any] = json.loads(data)
    return content


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
    assert names == set()


def test_texts_are_in_the_store_and_the_exports_page_and_neither_in_its_run_nor_in_what_is_shared(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export, run_id = export_of(store), read(store.parent / "compiled.json")["run_id"]
    assert [file.name for file in quoting(store, export)] == ["report.html"]
    files = [file.relative_to(store) for file in quoting(store, store)]
    places = {file.name if file.parts[0] == "artifacts" else file.parts[0] for file in files}
    # An LM's replies may quote texts; those of the stand-in do not.
    assert places - {"replies"} == {"exports"}
    artifacts = store / "artifacts" / run_id / "artifacts"
    assert report.main([str(export), "--share"]) == 0
    shared = Path(capsys.readouterr().out.strip())
    for page in (artifacts / "report.html", shared):
        text = page.read_text()
        assert "quotes no text" in text
        assert not any(quoted in text for quoted in (*texts_of(store), "remark on"))


def test_the_report_says_what_the_compile_printed_and_its_run_has_the_page_to_share(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export, result = export_of(store), read(store.parent / "compiled.json")
    page = (export / "report.html").read_text()
    value = result["held_out"]["compiled"]["average"]["summary"]["spearman"]["value"]
    assert f">{value:.2f} <span" in page
    assert str(store) not in page
    assert embedded(export / "report.html")["texts"]["sources"]
    addresses = {str(export): "report.html", result["run_id"]: "report-share.html"}
    for address, name in addresses.items():
        assert report.main([address, "--store", str(store)]) == 0
        assert Path(capsys.readouterr().out.strip()).read_bytes() == (export / name).read_bytes()


def test_a_comparison_leaves_its_report_beside_its_table(store: Path) -> None:
    assert "remark on" in (store.parent / "table-report.html").read_text()
    debates = embedded(store.parent / "table-report.html")["debates"]
    judges = [(judge["name"], judge["on_scale"]) for judge in debates["judges"]]
    assert judges == [("single", True), ("rouge-l", False), (export_of(store).name, True)]
    # A metric makes no call.
    assert {tuple(outcome["stop"] for outcome in item["outcomes"][:2]) for item in debates["items"]} == {
        ("single call", "metric")
    }
