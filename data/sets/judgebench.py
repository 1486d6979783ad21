"""The layout of JUDGE-BENCH (Bavaresco et al. 2024), in which twenty rated sets are distributed.

Location: data/*/*.json in the GitHub repository dmg-illc/JUDGE-BENCH; each set has a licence of its own. A file looks
like this (made up):

    {"dataset": "Recipes (Ash 2024)", "annotations": [
       {"metric": "fluency", "category": "graded", "prompt": "Rate its fluency. {{ instance }}", "worst": 1, "best": 7},
       {"metric": "safe", "category": "categorical", "prompt": "Is it safe?", "labels_list": ["No", "Yes", "Unsure"]}],
     "instances": [
       {"id": 1, "instance": {"query": "Salt?", "response": "Salt water lightly."}, "annotations": {
          "fluency": {"mean_human": 4.5, "individual_human_scores": [3, 6]},
          "safe": {"majority_human": "Yes", "individual_human_scores": ["Yes", "Unsure"]}}}]}

A metric is an aspect, its prompt the definition. Where the best value is the lower one, ratings are turned round. Two
labels are 1 and 0, the best, or else yes, being 1; a metric of more labels has no order and is left out, with a note.
An instance is the text, an object the text beside its source, or two texts and a verdict.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import PREFERENCE, code_of, families, role_of_name
from debate_judge.data.files.formats import read_text
from debate_judge.data.files.groups import clear_verdict
from debate_judge.data.files.records import YES_NO_WORDS, Record, rating_of
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task, fingerprint
from debate_judge.data.tasks import PAIRS

logger = logging.getLogger(__name__)

_UNSURE = {"unsure", "not sure", "maybe", "unclear"}
_SECTION = re.compile(r"^#{2,4} +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class _Metric:
    """A metric as an aspect."""

    aspect: Aspect
    labels: Mapping[str, float]
    """Code of a label -> rating; empty for numbers."""
    upside_down: bool

    def rating(self, value: object, record: Record) -> float | None:
        """A rater's value on the aspect's scale; None for one that says nothing."""
        if value is None or code_of(value) in _UNSURE or (isinstance(value, float) and math.isnan(value)):
            return None
        if self.labels:
            if code_of(value) not in self.labels:
                expected = ", ".join(self.labels)
                raise record.error(f"no label of {self.aspect.name}", self.aspect.name, expected=expected, found=value)
            return self.labels[code_of(value)]
        number = float(value) if isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value) else value
        rating = rating_of(number, self.aspect, record, self.aspect.name)
        return self.aspect.scale.low + self.aspect.scale.high - rating if self.upside_down else rating


def load(path: str | Path | None = None) -> Corpus:
    """Load a set from a file in this layout.

    Raises:
        InputError: No file is given, or it has another layout, or none of its metrics can be judged.
    """
    if path is None:
        remedy = "download one of data/*/*.json of dmg-illc/JUDGE-BENCH, and name it: --data judgebench=FILE"
        raise InputError("no file in the layout of JUDGE-BENCH", field="--data", found="judgebench", remedy=remedy)
    root = _read(Path(path))
    name = re.sub(r"[^\w-]+", "-", Path(path).stem)
    instances = root.children("instances")
    if pairs := _pair_fields(instances[0].value("instance")):
        return Corpus(PAIRS, tuple(_pair(i, n, pairs) for n, i in enumerate(instances, 1)), Origin(name, str(path)))
    metrics = _metrics(root, instances)
    groups: dict[str, list[Candidate]] = {}
    sources: dict[str, str] = {}
    for number, instance in enumerate(instances, start=1):
        source, text = _source_and_text(instance)
        key = " ".join(source.split()) or f"\n{number}"
        ratings = {m.aspect.name: values for m in metrics if (values := _ratings(instance, m))}
        candidates = groups.setdefault(key, [])
        sources[key] = source
        candidates.append(Candidate(str(number), text, ratings))
    task = Task(name, "source", "text", tuple(metric.aspect for metric in metrics))
    rated = (RatedGroup(str(n), sources[key], tuple(c)) for n, (key, c) in enumerate(groups.items(), start=1))
    return Corpus(task, tuple(rated), Origin(name, str(path)))


def _read(path: Path) -> Record:
    text = read_text(path)
    try:
        # Means of no ratings are NaN in some sets.
        values = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {error}", file=path) from None
    if not isinstance(values, dict):
        raise InputError(
            "not in the layout of JUDGE-BENCH", file=path, expected="an object with annotations, instances"
        )
    root = Record(values, str(path))
    root.require("annotations", "instances")
    return root


def _metrics(root: Record, instances: Sequence[Record]) -> list[_Metric]:
    """The metrics that can be judged and that an instance has ratings of; the others are noted."""
    found = []
    for entry in root.children("annotations"):
        try:
            metric = _metric(entry)
            if any(_ratings(instance, metric) for instance in instances):
                found.append(metric)
        except InputError as error:
            logger.warning("%s: the metric %r is left out: %s", root.file, entry.values.get("metric"), error.problem)
    if not found:
        remedy = "choose a set with a graded metric, or one of two labels"
        raise root.error("no metric can be judged", "annotations", remedy=remedy)
    return found


def _metric(entry: Record) -> _Metric:
    name = re.sub(r"[^\w .-]+", "_", entry.text("metric")).strip(" _.-") or "quality"
    prompt = " ".join(re.sub(r"\{\{.*?\}\}", " ", entry.optional_text("prompt")).split()) or f"Rate its {name}."
    worst, best = entry.values.get("worst"), entry.values.get("best")
    labels = [str(v) for v in entry.values.get("labels_list") or [] if code_of(v) not in _UNSURE]  # type: ignore[attr-defined]
    if labels:
        if len(labels) != 2:
            raise entry.error(f"{len(labels)} labels without an order", "labels_list", found=", ".join(labels))
        upper = next((v for v in labels if best is not None and code_of(v) == code_of(best)), None)
        upper = upper or next((v for v in labels if YES_NO_WORDS.get(v.lower())), labels[1])
        lower = next(label for label in labels if label != upper)
        definition = f"{prompt} 1 is {upper!r}, 0 is {lower!r}."
        return _Metric(Aspect(name, definition, Scale(0, 1)), {code_of(upper): 1.0, code_of(lower): 0.0}, False)
    low, high = sorted((entry.number("worst"), entry.number("best")))
    definition = f"{prompt} {low:g} is the worst, {high:g} the best."
    upside_down = float(worst) > float(best)  # type: ignore[arg-type]
    if upside_down:
        definition = f"{prompt} The raters gave {low:g} to the best; here {high:g} is the best, {low:g} the worst."
    whole = all(end == int(end) for end in (low, high)) and high - low > 1
    return _Metric(Aspect(name, definition, Scale(low, high, 1.0 if whole else (high - low) / 100)), {}, upside_down)


def _ratings(instance: Record, metric: _Metric) -> tuple[float, ...]:
    annotations = instance.child("annotations")
    names = {re.sub(r"[^\w .-]+", "_", key).strip(" _.-").casefold(): key for key in annotations.values}
    key = names.get(metric.aspect.name.casefold())
    if key is None or not isinstance(annotations.values[key], dict):
        return ()
    scores = annotations.child(key)
    values = scores.values.get("individual_human_scores") or [
        next((scores.values[n] for n in ("mean_human", "majority_human") if scores.values.get(n) is not None), None)
    ]
    ratings = (metric.rating(value, annotations) for value in values)  # type: ignore[attr-defined]
    return tuple(rating for rating in ratings if rating is not None)


def _source_and_text(instance: Record) -> tuple[str, str]:
    """The source, empty if there is none, and the text of an instance."""
    value = instance.value("instance")
    if isinstance(value, str):
        parts = _SECTION.split(value)
        sections = {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
        if len(sections) != 2 or parts[0].strip() or {*map(role_of_name, sections)} != {"source", "text"}:
            return "", instance.text("instance")
        value = sections
    if not isinstance(value, dict):
        raise instance.error("an instance is a text or an object of texts", "instance", found=repr(value))
    texts = {key: str(text) for key, text in value.items() if text not in (None, "")}
    if not texts:
        raise instance.error("an instance without a text", "instance")
    text_key = next((key for key in reversed(texts) if role_of_name(key) == "text"), [*texts][-1])
    others = {key: text for key, text in texts.items() if key != text_key}
    joined = "\n\n".join(others.values() if len(others) == 1 else (f"{key}: {text}" for key, text in others.items()))
    return joined, texts[text_key]


def _pair_fields(instance: Any) -> tuple[str, str] | None:
    """The two texts of a pair; None for another instance."""
    names = [key for key in instance if role_of_name(key) == "text"] if isinstance(instance, dict) else []
    found = [
        family for family in families(names) if {part.lower() for part in family.members} in ({"a", "b"}, {"1", "2"})
    ]
    members = sorted(found[0].members.items()) if found else []
    return (members[0][1], members[1][1]) if members else None


def _pair(instance: Record, number: int, fields: tuple[str, str]) -> RatedGroup:
    texts = instance.child("instance")
    source = "\n\n".join(str(text) for key, text in texts.values.items() if key not in fields and text)
    annotations = instance.child("annotations")
    if len(annotations.values) != 1:
        raise annotations.error("a pair with several verdicts", expected="one metric", found=annotations.field_names)
    scores = annotations.child(next(iter(annotations.values)))
    values: Any = scores.values.get("individual_human_scores") or [scores.value("majority_human")]
    first = []
    for value in values:
        # `model_a` is the first text, whatever its field is called.
        rating = clear_verdict(value, fields)
        if rating is None:
            raise scores.error("not a verdict on the pair", expected="model_a, model_b or tie", found=value)
        first.append(rating)
    ratings = (tuple(first), tuple(1 - rating for rating in first))
    candidates = (
        Candidate(field, texts.text(field), {PREFERENCE: of_text})
        for field, of_text in zip(fields, ratings, strict=True)
    )
    return RatedGroup(f"{number}-{fingerprint([source])}", source, tuple(candidates))
