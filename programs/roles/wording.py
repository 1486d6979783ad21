"""The sentence of prompts that says what source, candidate and context are."""

from __future__ import annotations

from debate_judge.data.schema import Task


def kinds(task: Task, context: bool = False) -> str:
    """What source, candidate and context are, by the task's labels.

    A label may be any noun (`answer`, `knowledge`, `minutes`). The sentence has no articles, because which one a noun
    takes cannot be told from its spelling.

    Args:
        task: The task with the labels.
        context: Whether to mention the context.
    """
    told = f"Source: {task.source_label}. Candidate: {task.candidate_label}."
    return f"{told} Context, which belongs to the source: {task.context_label}." if context else told
