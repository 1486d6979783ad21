"""FairEval (Wang et al. 2023): open questions with the answers of two LMs, compared by three people.

Location: the GitHub repository i-Eval/FairEval: question.jsonl, answer/answer_gpt35.jsonl,
answer/answer_vicuna-13b.jsonl and review/review_gpt35_vicuna-13b_human.txt, 80 questions. It has no licence, so it must
not be redistributed. A local copy is a folder with these files, with or without the two subfolders. Records look like
this (made up):

    {"question_id": 1, "text": "How do I mend a plough?", "category": "generic"}
    {"question_id": 1, "text": "Take it to a smith.", "answer_id": "…", "model_id": "…"}

and line i of the review is the majority's label for question i: CHATGPT, VICUNA13B or TIE.

A group is a question, which keeps its category, with its two answers. The better answer is rated 1 and the other 0; in
a tie both have 0.5. These are outcomes of a comparison and not grades of a single answer. So the definition describes
the ends and the middle of any scale: 0 to 1 for answers one by one, 1 to 10 side by side (`programs.chateval`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files import reading
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, Corpus, Origin, RatedGroup, Task
from debate_judge.data.sets import hub
from debate_judge.data.tasks import PAIRS

COMMIT = "453c117a69159fd7b7de2f4e0519bac57bee21f4"
BASE_URL = f"https://raw.githubusercontent.com/i-Eval/FairEval/{COMMIT}/"
REVIEW = "review/review_gpt35_vicuna-13b_human.txt"
SYSTEMS: Mapping[str, str] = {"gpt35": "answer/answer_gpt35.jsonl", "vicuna-13b": "answer/answer_vicuna-13b.jsonl"}
"""Candidate id -> file of its answers."""

OUTCOMES: Mapping[str, tuple[float, float]] = {"CHATGPT": (1.0, 0.0), "VICUNA13B": (0.0, 1.0), "TIE": (0.5, 0.5)}
"""Label -> ratings of the two candidates: 1 a win, 0 a loss, 0.5 a tie."""

TASK = Task("open-questions", "question", "answer", PAIRS.aspects)


def load(path: str | Path | None = None) -> Corpus:
    """Load the set from a local copy, or download it."""
    folder = None if path is None else Path(path)
    if folder is not None and not folder.is_dir():
        raise InputError("not a folder", file=folder, expected="the folder with question.jsonl and the other files")
    questions = _records(folder, "question.jsonl")
    answers = {system: _by_question(_records(folder, file)) for system, file in SYSTEMS.items()}
    labels = _labels(folder)
    if not questions:
        raise InputError("no questions in the file", file=path, field="question.jsonl")
    if len(labels) != len(questions):
        file = BASE_URL + REVIEW if folder is None else _file(folder, REVIEW)
        expected, found = f"{len(questions)} lines, one per question", f"{len(labels)} lines"
        raise InputError("the labels do not fit the questions", file=file, expected=expected, found=found)
    _by_question(questions)
    groups = tuple(_group(record, answers, label) for record, label in zip(questions, labels, strict=True))
    origin = Origin("faireval", BASE_URL, COMMIT) if folder is None else Origin("faireval", str(folder))
    return Corpus(TASK, groups, origin)


def _group(question: Record, answers: Mapping[str, Mapping[str, Record]], label: Record) -> RatedGroup:
    name = question.identifier("question_id")
    outcome = OUTCOMES[label.choice("label", OUTCOMES)]
    candidates = []
    for (system, answer), rating in zip(answers.items(), outcome, strict=True):
        if name not in answer:
            raise question.error(f"no answer of {system} to question {name}", "question_id")
        candidates.append(Candidate(system, answer[name].text("text"), {TASK.aspects[0].name: (rating,)}))
    category = question.optional_text("category")
    return RatedGroup(name, question.text("text"), tuple(candidates), category=category)


def _by_question(records: list[Record]) -> dict[str, Record]:
    by_question: dict[str, Record] = {}
    for record in records:
        name = record.identifier("question_id")
        if name in by_question:
            problem = f"question {name} occurs twice, also in line {by_question[name].line}"
            raise record.error(problem, "question_id")
        by_question[name] = record
    return by_question


def _file(folder: Path, name: str) -> Path:
    """The file in its subfolder if that exists, else in the folder itself."""
    return folder / name if (folder / name).exists() else folder / Path(name).name


def _records(folder: Path | None, name: str) -> list[Record]:
    if folder is None:
        return hub.fetch("faireval", hub.RemoteSet(BASE_URL + name, COMMIT, ("question_id", "text")))
    return list(reading.jsonl(_file(folder, name)))


def _labels(folder: Path | None) -> list[Record]:
    """The lines of the review, each as a record with one field."""
    if folder is None:
        import datasets

        location = BASE_URL + REVIEW
        with hub.fetch_errors("faireval", location):
            lines = [str(line) for line in datasets.load_dataset("text", data_files=location, split="train")["text"]]
    else:
        location = str(_file(folder, REVIEW))
        lines = [line for _, line in reading.lines(Path(location))]
    while lines and not lines[-1].strip():
        lines.pop()
    return [Record({"label": line}, location, number) for number, line in enumerate(lines, 1)]
