"""Settings that several commands share: data, store, LM, limits, judge, metric."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field

from debate_judge.data.agreement.decisions import ABSOLUTE_MEASURES, AbsoluteMeasure
from debate_judge.data.agreement.figures import STATISTICS, Statistic
from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.formats import toml
from debate_judge.data.schema import Level
from debate_judge.programs.lm.replies import replies_folder
from debate_judge.programs.lm.settings import (
    LMOptions,
    base_variable,
    default_address,
    key_variable,
    normalize_address,
    require_listening,
    require_provider,
)
from debate_judge.runs.flags import line_of_key, setting, split_commas

if TYPE_CHECKING:
    import dspy

_LIMIT: dict[str, Any] = {"rare": True, "affects_results": False}
"""Of settings that concern speed, cost or output alone, and that few people need."""

# --- single settings ---

COLUMNS = setting((), "what the columns of your file are, e.g. source=question,text=answer", metavar="NAME=COL,...")
SOURCES = setting(None, "use only the first N sources of the data", ge=1, rare=True)
SEED = setting(0, "random seed", ge=0, rare=True)
STORE = setting(
    "runs/store", "folder for cached replies, Optuna studies, runs, exports", metavar="DIR", affects_results=False
)
JSON_FILE = setting(None, "also write the result as JSON", metavar="FILE", **_LIMIT)
REPORT = setting(
    "full",
    "HTML report: full shows every debate with its texts, plain quotes no text; MLflow gets the plain one",
    **_LIMIT,
)
PERSONAS_FILE = setting(None, "TOML file with your own personas for the Critic", metavar="FILE", rare=True)
# It decides what a compile may choose, so that results depend on it.
MAX_UNSCORED = setting(
    0.2,
    "share of texts that may be left without a score before the command fails; 1 allows all",
    metavar="SHARE",
    rare=True,
    ge=0,
    le=1,
)
EXPORT = "the folder of an export, models:/NAME/VERSION, models:/NAME/latest, or the id of the MLflow run that made it"
TRUST = setting(
    (),
    "import this judge class of your own, which the export uses; may be repeated",
    metavar="MODULE:CLASS",
    repeated=True,
    rare=True,
)
CUT = setting(
    None,
    "threshold of yes/no decisions, which are compared as well: yes is a score of at least X",
    default_text="three quarters up the scale; for two-valued ratings, their midpoint",
    rare=True,
)
MAX_TOKENS = (
    "maximum tokens of a reply; one that is cut off is requested again with four times as many; none: the provider's "
    "default"
)
_TEMPERATURE = setting(
    0.0, "sampling temperature, unless a judge averages several samples; none: the provider's default", rare=True
)
_MAX_TOKENS = setting(2000, MAX_TOKENS, rare=True)
_MAX_TOKENS_OF_EXPORT = setting(None, MAX_TOKENS, default_text="as compiled", rare=True)
AtLeast0 = Annotated[float, Field(ge=0)] | Literal["none"]
AtLeast1 = Annotated[int, Field(ge=1)] | Literal["none"]


# --- groups ---


@dataclass(frozen=True, kw_only=True)
class DataFlags:
    """The rated corpus."""

    data: str = setting(
        "sample", "a file, hf:NAME@SPLIT, a public data set, or NAME=PATH for a copy of one", metavar="FILE"
    )
    columns: tuple[str, ...] = COLUMNS
    task: str | None = setting(None, "summarization, dialogue, pairs, or your own task file (.toml)")
    aspects: tuple[str, ...] = setting((), "aspects to judge, comma-separated, or all", default_text="all rated ones")
    sources: int | None = SOURCES


@dataclass(frozen=True, kw_only=True)
class EngineFlags:
    """Where scoring runs: in this process, or in Ray actors."""

    engine: Literal["local", "ray"] = setting(
        "local",
        "ray: --in may be a glob or URL of rows with an id, --out is a folder, and RAY_ADDRESS names the cluster",
        **_LIMIT,
    )
    actors: int = setting(2, "Ray actors; they share concurrency and limits", ge=1, **_LIMIT)


@dataclass(frozen=True, kw_only=True)
class ConnectionFlags:
    """Where calls go, and how many are in flight at once."""

    api_base: str | None = setting(
        None, "address of an OpenAI-compatible server; keys are read from the environment", metavar="URL"
    )
    concurrency: int = setting(16, "LM calls in flight at once", ge=1, **_LIMIT)


@dataclass(frozen=True, kw_only=True)
class PreflightFlags(ConnectionFlags):
    """The connection of a run that tries its LM first."""

    preflight: bool = setting(True, "try each role on the longest text before the run", **_LIMIT)


@dataclass(frozen=True, kw_only=True)
class LMFlags(PreflightFlags):
    """The LM of all roles and how its replies are sampled."""

    lm: str = setting("offline", "PROVIDER/MODEL, or offline (text statistics, not an LM)")
    temperature: AtLeast0 = _TEMPERATURE
    max_tokens: AtLeast1 = _MAX_TOKENS


_DEFAULTS = LMOptions()
_TIMEOUT_FACTOR = _DEFAULTS.deadline / _DEFAULTS.attempt_timeout
"""Time limit of a call with its retries, as a multiple of the time limit of an attempt."""


@dataclass(frozen=True, kw_only=True)
class LimitFlags:
    """Rate limits, budget, timeout and prices; replies do not depend on them."""

    rpm: float | None = setting(None, "maximum requests per minute", gt=0, **_LIMIT)
    tpm: float | None = setting(None, "maximum tokens per minute, input and output", gt=0, **_LIMIT)
    budget: str | None = setting(
        None, "hard cap on spending: calls=N,tokens=N,usd=X", metavar="CAPS", affects_results=False
    )
    timeout: float = setting(
        _DEFAULTS.attempt_timeout,
        f"time limit of one attempt; with retries a call may take {_TIMEOUT_FACTOR:g} times as long",
        metavar="SECONDS",
        gt=0,
        **_LIMIT,
    )
    prices: str | None = setting(
        None,
        "TOML file with prices per million tokens, for LMs that LiteLLM has no price for",
        metavar="FILE",
        **_LIMIT,
    )


@dataclass(frozen=True, kw_only=True)
class ExportFlags:
    """An exported judge, and how it is used."""

    program: str = setting(..., EXPORT, flag="EXPORT", metavar="EXPORT")
    trust: tuple[str, ...] = TRUST
    scale: Literal["judge", "raters"] = setting(
        "judge", "the judge's own scores, or scores mapped to the raters' scale"
    )
    lm: str | None = setting(None, "PROVIDER/MODEL, or offline", default_text="as compiled")
    max_tokens: AtLeast1 | None = _MAX_TOKENS_OF_EXPORT
    store: str = STORE


@dataclass(frozen=True, kw_only=True)
class EstimateFlags:
    """A cost estimate in place of the run; `runs.estimates` parses its value."""

    estimate: str | None = setting(
        None,
        "print calls, tokens and cost instead of running; E,M: tokens per reply, expected and maximum",
        metavar="E,M",
        const="",
        affects_results=False,
    )


def _name_value_texts(value: object) -> object:
    """NAME=VALUE texts of a table of a TOML file, of a dict, or of a list of them."""
    if not isinstance(value, Mapping):
        return tuple(value) if isinstance(value, list) else value
    return tuple(f"{name}={each if isinstance(each, str) else json.dumps(each)}" for name, each in value.items())


@dataclass(frozen=True, kw_only=True)
class JudgeOptionFlags:
    """Options of judges; without them the judge's defaults."""

    judge_option: Annotated[tuple[str, ...], BeforeValidator(_name_value_texts)] = setting(
        (),
        "options of the judge, e.g. score-mode=sampled:5, together=4; may be repeated",
        flag="-J",
        metavar="NAME=VALUE",
        repeated=True,
    )

    def options(self) -> dict[str, Any]:
        """Option -> value.

        Raises:
            InputError: An option is not of the form NAME=VALUE or is given twice, or the file of roles cannot be used.
        """
        options: dict[str, Any] = {}
        for text in self.judge_option:
            name, equals, value = text.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or not name or name in options:
                expected = "NAME=VALUE, each name once"
                raise InputError("not an option of a judge", field="-J", expected=expected, found=text)
            options[name] = parse_option_value(value.strip())
        return read_text_files(options)


