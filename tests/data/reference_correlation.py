"""Correlations by scipy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scipy import stats

from debate_judge.data.agreement.tables import Statistic


def reference(ratings: Sequence[float], scores: Sequence[float], statistic: Statistic) -> float | None:
    """scipy's value."""
    if len(ratings) < 2 or len(set(ratings)) < 2 or len(set(scores)) < 2:
        return None
    functions: dict[str, Any] = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}
    return float(functions[statistic](ratings, scores).statistic)
