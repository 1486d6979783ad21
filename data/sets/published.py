"""Published rated sets: where each one is, what its records look like, and how they become groups.

A set is downloaded through `datasets`, which caches it, at a fixed revision, or read from a local copy. Records below
are made up. Groups that share a source are merged: otherwise a source could be both trained on and tested on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

from debate_judge.data.errors import InputError
from debate_judge.data.files import formats
from debate_judge.data.files.records import Record, ratings_in
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.data.tasks import ANSWERS, CLAIMS, DIALOGUE, FACTUALITY, PAIRS, REPLIES, SUMMARIES, SUMMARIZATION


class Remote(NamedTuple):
    """The home of a set, pinned to a revision."""

    address: str
    """A data set of the Hugging Face hub, or the URL of a JSON file."""
    revision: str
    """Commit; that of a URL is part of the URL, too."""
    columns: tuple[str, ...]
    """Columns that are read; checked, because the set can change upstream."""
    split: str = "train"


def _github(repository: str, commit: str, file: str, columns: str) -> Remote:
    address = f"https://raw.githubusercontent.com/{repository}/{commit}/{file}"
    return Remote(address, commit, tuple(columns.split()))


_UNIEVAL = ("maszhongming/UniEval", "9d9b51dc716f40f6b454a4455c7fe2f843aabfbb")
_HALUEVAL = ("RUCAIBox/HaluEval", "b7253db3cdaa0ab2c382f92b26b390109174f77e")
_FACTOOL = ("GAIR-NLP/factool", "3f3914bc090b644be044b7e0005113c135d8b20f")
_CHAT, _QAGS = "source system_id system_output context scores", "doc_id system_id source system_output scores"
_QUESTIONS = "knowledge question right_answer hallucinated_answer"
_REPLIES = "knowledge dialogue_history right_response hallucinated_response"
_DOCUMENTS = "document right_summary hallucinated_summary"
_ASPECTS = tuple(aspect.name for aspect in SUMMARIZATION.aspects)

REMOTES: dict[str, Remote] = {
    "summeval": Remote(
        "mteb/summeval",
        "bfc121155064afa2d81b5505682ffc0d96f4334c",
        ("id", "text", "machine_summaries", "human_summaries", *_ASPECTS),
        split="test",
    ),
    "topical_chat": _github(*_UNIEVAL, "reproduce/data/dialogue/topical_chat.json", _CHAT),
    "qags": _github(*_UNIEVAL, "reproduce/data/fact/qags_cnndm.json", _QAGS),
    "qags_xsum": _github(*_UNIEVAL, "reproduce/data/fact/qags_xsum.json", _QAGS),
    "halueval": _github(*_HALUEVAL, "data/qa_data.json", _QUESTIONS),
    "halueval_dialogue": _github(*_HALUEVAL, "data/dialogue_data.json", _REPLIES),
    "halueval_summarization": _github(*_HALUEVAL, "data/summarization_data.json", _DOCUMENTS),
    "factool": _github(*_FACTOOL, "datasets/knowledge_qa/knowledge_qa.jsonl", "prompt response claims label"),
}


def load(path: str | Path | None, name: str) -> Corpus:
    """Load the set of this name, a key of `SETS`, from a local copy, or download it.

    Raises:
        InputError: The copy cannot be used, the download failed, or the set has changed upstream.
    """
    return SETS[name](None if path is None else Path(path), name)


# --- records of a set ---


def _read(name: str, path: Path | None, home: str = "", *, other_layouts: bool = False) -> tuple[list[Record], Origin]:
    """All records of a set and where they come from.

    Args:
        name: The set.
        path: A local copy, JSON lines or a JSON array; None to download it.
        home: The key of its remote; by default its name.
        other_layouts: Whether the records of a copy may lack the columns of the remote set.
    """
    remote = REMOTES[home or name]
    if path is None:
        return _fetched(name, remote), Origin(name, remote.address, remote.revision)
    records = list(formats.json_records(path))
    if not records:
        raise InputError("no records in the file", file=path, expected="records with " + ", ".join(remote.columns))
    for record in records if not other_layouts else ():
        record.require(*remote.columns)
    return records, Origin(name, str(path))


def _fetched(name: str, remote: Remote) -> list[Record]:
    """All rows of a downloaded set; a record's line is its row number from 1."""
    import datasets

    with _fetch_errors(name, remote.address):
        if remote.address.startswith("https://"):
            rows = datasets.load_dataset("json", data_files=remote.address, split=remote.split)
        else:
            rows = datasets.load_dataset(remote.address, split=remote.split, revision=remote.revision)
    if missing := [column for column in remote.columns if column not in rows.column_names]:
        raise InputError(
            f"the data set {name} has changed upstream: it lacks " + ", ".join(missing),
            file=remote.address,
            found="columns " + ", ".join(rows.column_names),
            remedy=f"provide a copy in the earlier layout with --data {name}=PATH",
        )
    return [Record(row, remote.address, number) for number, row in enumerate(rows, start=1)]