# --- from settings to what is run ---


def lm_options(flags: LimitFlags) -> LMOptions:
    """The LM options in the flags.

    Raises:
        InputError: A value cannot be used.
    """
    return LMOptions.from_settings(
        rpm=flags.rpm,
        tpm=flags.tpm,
        budget=flags.budget,
        attempt_timeout=flags.timeout,
        deadline=flags.timeout * _TIMEOUT_FACTOR,
        prices=flags.prices,
    )


def require_server(
    spec: str, api_base: str | None, store: str, *, flag: str = "--api-base", stored_under: str | None = None
) -> None:
    """Refuse a server on this machine that is not running, unless the store may have all answers of the LM `spec`.

    `flag` is named in the error unless the address is from the environment; `stored_under` is the LM whose store has
    the replies, if it is not `spec`.

    Raises:
        NoServerError: Its port is refused.
        InputError: The provider is misspelt.
    """
    require_provider(spec, "--lm" if flag == "--api-base" else flag)
    variable = base_variable(spec)
    from_environment = os.environ.get(variable)
    address = api_base or from_environment or default_address(spec)
    replies = replies_folder(store, stored_under or spec)
    if "/" in spec and address and not (replies.is_dir() and any(replies.iterdir())):
        require_listening(normalize_address(address) or "", variable if from_environment and not api_base else flag)


