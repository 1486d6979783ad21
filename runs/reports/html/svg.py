"""Matplotlib figures as inline SVG that takes its colours and its font from the page around it."""

from __future__ import annotations

import html
import io
import re
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, RULE, GROUND = "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04"
SERIES = tuple(f"#0a0c{number:02x}" for number in range(7))
"""Colours to draw in. They stand for the page's own, which differ in light and dark; no other colour may look alike."""

_COLOURS = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    GROUND: "var(--ground)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES)},
}

_RC: Any = {"svg.fonttype": "none", "font.size": 10, "axes.linewidth": 0.8}


def inline(figure: Figure, name: str, label: str) -> str:
    """Draw a figure made of the colours above as an `<svg>` element.

    Args:
        figure: The figure.
        name: Differs between all charts of a page, for their parts have names that must not be each other's.
        label: Says what the chart shows to people who cannot see it.
    """
    import matplotlib

    out = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context({**_RC, "svg.hashsalt": name}):
        # The texts are drawn by the browser, whatever glyphs matplotlib's own font lacks.
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(
            out, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = out.getvalue()
    text = text[text.index("<svg") :]
    # A style in an SVG would be one of the whole page.
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    # A page must not have a name twice; only those that are referred to are needed.
    used = set(re.findall(r"#([\w-]+)", text))
    text = re.sub(r' id="([\w-]+)"', lambda found: found[0] if found[1] in used else "", text)
    text = re.sub("|".join(_COLOURS), lambda found: _COLOURS[found[0]], text)
    text = re.sub(r"font-family: [^;\"]+;? ?", "", text)
    view = re.search(r'viewBox="([^"]+)"', text)
    size = "" if view is None else f' viewBox="{view[1]}"'
    title = html.escape(label)
    return re.sub(
        r"<svg[^>]*>", lambda _: f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'role="img" aria-label="{title}"{size}>', text, count=1
    )  # fmt: skip


def plain(text: str, most: int = 40) -> str:
    """`text` for a figure: on one line, shortened, without signs that no font has, and never read as mathematics."""
    short = "".join(sign if sign.isprintable() else "\ufffd" for sign in " ".join(text.split()))
    short = short if len(short) <= most else short[: most - 1] + "…"
    return short.replace("$", r"\$")
