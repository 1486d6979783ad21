"""Bias probes: what moves a judge's scores on held-out candidates but should not.

    python runs/probe.py --program runs/store/exports/NAME --data ratings.jsonl
    python runs/probe.py --judges single,debate --data summeval --lm openai/gpt-6-luna --probes longer,instruction
    python runs/probe.py --program runs/store/exports/NAME --data ratings.jsonl --estimate

Each candidate is scored as it is and manipulated: made longer, more polite, more confident, with an instruction to the
judge, and so on; the table shows how far scores move, with 95 % intervals. The held-out sources of a compile's
split are scored, unless --part all says otherwise. The same command resumes where it was stopped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from debate_judge.runs.flags.lm import require_server
from debate_judge.runs.flags.parser import RESUMES, exit_code, make_parser, read
from debate_judge.runs.probing.flags import ProbeFlags


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code (0 done, 2 bad input, 3 the LM failed, 130 stopped)."""
    arguments = make_parser("probe", __doc__, ProbeFlags).parse_args(argv)
    # DSPy and LiteLLM would fetch a price list on import; nothing here needs it.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

    def work() -> int:
        flags = read(ProbeFlags, arguments)
        if flags.lm and flags.estimate is None:
            require_server(flags.lm, flags.api_base, flags.store)
        from debate_judge.runs.probing.job import run

        return run(flags)

    return exit_code(work, RESUMES)


if __name__ == "__main__":
    raise SystemExit(main())
