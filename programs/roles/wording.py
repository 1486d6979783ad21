"""How prompts say what their texts are."""

from __future__ import annotations

from debate_judge.data.schema import Task


def kinds(task: Task, context: bool = False) -> str:
    """What source, candidate and context are, by the task's labels.

    A label may be any noun (`answer`, `knowledge`, `minutes`), and which article it takes, if any, cannot be read off
    its spelling: the sentence has none.

    Args:
        task: With the labels.
        context: Whether there is a context to speak of.
    """
    told = f"Source: {task.source_label}. Candidate: {task.candidate_label}."
    return f"{told} Context, which belongs to the source: {task.context_label}." if context else told