def settings_of_lm(lm: dspy.LM) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings that a `dspy.LM` stands for, and the environment variable with its key, if it has one.

    Raises:
        InputError: It has settings that are not taken, or an engine of its own.
    """
    from debate_judge.programs.make_lm import OFFLINE
    from debate_judge.programs.offline import MODEL

    if lm.model == MODEL:
        return {"lm": OFFLINE}, {}
    given = {name: value for name, value in lm.kwargs.items() if value is not None}
    key, base_url = given.pop("api_key", None), given.pop("base_url", None)
    taken = {name: given.pop(name) for name in ("api_base", "temperature", "max_tokens") if name in given}
    if not isinstance(getattr(lm, "_engine_spec", "auto"), str):
        given["engine"] = "its own"
    if given:
        raise InputError(
            f"{', '.join(given)} of the LM cannot be taken over",
            field="lm",
            expected="a dspy.LM with a model, api_base, api_key, temperature and max_tokens",
            found=lm.model,
            remedy="give the LM as PROVIDER/MODEL, and an address of yours as api_base",
        )
    settings = {"lm": lm.model, **({"api_base": base_url} if base_url else {}), **taken}
    return settings, {key_variable(lm.model): str(key)} if key else {}


def parse_option_value(text: str) -> Any:
    """A JSON value where it is one (numbers, true, false, lists), otherwise the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_text_files(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a judge, with the texts of those that name a file: the debaters of claims, and ChatEval's roles,
    which may be names of built-in ones as well."""
    read = dict(options)
    roles, agents = read.get("roles"), read.get("agents")
    if isinstance(roles, str):
        is_file = roles.endswith(".toml") or Path(roles).is_file()
        read["roles"] = read_named_texts(Path(roles), "role") if is_file else split_commas(roles)
    if isinstance(agents, str):
        read["agents"] = read_named_texts(Path(agents), "agent")
    return read


def personas(path: Path | None) -> dict[str, str]:
    """Name -> text of the Critic's personas: the built-in ones and those of a TOML file of `name = "text"` lines.

    A persona of the file replaces a built-in one of the same name.

    Raises:
        InputError: The file cannot be read, or an entry is not a non-empty text.
    """
    from debate_judge.programs.debate.prompts import PERSONAS, require_persona

    own = read_named_texts(path, "persona") if path else {}
    for name, text in own.items():
        try:
            require_persona(name, text)
        except InputError as error:
            raise error.replaced(file=path, line=path and line_of_key(path, name)) from None
    return {**{name: persona.text for name, persona in PERSONAS.items()}, **own}


def read_named_texts(path: Path, noun: str) -> dict[str, str]:
    """Name -> text, from a TOML file of `name = "text"` lines, in their order; `noun` says what a text is.

    Raises:
        InputError: The file cannot be read, is empty, or an entry is not a non-empty text.
    """
    record = toml(path, f"file of {noun}s")
    if not record.values or not all(name.strip() for name in record.values):
        raise record.error(f"a {noun} is missing or has no name", expected='at least one name = "text" line')
    return {name: record.text(name).strip() for name in record.values}


def together_question(candidates: Iterable[int]) -> list[str]:
    """The question whether candidates of a source may share calls, with what that saves; `candidates` are their numbers
    by source. Empty where each source has one."""
    together, sizes = 8, list(candidates)
    fewer = sum(sizes) / max(1, sum(math.ceil(size / together) for size in sizes))
    if fewer < 1.5:
        return []
    return [
        "Do you score several texts of a source at a time? "
        f"`-J together={together}` makes about {fewer:.2g} times fewer LM calls."
    ]


# --- the metric ---


@dataclass(frozen=True, slots=True)
class MetricChoice:
    """What judges are compared by."""

    level: Level | Literal["auto"] = "auto"
    """`auto` is the one that suits the data: within sources where they have several candidates."""
    correlations: tuple[Statistic, ...] = ()
    """The named ones, in the order in which they were named: intervals are for the first."""
    absolute_measure: AbsoluteMeasure | None = None
    """What a compile maximizes in place of a correlation."""

    @classmethod
    def of(
        cls, text: str, levels: Sequence[str], *, allow_several: bool = False, allow_absolute: bool = False
    ) -> MetricChoice:
        """Read `LEVEL/CORRELATION`, or one of the two.

        Args:
            text: The value of `--metric`.
            levels: The allowed levels, besides `auto`.
            allow_several: Whether several correlations, joined by commas, are allowed.
            allow_absolute: Whether a measure of absolute agreement may stand in place of the correlation.

        Raises:
            InputError: The text is no metric.
        """
        levels, known = ("auto", *levels), (*STATISTICS, *(ABSOLUTE_MEASURES if allow_absolute else ()))
        level, slash, named = text.rpartition("/")
        if not slash and named in levels:
            level, named = named, ""
        names: tuple[Any, ...] = tuple(dict.fromkeys(named.split(","))) if named else ()
        if (level or "auto") not in levels or not {*names} <= {*known} or (len(names) > 1 and not allow_several):
            raise InputError(
                "not a metric",
                expected=f"LEVEL/CORRELATION{',...' * allow_several}: {', '.join(levels)}; {', '.join(known)}",
                found=text,
                remedy=did_you_mean(named, known) or did_you_mean(level or named, levels),
            )
        absolute = next((name for name in names if name in ABSOLUTE_MEASURES), None)
        return cls(cast(Any, level or "auto"), tuple(name for name in names if name in STATISTICS), absolute)

    @property
    def correlation(self) -> Statistic:
        """The first named one, or the default."""
        return self.correlations[0] if self.correlations else "spearman"

    def __str__(self) -> str:
        return f"{self.level}/{self.absolute_measure or self.correlation}"


def objective_of(text: str) -> MetricChoice:
    """What a compile maximizes, from the value of `metric`."""
    return MetricChoice.of(text, ("summary", "sample"), allow_absolute=True)


MetricText = Annotated[str, AfterValidator(lambda text: str(objective_of(text)))]
"""The type of a compile's setting `metric`, completed to LEVEL/CORRELATION."""

METRIC = setting(str(MetricChoice()), "what to maximize: LEVEL/CORRELATION, mae, ccc or kappa")
