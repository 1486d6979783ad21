"""Several judges on the same data in one table.

    python runs/compare.py --data sample --judges rouge-l,single,debate
    python runs/compare.py --data summeval --judges rouge-l,single,runs/store/exports/NAME --json table.json

A judge is a name (single, multiagent, debate, ... rouge-l) or the folder of an export. All groups of the data
are scored unless --part says otherwise: an export's figures on groups that it was compiled on are no evidence.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from data.errors import InputError
from programs import JUDGES
from runs.lm_flags import add_limits, limits

if TYPE_CHECKING:
    from data.agreement import Level, Statistic
    from data.schema import Aspect, Corpus
    from runs.comparison import Contestant

STATISTICS = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall tau-b"}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="compare.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="sample", help="as for compile.py (sample)")
    parser.add_argument("--task", help="as for compile.py")
    parser.add_argument("--aspects", help="comma-separated; all rated aspects by default")
    parser.add_argument(
        "--judges", default="rouge-l,single,debate", help=f"comma-separated: {', '.join(JUDGES)}, or an export's folder"
    )
    parser.add_argument("--lm", default="offline", help="for all judges (offline)")
    parser.add_argument("--api-base", help="address of an OpenAI-compatible server")
    parser.add_argument("--concurrency", type=int, default=16, help="LM calls in flight at once (16)")
    parser.add_argument("--part", choices=("all", "held-out"), default="all", help="which groups (all)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the split, if --part held-out, and of the intervals (0)"
    )
    parser.add_argument("--level", choices=("auto", "summary", "sample", "system"), default="auto")
    parser.add_argument("--statistics", help="comma-separated: pearson, spearman, kendall (the task's usual two)")
    parser.add_argument("--baseline", help="judge that the others are compared with (the first one)")
    parser.add_argument("--resamples", type=int, default=10_000, help="of the intervals (10000)")
    parser.add_argument("--style", choices=("text", "markdown", "latex"), default="text")
    parser.add_argument("--store", default="runs/store", help="folder with the LM's replies (runs/store)")
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    add_limits(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code (0 done, 2 bad input, 3 the LM failed, 130 interrupted)."""
    arguments = build_parser().parse_args(argv)
    try:
        return _run(arguments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here, no LM call is paid twice", file=sys.stderr)
        return 130


def _run(arguments: argparse.Namespace) -> int:
    import os

    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    import data
    from data.rated_files import require_level, require_ratings

    corpus = data.load(arguments.data, arguments.task)
    names = _list(arguments.aspects) or list(corpus.rated_aspects())
    require_ratings(corpus, names)
    level: Level = arguments.level if arguments.level != "auto" else "summary" if corpus.grouped else "sample"
    if level != "system":
        require_level(corpus, level)
    aspects = [corpus.task.aspect(n) for n in names]
    statistics = _statistics(arguments, corpus)
    contestants = [_contestant(name, aspects) for name in _list(arguments.judges)]
    baseline = arguments.baseline or contestants[0].name
    if baseline not in {c.name for c in contestants}:
        raise InputError("the baseline is not among the judges", field="--baseline", found=baseline)
    if arguments.part == "held-out":
        from data.splits import split

        corpus = split(corpus, aspects=names, seed=arguments.seed).held_out
    return _compare(arguments, corpus, aspects, contestants, (level, statistics, baseline))


def _compare(
    arguments: argparse.Namespace,
    corpus: Corpus,
    aspects: list[Aspect],
    contestants: list[Contestant],
    how: tuple[Level, tuple[Statistic, ...], str],
) -> int:
    import dspy

    from programs.lm import make_lm
    from runs.comparison import best, compare_all, render, score_all
    from runs.journal import Journal
    from runs.scoring import Panel

    level, statistics, baseline = how
    journal = Journal(Path(arguments.store) / "replies" / arguments.lm.replace("/", "_"))
    try:
        lm = make_lm(
            arguments.lm,
            api_base=arguments.api_base,
            store=journal,
            concurrency=arguments.concurrency,
            options=limits(arguments),
        )
        with Panel(lm) as panel:
            found = {c.name: score_all(panel, corpus, aspects, c) for c in contestants}
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error), field="--lm", found=arguments.lm) from error
    except dspy.LMError as error:
        print(f"error: the LM failed: {error}\n  remedy:   mend it and run the same command again", file=sys.stderr)
        return 3
    finally:
        journal.close()
    table = compare_all(
        found, statistics=statistics, level=level, baseline=baseline, resamples=arguments.resamples, seed=arguments.seed
    )
    winner = best(table, arguments.resamples, arguments.seed)
    print(render(table, [a.name for a in aspects], arguments.style, winner))
    print(_legend(arguments, corpus, table.level, statistics, winner))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(table.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return 0


def _legend(
    arguments: argparse.Namespace, corpus: Corpus, level: str, statistics: Sequence[str], winner: str | None
) -> str:
    part = (
        "all groups of the file, those that an export was compiled on included"
        if arguments.part == "all"
        else "held-out"
    )
    lines = [
        "",
        f"{level}-level {' / '.join(STATISTICS[s] for s in statistics)} with the mean human rating; "
        f"{len(corpus.groups)} groups ({part}); 95 % intervals of the first statistic by resampling groups",
        "* differs from every other judge (p < 0.05, Holm)"
        if winner
        else "no judge differs from every other one (p < 0.05, Holm)",
    ]
    if arguments.lm == "offline":
        lines.append("offline LM: transparent text statistics, a stand-in, not a language model")
    return "\n".join(lines)


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _statistics(arguments: argparse.Namespace, corpus: Corpus) -> tuple[Statistic, ...]:
    """The two that the task's published tables use, unless the user names others."""
    usual = "pearson,spearman" if corpus.task.name == "dialogue" else "spearman,kendall"
    chosen = _list(arguments.statistics or usual)
    for name in chosen:
        if name not in STATISTICS:
            raise InputError("unknown statistic", field="--statistics", expected=", ".join(STATISTICS), found=name)
    return tuple(cast("Statistic", name) for name in chosen)


def _contestant(name: str, aspects: list[Aspect]) -> Contestant:
    import difflib

    from programs import build
    from programs.compiled import AspectJudge
    from runs.comparison import Contestant

    if name in JUDGES:
        judge = AspectJudge(build(JUDGES[name].kind, JUDGES[name].config))
        return Contestant(name, {a.name: judge for a in aspects})
    if Path(name).is_dir():
        from runs.manifest import read

        compiled = read(Path(name)).judge
        missing = [a.name for a in aspects if a.name not in compiled.aspects]
        if missing:
            raise InputError("the export does not judge these aspects", file=name, found=", ".join(missing))
        return Contestant(Path(name).name, compiled.aspects)
    near = difflib.get_close_matches(name, JUDGES, n=1)
    raise InputError(
        f"unknown judge {name!r}",
        field="--judges",
        expected=f"one of {', '.join(JUDGES)}, or the folder of an export",
        remedy=f"did you mean {near[0]!r}?" if near else None,
    )


if __name__ == "__main__":
    raise SystemExit(main())
