"""Files of ratings as people have them: one step gives the right figures, or two, if a question has to be answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import xlsxwriter

from debate_judge.data.corpus_statistics import corpus_statistics
from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import detect_format
from debate_judge.data.files.groups import load
from debate_judge.data.schema import Corpus
from debate_judge.data.tasks import read_task
from debate_judge.runs.draft import Draft, draft_mapping
from tests.data.files_of_rows import written

CASES = Path(__file__).parents[3] / "shared" / "cases" / "files"
Rows = Sequence[dict[str, Any]]


class Read(NamedTuple):
    """What is checked of a corpus."""

    texts: int
    means: dict[str, float]
    """Aspect -> mean of all ratings; of pairs, the share of comparisons that the first text wins, ties being half."""
    raters: int = 1


def read(path: Path | str, folder: Path, *answers: str) -> tuple[Draft, Corpus]:
    """The draft of a file, and its corpus after each answer, a line of the drafted task file, was chosen."""
    draft = draft_mapping(detect_format(path), ColumnNames(), "task")
    toml = draft.toml()
    for line in answers:
        assert f"# {line}" in toml, toml
        toml = toml.replace(f"# {line}", line, 1)
    (folder / "task.toml").write_text(toml)
    return draft, load(path, read_task(folder / "task.toml"))


def figures(corpus: Corpus) -> Read:
    statistics = corpus_statistics(corpus)
    pairs = {a.name for a in corpus.task.aspects if any(group.is_pair(a) for group in corpus.groups)}
    means = {a.aspect.name: round(a.mean, 3) for a in statistics.aspects}
    for name in pairs:
        first = [value for group in corpus.groups for value in group.candidates[0].ratings.get(name, ())]
        means[name] = round(sum(first) / len(first), 3)
    return Read(statistics.candidates, means, max(a.raters[1] for a in statistics.aspects))


def said(n: int, words: int = 7) -> str:
    """The n-th of several different texts."""
    names = ["ash", "birch", "cedar", "dune", "elm", "fern", "gorse", "heath", "iris", "juniper", "kelp", "larch"]
    return " ".join(names[(n * (k + 3) + k * k) % len(names)] for k in range(words)).capitalize() + f" {n}."


# --- kinds of files, with invented rows ---


def table(count: int, row: Callable[[int], dict[str, Any]]) -> Rows:
    return [row(n) for n in range(count)]


def by_raters(count: int, row: Callable[[int, int], dict[str, Any]], column: str = "WorkerId") -> Rows:
    return [{column: who, **row(n, k)} for n in range(count) for k, who in enumerate("ab")]


def pair(n: int, **more: Any) -> dict[str, Any]:
    return {"prompt": said(n), "response_a": said(20 + n), "response_b": said(50 + n), **more}


def reply(n: int, **more: Any) -> dict[str, Any]:
    return {"query": said(n), "reply": said(20 + n), **more}


def hit(n: int, _: int) -> dict[str, Any]:
    asked = {f"Input.ask{i}": said(10 * n + i) for i in (1, 2)}
    replies = {f"Input.reply{i}": said(100 + 10 * n + i) for i in (1, 2)}
    return {**asked, **replies, "Answer.mark1": 1 + n, "Answer.mark2": 5 - n}


def side_by_side(n: int) -> dict[str, Any]:
    texts = {"article": said(n, 20), "summary_tea": said(40 + n), "summary_oak": said(80 + n)}
    return {**texts, "tea_clarity": 2, "oak_clarity": 4}


def words(n: int) -> dict[str, Any]:
    stars = "★" * (1 + n % 3) + "☆" * (2 - n % 3)
    clear, safe = ("Poor", "Good", "Fair")[n % 3], ("Yes", "No", "Unsure")[n % 3]
    return reply(n, clear=clear, useful=f"{1 + n % 5} - level", stars=stars, safe=safe)


def ticked(n: int, k: int) -> dict[str, Any]:
    ticks = {f"Answer.tone.{v}": str(v == 1 + (n + k) % 3).lower() for v in (1, 2, 3)}
    return {"AssignmentStatus": ("Approved", "Rejected")[n == 3], "Input.text": said(n), **ticks}


def one_hot(n: int) -> dict[str, Any]:
    sides = ("model_a", "model_b", "tie")
    listed = {name: json.dumps([text]) for name, text in pair(n).items()}
    return listed | {f"winner_{side}": int(side == sides[n % 3]) for side in sides}


def nested(n: int) -> dict[str, Any]:
    def question(k: int) -> dict[str, Any]:
        answers = {
            s: {"text": said(100 + 4 * n + 2 * k + (s == "t5")), "score": 1 + (n + k) % 5} for s in ("bart", "t5")
        }
        return {"question": said(40 + 2 * n + k), **answers}

    return {"passage": said(n, 15), "questions": [question(0), question(1)]}


def of_raters_and_aspects(n: int) -> dict[str, Any]:
    ratings = {w: {"fluency": 1 + (n + k) % 5, "truth": n % 2} for k, w in enumerate(("ada", "ben"))}
    return {"question": said(n), "answer": said(30 + n), "ratings": ratings}


def standardized(n: int) -> dict[str, Any]:
    texts = {"original": said(n), "simplified": said(30 + n)}
    return {**texts, "fluency": 10.5 * (n + 1), "fluency_zscore": (n - 3) / 2.25}


def annotated(n: int) -> dict[str, Any]:
    return {"dialogue": said(n, 12), "summary": said(30 + n), "annotations": [{"clear": 2}, {"clear": 5}]}


def coded(n: int) -> dict[str, Any]:
    texts = {"prompt": said(n), "response 1": said(20 + n), "response 2": said(50 + n)}
    return {**texts, "label": (0, 0, 1, 2)[n % 4]}


def arrows(n: int) -> dict[str, Any]:
    texts = {"Q": said(n), "text_a": said(20 + n), "text_b": said(50 + n)}
    return {**texts, "vote": ("A>B", "B>A", "B>>A", "A=B")[n % 4]}


def by_criterion(n: int, k: int) -> dict[str, Any]:
    criterion, score = (("tone", n // 2 + 2), ("truth", 10 * (n // 2 + 3)))[n % 2]
    rated = {"criterion": criterion, "score": score, "rationale": f"because {n // 2}"}
    return {"question": f"q{n // 2}", "answer": f"a{n // 2}", **rated}


CODED, TICKED = table(8, coded), by_raters(6, ticked)
MISSING = table(12, lambda n: reply(n, warm=(1, 3, 5, 99)[n % 4], kind=(2, 4, -1, 5)[n % 4]))
CODES, APPROVED = 'codes = {0 = "a", 1 = "b", 2 = "tie"}', 'keep = {AssignmentStatus = "Approved"}'
WORDS = Read(12, {"clear": 2.0, "useful": 2.75, "stars": 2.0, "safe": 0.5})
LETTERS = [
    {"prompt": said(n), "reply": said(20 + n), "Rater A - tone": 1 + n % 3, "Rater B - tone": 2} for n in range(6)
]
CHOSEN = [
    {"prompt": said(n), "chosen": said(20 + n), "chosen_model": "a", "rejected": said(50 + n), "rejected_model": "b"}
    for n in range(6)
]

KINDS: dict[str, tuple[str, Rows, Sequence[str], Read]] = {
    "raters with letters": ("letters.csv", LETTERS, (), Read(6, {"tone": 2.0}, 2)),
    "verdicts as arrows": ("a.csv", table(8, arrows), (), Read(16, {"preference": 0.375})),
    "and of aspects": ("a.jsonl", table(6, of_raters_and_aspects), (), Read(6, {"fluency": 2.75, "truth": 0.5}, 2)),
    "several texts in a row": ("a.csv", by_raters(4, hit), (), Read(8, {"mark": 3.0}, 2)),
    "systems side by side": ("a.csv", table(6, side_by_side), (), Read(12, {"clarity": 3.0})),
    "a row for each rating": (
        "a.csv",
        by_raters(6, by_criterion, "annotator"),
        (),
        Read(3, {"tone": 3.0, "truth": 40.0}, 2),
    ),
    "verdicts as codes": ("a.jsonl", CODED, [CODES], Read(16, {"preference": 0.625})),
    "words of a scale": ("a.csv", table(12, words), (), WORDS),
    "a column for each value": ("a.csv", TICKED, (), Read(6, {"tone": 2.0}, 2)),
    "rejected records": ("a.csv", TICKED, [APPROVED], Read(5, {"tone": 2.1}, 2)),
    "a column for each winner": ("a.csv", table(9, one_hot), (), Read(18, {"preference": 0.5})),
    "standardized copies": ("a.csv", table(8, standardized), (), Read(8, {"fluency": 47.25})),
    "codes for no rating": ("a.csv", MISSING, (), Read(12, {"warm": 3.0, "kind": 3.667})),
    "records inside of records": ("a.jsonl", table(6, nested), (), Read(24, {"score": 2.75})),
    "a list of annotations": ("a.jsonl", table(6, annotated), (), Read(6, {"clear": 3.5}, 2)),
}


@pytest.mark.parametrize(("name", "rows", "answers", "expected"), KINDS.values(), ids=KINDS)
def test_a_kind_of_file_is_read_in_two_steps(
    tmp_path: Path, name: str, rows: Rows, answers: Sequence[str], expected: Read
) -> None:
    draft, corpus = read(written(tmp_path / name, *rows), tmp_path, *answers)
    assert figures(corpus) == expected
    assert draft.is_open == (rows is CODED)


def test_a_column_beside_chosen_and_rejected_is_no_verdict(tmp_path: Path) -> None:
    draft, corpus = read(written(tmp_path / "chosen.jsonl", CHOSEN), tmp_path)
    assert (draft.built_in, len(corpus.groups), draft.questions) == ("pairs", 6, [])


def test_a_file_that_needs_an_answer_is_not_read_without_it(tmp_path: Path) -> None:
    path = written(tmp_path / "coded.jsonl", *CODED)
    with pytest.raises(InputError, match="may mean any text"):
        read(path, tmp_path)


def test_the_best_of_several_texts_is_no_rating(tmp_path: Path) -> None:
    rows = [
        {"prompt": said(n), **{f"reply_{i}": said(20 * i + n) for i in (1, 2, 3)}, "best": 1 + n % 3} for n in range(6)
    ]
    with pytest.raises(InputError, match="best of several texts"):
        read(written(tmp_path / "a.jsonl", *rows), tmp_path)


def test_ratings_and_texts_of_two_files_are_joined(tmp_path: Path) -> None:
    scores = [{"id": f"d{n}", "system": s, "Factual": n % 2} for n in range(6) for s in "ab"]
    texts = [
        {"id": f"d{n}", "system": s, "document": said(n, 20), "summary": said(50 + 2 * n + (s == "b"))}
        for n in range(6)
        for s in "ab"
    ]
    first, second = written(tmp_path / "scores.jsonl", *scores), written(tmp_path / "texts.jsonl", *texts)
    with pytest.raises(InputError, match=r"scores.jsonl\+.*texts.jsonl"):
        read(first, tmp_path)
    assert figures(read(f"{first}+{second}", tmp_path)[1]) == Read(12, {"Factual": 0.5})


def sheets(path: Path, **contents: list[list[Any]]) -> Path:
    with xlsxwriter.Workbook(path) as book:
        for name, rows in contents.items():
            sheet = book.add_worksheet(name)
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
    return path


@pytest.mark.integration
def test_sheets_are_raters_or_are_joined(tmp_path: Path) -> None:
    header, texts = ["Question", "Answer"], [[said(n), said(20 + n)] for n in range(6)]
    rated = {who: [[*header, "Useful (1-5)"], *([*row, 1 + k + n % 3] for n, row in enumerate(texts))]
             for k, who in enumerate(("Ann", "Ben"))}  # fmt: skip
    draft, corpus = read(sheets(tmp_path / "a.xlsx", **rated), tmp_path)
    assert (figures(corpus), draft.roles["rater"]) == (Read(6, {"Useful": 2.5}, 2), "sheet")
    keyed = [["id", *header], *([n, *row] for n, row in enumerate(texts))]
    ratings = [["id", "Useful"], *([n, 1 + n % 3] for n in range(6))]
    _, corpus = read(sheets(tmp_path / "b.xlsx", texts=keyed, ratings=ratings), tmp_path)
    assert figures(corpus) == Read(6, {"Useful": 2.0})


def test_an_empty_text_is_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = table(8, lambda n: pair(n, winner="ab"[n % 2]) | ({"response_a": ""} if n == 3 else {}))
    draft, corpus = read(written(tmp_path / "a.jsonl", *rows), tmp_path)
    assert len(corpus.groups) == 7
    assert draft.settings["empty"] == "skip"
    assert "1 records without a text are left out" in caplog.text


def test_the_error_for_names_that_are_not_ours_names_all_and_a_command(tmp_path: Path) -> None:
    rows = [{"question": said(n), "answer": said(20 + n), "annotator": "x", "tone": 3} for n in range(3)]
    path = written(tmp_path / "a.csv", *rows)
    with pytest.raises(InputError, match="text=answer,source=question,rater=annotator") as caught:
        load(path, "summarization")
    assert f"debate check {path}" in str(caught.value)


# --- the cases that were found with public files, where they are present ---

SHARED = [
    ("01-yes-no-several-raters/safe.csv", (), Read(24, {"safe": 0.764}, 3)),
    ("02-mturk-several-texts-per-hit/batch.csv", (), Read(40, {"pair": 3.075}, 3)),
    ("03-pairs-label-0-1-2/pairs.jsonl", ['codes = {0 = "a", 1 = "b", 2 = "tie"}'], Read(80, {"preference": 0.55})),
    ("06-systems-side-by-side/wide.csv", (), Read(60, {"fluency": 2.9, "relevance": 2.867})),
    ("12-candidate-advice-contradicts/events.csv", (), Read(20, {"Fluent": 2.95, "Coherence": 2.867}, 3)),
    ("13-pairs-with-other-names/pairwise.csv", (), Read(40, {"fluency": 0.588, "meaning": 0.537}, 2)),
    ("14-arena-conversations/arena.jsonl", (), Read(40, {"preference": 0.525}, 2)),
    ("15-one-empty-output/pairs.jsonl", (), Read(58, {"preference": 0.414})),
    ("17-object-keyed-by-id/evals.json", (), Read(20, {"score": 3.55})),
    ("19-likert-strings/likert.csv", (), Read(30, {"helpful": 3.333, "clear": 2.5, "stars": 3.033, "fluency": 2.933})),
    ("20-one-hot-radio-buttons/batch.csv", (), Read(20, {"fluency": 3.0}, 3)),
    ("21-one-hot-winners/arena.csv", (), Read(60, {"preference": 0.55})),
    ("22-zscores-joined-as-raters/da.csv", (), Read(30, {"fluency": 65.112, "meaning": 55.791})),
    ("25-ratings-without-texts/scores.jsonl+25-ratings-without-texts/texts.jsonl", (), Read(20, {"Factuality": 0.45})),
]


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases of public files are not part of the project")
@pytest.mark.parametrize(("names", "answers", "expected"), SHARED, ids=[row[0][:30] for row in SHARED])
def test_a_case_gives_the_figures_of_its_note(
    tmp_path: Path, names: str, answers: Sequence[str], expected: Read
) -> None:
    path = "+".join(str(CASES / name) for name in names.split("+"))
    assert figures(read(path, tmp_path, *answers)[1]) == expected