@contextmanager
def _fetch_errors(name: str, address: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # The library has no common base class: OSError, httpx and its own errors all occur.
        raise InputError(
            f"the data set {name} cannot be fetched ({type(error).__name__})",
            file=address,
            remedy=f"check the network, or give a local copy with --data {name}=PATH",
        ) from error


def _merged(
    groups: Iterable[tuple[Record, RatedGroup]], id_field: str = "", *, strict: bool = False
) -> tuple[RatedGroup, ...]:
    """Groups with equal sources (whitespace aside) as one, in order of first appearance.

    Different contexts are joined by line breaks, candidates whose id already exists get a number (right, right-2), and
    equal candidates are not repeated.

    Args:
        groups: Each with its record, for errors.
        id_field: Field of the groups' ids, for the error where two sources have the same.
        strict: Refuse a second candidate with an id, and a second context.
    """
    by_source: dict[str, RatedGroup] = {}
    owners: dict[str, tuple[int, str]] = {}
    for record, group in groups:
        key = group.source_key
        line, owner = owners.setdefault(group.id, (record.line, key))
        if owner != key:
            problem = f"a second source for the group {group.id!r}"
            raise record.error(problem, id_field, found=f"the id of line {line}")
        known = by_source.get(key)
        ids = {c.id for c in known.candidates} & {c.id for c in group.candidates} if known else ()
        if strict and known and (ids or known.context != group.context):
            expected = "one candidate of a name and one context for each source"
            raise record.error("a record contradicts an earlier one of its source", expected=expected, found=group.id)
        by_source[key] = _merge(known, group) if known else group
    return tuple(by_source.values())


def _merge(first: RatedGroup, second: RatedGroup) -> RatedGroup:
    contexts = dict.fromkeys(text for text in (first.context, second.context) if text)
    context = first.context if second.context in first.context else "\n".join(contexts)
    candidates = {candidate.id: candidate for candidate in first.candidates}
    for candidate in second.candidates:
        for name in chain([candidate.id], (f"{candidate.id}-{number}" for number in count(2))):
            known = candidates.setdefault(name, replace(candidate, id=name))
            if (known.text, known.ratings) == (candidate.text, candidate.ratings):
                break
    references = tuple(dict.fromkeys((*first.references, *second.references)))
    return replace(first, context=context, candidates=tuple(candidates.values()), references=references)


def _stripped(record: Record, name: str) -> str:
    return record.text(name).rstrip("\r\n")


# --- UniEval's layout (Zhong et al. 2022), in which several sets are distributed: a record for each output ---
#
# {"source": "…", "system_id": "…", "system_output": "…", "context": "…", "reference": "…", "doc_id": "…",
#  "scores": {"coherence": 2.67}}; context, reference and doc_id occur in some sets only.

NO_FACT = "_nofact"
"""The context in Topical-Chat's records without a fact."""


def _of_outputs(records: Iterable[Record], task: Task, *, strict: bool = True) -> tuple[RatedGroup, ...]:
    """The groups of such records; the id of one is its `doc_id`, or else its number from 1."""
    numbers: dict[str, int] = {}

    def group(record: Record) -> RatedGroup:
        source, scores = _stripped(record, "source"), record.child("scores")
        number = numbers.setdefault(" ".join(source.split()), len(numbers) + 1)
        name = record.identifier("doc_id") if "doc_id" in record.values else str(number)
        ratings = ratings_in(scores, task, scores.values)
        candidate = Candidate(record.identifier("system_id"), _stripped(record, "system_output"), ratings)
        context, reference = (record.optional_text(field).rstrip("\r\n") for field in ("context", "reference"))
        references = (reference,) if reference else ()
        return RatedGroup(name, source, (candidate,), "" if context == NO_FACT else context, references)

    return _merged(((record, group(record)) for record in records), "doc_id", strict=strict)


# --- SummEval (Fabbri et al. 2021): 100 news articles with 16 summaries each, means of three experts from 1 to 5 ---
#
# {"id": "dm-test-0a1b2c", "text": "The town of Elm has bought a second snow plough …",
#  "machine_summaries": ["The town has bought a plough .", "A plough ."], "human_summaries": ["Elm buys …"],
#  "coherence": [4.67, 1.0], "consistency": [5.0, 5.0], "fluency": [5.0, 2.33], "relevance": [4.33, 2.0]}
#
# The hub does not name the systems: candidates are numbered from 1 in the record's order, and a number need not mean
# the same system in every article. A copy with `model_ids` has the systems' names.


def _summeval(path: Path | None, name: str) -> Corpus:
    records, origin = _read(name, path, other_layouts=True)
    if "system_output" in records[0].values:
        return Corpus(SUMMARIZATION, _of_outputs(records, SUMMARIZATION), origin)
    return Corpus(SUMMARIZATION, _merged(((record, _article(record)) for record in records), "id"), origin)


def _article(record: Record) -> RatedGroup:
    record.require(*REMOTES["summeval"].columns)
    summaries = record.texts("machine_summaries")
    ids = record.texts("model_ids") or tuple(str(number) for number in range(1, len(summaries) + 1))
    for name, values in [("model_ids", set(ids)), *((aspect, record.items(aspect)) for aspect in _ASPECTS)]:
        if len(values) != len(summaries):
            expected, found = f"{len(summaries)} values, one per summary", f"{len(values)} values"
            raise record.error(f"{name} does not fit the summaries", name, expected=expected, found=found)
    rated = ratings_in(record, SUMMARIZATION, _ASPECTS)
    candidates = (
        Candidate(id_, text.rstrip("\r\n"), {aspect: (values[i],) for aspect, values in rated.items()})
        for i, (id_, text) in enumerate(zip(ids, summaries, strict=True))
    )
    return RatedGroup(
        record.identifier("id"),
        _stripped(record, "text"),
        tuple(candidates),
        references=record.texts("human_summaries"),
    )


# --- Topical-Chat with the ratings of USR (Mehri and Eskenazi 2020): 60 dialogues with 6 replies each ---
#
# {"source": "do you like chess ? \n i do . the longest game took 269 moves . \n\n",
#  "system_id": "Nucleus Decoding (p = 0.3)", "system_output": "wow , that must have taken all day .\n",
#  "context": "the longest tournament game of chess was played in belgrade in 1989 .\n",
#  "scores": {"understandability": 1.0, "naturalness": 2.6666666667, "coherence": 3.0, "overall": 3.6666666667, …}}
#
# The dialogues are under CDLA-Sharing-1.0, which binds those who pass them on. The actual reply is among the candidates
# as the system "Original Ground Truth"; it is rated like the others and not used as a reference.

_REPORTED = ("naturalness", "coherence", "engagingness", "groundedness")
"""The aspects in the tables of UniEval, G-Eval and DEBATE; understandability and overall are rated as well."""


def _topical_chat(path: Path | None, name: str) -> Corpus:
    records, origin = _read(name, path)
    return Corpus(DIALOGUE, _of_outputs(records, DIALOGUE), origin, _REPORTED)


# --- QAGS (Wang et al. 2020): 235 summaries of CNN/DM and 239 of XSum articles, rated for factual consistency ---
#
# {"doc_id": 0, "system_id": 0, "source": "The town of Elm has bought a plough .", "reference": "The town of …",
#  "system_output": "Elm has sold a plough .", "scores": {"consistency": 0.0}}
#
# Three raters said of every sentence whether the article supports it; the rating is the share of sentences that the
# majority holds supported. Nearly every article has one summary, so agreement exists at sample level only. The article
# under `reference` is no reference.

SUMMARY_CONSISTENCY = Task(
    name="summary-consistency",
    source_label="news article",
    candidate_label="summary",
    aspects=(
        Aspect(
            "consistency",
            "How much of the summary the article supports. Check it sentence by sentence: a sentence counts as "
            "supported only if everything in it, names, numbers and who did what included, can be found in the "
            "article. 1 means every sentence is supported, 0 none, and values between are the share that is. Style and "
            "omissions do not count.",
            Scale(0, 1),
        ),
    ),
)


def _qags(path: Path | None, name: str) -> Corpus:
    records, origin = _read(name, path)
    # Articles that differ in blanks only, or were drawn twice, have several records.
    groups = _of_outputs(records, SUMMARY_CONSISTENCY, strict=False)
    return Corpus(SUMMARY_CONSISTENCY, tuple(replace(group, references=()) for group in groups), origin)


# --- HaluEval (Li et al. 2023): 10,000 answers, replies and summaries each, right or deliberately hallucinated ---
#
# {"knowledge": "Elm lies on the Ash.", "question": "On which river is Elm?", "right_answer": "The Ash",
#  "hallucinated_answer": "Elm lies on the Oak."}
# {"knowledge": "Elm lies on the Ash.", "dialogue_history": "[Human]: Do you know Elm?",
#  "right_response": "Yes, on the Ash.", "hallucinated_response": "Yes, on the Oak."}
# {"document": "The town of Elm …", "right_summary": "Elm buys …", "hallucinated_summary": "Elm sells …"}
#
# A group is a question, dialogue history or document with its right and its hallucinated candidate. The sampled copies,
# with one text and `"hallucination": "yes"` or `"no"`, are read too.

_HALUEVAL_PARTS: Mapping[str, tuple[Task, str, str]] = {
    "halueval": (ANSWERS, "question", "answer"),
    "halueval_dialogue": (REPLIES, "dialogue_history", "response"),
    "halueval_summarization": (SUMMARIES, "document", "summary"),
}
"""Part -> its task, and the fields of its source and its output."""


def _halueval(path: Path | None, name: str, drawn: int | None = None) -> Corpus:
    """A part; of a copy called `halueval` the part is known by its fields.

    Sun et al. (2024, section 4.1.1) draw 150 answers, 150 replies and 50 summaries, each right or hallucinated by the
    toss of a coin. Their draw is not published: `drawn` makes one with a fixed seed, the same for everybody.
    """
    part = name.removesuffix("_drawn")
    records, origin = _read(name, path, part, other_layouts=True)
    if path is not None and part == "halueval":
        part = next((p for p, (_, source, _) in _HALUEVAL_PARTS.items() if source in records[0].values), part)
    task, source, output = _HALUEVAL_PARTS[part]
    groups = []
    for number, record in enumerate(records, 1):
        knowledge = record.optional_text("knowledge") if task is not SUMMARIES else ""
        candidates = _halueval_candidates(record, output)
        groups.append((record, RatedGroup(str(number), record.text(source), candidates, knowledge)))
    if drawn is not None:
        chance = random.Random(0)
        numbers = sorted(chance.sample(range(len(groups)), min(drawn, len(groups))))
        chosen = [groups[i] for i in numbers]
        groups = [(record, replace(g, candidates=(chance.choice(g.candidates),))) for record, g in chosen]
    return Corpus(task, _merged(groups), origin)


def _halueval_candidates(record: Record, output: str) -> tuple[Candidate, ...]:
    if "hallucination" in record.values:
        label = record.choice("hallucination", {"yes": "hallucinated", "no": "right"})
        return (_factual("right" if label == "no" else "hallucinated", record.text(output), label == "no"),)
    return tuple(_factual(kind, record.text(f"{kind}_{output}"), kind == "right") for kind in ("right", "hallucinated"))


def _factual(name: str, text: str, factual: bool) -> Candidate:
    return Candidate(name, text, {FACTUALITY.name: (1.0 if factual else 0.0,)})


# --- Factool's knowledge questions (Chern et al. 2023): 50 answers of an LM, labelled as a whole and claim by claim ---
#
# {"prompt": "On which river is Elm?", "response": "Elm is a town on the Oak.", "label": false,
#  "claims": [{"claim": "Elm is a town", "label": true}, {"claim": "Elm is on the Oak", "label": false}]}
#
# There is no knowledge besides the prompt. A group is a prompt with its one response, or with the claims in it.


def _factool(path: Path | None, name: str) -> Corpus:
    records, origin = _read(name, path, "factool", other_layouts=True)

    def candidates(record: Record) -> tuple[Candidate, ...]:
        if name == "factool":
            return (_factual("response", record.text("response"), record.boolean("label")),)
        claims = enumerate(record.children("claims"), 1)
        return tuple(_factual(str(n), claim.text("claim"), claim.boolean("label")) for n, claim in claims)

    groups = ((r, RatedGroup(str(n), r.text("prompt"), candidates(r))) for n, r in enumerate(records, 1))
    return Corpus(ANSWERS if name == "factool" else CLAIMS, _merged(groups), origin)


# --- FairEval (Wang et al. 2023): 80 open questions with the answers of two LMs, compared by three people ---
#
# {"question_id": 1, "text": "How do I mend a plough?", "category": "generic"}
# {"question_id": 1, "text": "Take it to a smith.", "answer_id": "…", "model_id": "…"}
#
# and line i of the review is the majority's label for question i: CHATGPT, VICUNA13B or TIE. It has no licence, so it
# must not be redistributed. A local copy is a folder with these files, with or without the two subfolders. Ratings are
# outcomes of a comparison and not grades of a single answer, so the definition describes the ends and the middle of any
# scale: 0 to 1 for answers one by one, 1 to 10 side by side (`programs.chateval`).

_FAIREVAL_COMMIT = "453c117a69159fd7b7de2f4e0519bac57bee21f4"
_FAIREVAL_URL = f"https://raw.githubusercontent.com/i-Eval/FairEval/{_FAIREVAL_COMMIT}/"
REVIEW = "review/review_gpt35_vicuna-13b_human.txt"
SYSTEMS: Mapping[str, str] = {"gpt35": "answer/answer_gpt35.jsonl", "vicuna-13b": "answer/answer_vicuna-13b.jsonl"}
"""Candidate id -> file of its answers."""

OUTCOMES: Mapping[str, tuple[float, float]] = {"CHATGPT": (1.0, 0.0), "VICUNA13B": (0.0, 1.0), "TIE": (0.5, 0.5)}
"""Label -> ratings of the two candidates: 1 a win, 0 a loss, 0.5 a tie."""

OPEN_QUESTIONS = Task("open-questions", "question", "answer", PAIRS.aspects)


def _faireval(path: Path | None, name: str) -> Corpus:
    if path is not None and not path.is_dir():
        raise InputError("not a folder", file=path, expected="the folder with question.jsonl and the other files")
    questions = _by_question(path, "question.jsonl")
    answers = {system: _by_question(path, file) for system, file in SYSTEMS.items()}
    labels = _labels(path)
    if not questions or len(labels) != len(questions):
        expected, found = "a line of the review for each question", f"{len(questions)} questions, {len(labels)} lines"
        raise InputError("the labels do not fit the questions", file=path, expected=expected, found=found)
    groups = []
    for (id_, question), label in zip(questions.items(), labels, strict=True):
        candidates = []
        for (system, answer), rating in zip(answers.items(), OUTCOMES[label.choice("label", OUTCOMES)], strict=True):
            if id_ not in answer:
                raise question.error(f"no answer of {system} to question {id_}", "question_id")
            candidates.append(Candidate(system, answer[id_].text("text"), {PAIRS.aspects[0].name: (rating,)}))
        category = question.optional_text("category")
        groups.append(RatedGroup(id_, question.text("text"), tuple(candidates), category=category))
    origin = Origin(name, _FAIREVAL_URL, _FAIREVAL_COMMIT) if path is None else Origin(name, str(path))
    return Corpus(OPEN_QUESTIONS, tuple(groups), origin)


def _by_question(folder: Path | None, file: str) -> dict[str, Record]:
    if folder is None:
        records = _fetched("faireval", Remote(_FAIREVAL_URL + file, _FAIREVAL_COMMIT, ("question_id", "text")))
    else:
        records = list(formats.jsonl(_in_folder(folder, file)))
    by_question: dict[str, Record] = {}
    for record in records:
        before = by_question.setdefault(record.identifier("question_id"), record)
        if before is not record:
            raise record.error("a question occurs twice", "question_id", found=f"the id of line {before.line}")
    return by_question


def _in_folder(folder: Path, file: str) -> Path:
    return folder / file if (folder / file).exists() else folder / Path(file).name


def _labels(folder: Path | None) -> list[Record]:
    """The lines of the review, each as a record with one field."""
    if folder is None:
        import datasets

        location = _FAIREVAL_URL + REVIEW
        with _fetch_errors("faireval", location):
            lines = [str(line) for line in datasets.load_dataset("text", data_files=location, split="train")["text"]]
    else:
        location = str(_in_folder(folder, REVIEW))
        lines = [line for _, line in formats.lines(Path(location))]
    while lines and not lines[-1].strip():
        lines.pop()
    return [Record({"label": line}, location, number) for number, line in enumerate(lines, 1)]


SETS: Mapping[str, Callable[[Path | None, str], Corpus]] = {
    "summeval": _summeval,
    "topical_chat": _topical_chat,
    "qags": _qags,
    "qags_xsum": _qags,
    **dict.fromkeys(_HALUEVAL_PARTS, _halueval),
    "halueval_drawn": partial(_halueval, drawn=150),
    "halueval_dialogue_drawn": partial(_halueval, drawn=150),
    "halueval_summarization_drawn": partial(_halueval, drawn=50),
    "factool": _factool,
    "factool_claims": _factool,
    "faireval": _faireval,
}
