"""The judges of a comparison, as a user names them: presets and exports, with settings in brackets.

single
debate[rounds=2,persona=plain]              # settings that replace those of the preset
debate[rounds=0|1|2|3]                      # an entrant for each value
runs/store/exports/NAME[lm=openai/MODEL]    # an export with another LM than it was compiled with
runs/store/exports/NAME[tie_breaker=true]   # an export with another setting and its tuned instructions
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs import JUDGES, build, build_preset, options_of
from debate_judge.programs.judge import AspectJudge, Judge, default_granularity
from debate_judge.programs.lm.settings import MaxTokens, Temperature
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.export import Export, in_mlflow, open_export, resolve_lm
from debate_judge.runs.flags import split_commas
from debate_judge.runs.shared_flags import parse_option_value, personas, read_text_files

LM = "lm"
"""The setting in brackets that names a judge's own LM; all others are settings of the judge."""


@dataclass(frozen=True)
class LMChoice:
    """An LM, with the arguments that `make_lm` makes it from."""

    spec: str
    """PROVIDER/MODEL, or offline."""
    api_base: str | None = None
    temperature: Temperature = 0.0
    max_tokens: MaxTokens = 2000
    flag: str = field(default="--lm", compare=False)
    """The flag that names it, for messages."""


@dataclass(frozen=True)
class JudgeSpec:
    """A judge as the user named it, before it is built."""

    address: str
    """Name of a preset, `module:Class`, or the folder or MLflow address of an export."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings in brackets, with their values as they are written."""
    export: Export | None = None

    @property
    def brackets(self) -> str:
        """The settings as the user writes them."""
        return f"[{','.join(f'{name}={text}' for name, text in self.settings.items())}]" if self.settings else ""

    @property
    def name(self) -> str:
        """The judge as the user names it."""
        return self.address + self.brackets


@dataclass(frozen=True)
class Entrant:
    """One judge of a comparison, ready to score."""

    name: str
    aspect_judges: Mapping[str, AspectJudge]
    """Aspect -> the judge that scores it."""
    lm: LMChoice = LMChoice("offline")
    compiled_on: frozenset[str] = frozenset()
    """The `source_id` of the sources that an export was tuned or chosen on; empty for other judges."""

    def overlap(self, corpus: Corpus) -> int:
        """Number of groups of a corpus that the judge was compiled on."""
        return sum(group.source_id in self.compiled_on for group in corpus.groups)

    def dry_run_copy(self) -> Entrant:
        """A copy for an estimate, which asks no LM and no web search."""
        copies = {name: replace(judge, judge=judge.judge.dry_run_copy()) for name, judge in self.aspect_judges.items()}
        return replace(self, aspect_judges=copies)


def parse_judges(names: Sequence[str], store: Path | None = None) -> list[JudgeSpec]:
    """Parse `--judges` and read the exports; a judge for each combination of alternatives in brackets."""
    specs = [spec for name in names for spec in _parse(name)]
    # A `module:Class` that the user names is trusted, so exports may import it, too.
    addresses = [spec.address for spec in specs]
    # Each export is opened once, however many alternatives it has, because one in MLflow is downloaded.
    exports = {
        address: open_export(address, addresses, store) for address in dict.fromkeys(addresses) if _is_export(address)
    }
    return [replace(spec, export=exports.get(spec.address)) for spec in specs]


def choose_lms(
    specs: Sequence[JudgeSpec],
    lm: str | None = None,
    api_base: str | None = None,
    temperature: Temperature | None = None,
    max_tokens: MaxTokens | None = None,
) -> list[LMChoice]:
    """The LM of each judge: that in its brackets, else `lm`, else the export's; of a preset that of the first export.

    Args:
        specs: The judges.
        lm: PROVIDER/MODEL of all judges that name none.
        api_base: Address of the server of this LM; it is used for no other provider.
        temperature: None for that of the export, or 0.
        max_tokens: Likewise, or 2000.

    Raises:
        InputError: Only an export gives the address of its LM.
    """
    first = next((spec.export for spec in specs if spec.export is not None), None)
    default = lm or (OFFLINE if first is None else str(first.manifest.lm.spec))
    sampling: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
    given = {name: value for name, value in sampling.items() if value is not None}
    choices = []
    for judge in specs:
        export = judge.export or first
        own = judge.settings.get(LM)
        name = own or lm or (default if export is None else str(export.manifest.lm.spec))
        address = api_base if name.partition("/")[0] == default.partition("/")[0] else None
        compiled: dict[str, Any] = {}
        if export is not None:
            name, address, compiled = resolve_lm(export, own or lm, address)
        flag = "--judges" if own else "--lm"
        choices.append(LMChoice(name, address, flag=flag, **{**compiled, **given}))
    return choices


def build_entrants(
    specs: Sequence[JudgeSpec],
    aspects: Sequence[Aspect],
    lms: Sequence[LMChoice] | None = None,
    personas_file: Path | None = None,
) -> list[Entrant]:
    """Build the judges of `specs`, in their order, each with its LM; a persona may be one of the file.

    Raises:
        InputError: A judge is named twice, a setting is unknown, or an export does not judge one of the aspects.
    """
    persona_texts = personas(personas_file)
    lms = lms or choose_lms(specs)
    built = [replace(_entrant(spec, aspects, persona_texts), lm=lm) for spec, lm in zip(specs, lms, strict=True)]
    count = Counter(entrant.name for entrant in built)
    # Two exports of the same name are called by the paths that the user wrote.
    built = [
        replace(e, name=spec.name) if count[e.name] > 1 and spec.export else e
        for spec, e in zip(specs, built, strict=True)
    ]
    for name, times in Counter(entrant.name for entrant in built).items():
        if times > 1:
            raise InputError("a judge is named twice", field="--judges", expected="each judge once", found=name)
    return built


def expected_judges() -> str:
    """What `--judges` takes, for error messages."""
    return f"one of {', '.join(JUDGES)}, module:Class, or an export: folder, models:/NAME/latest, or id of its run"


# --- names and brackets ---


def _parse(text: str) -> Iterator[JudgeSpec]:
    address, bracket, inside = text.partition("[")
    if bracket and not inside.endswith("]"):
        raise _unreadable(text)
    values: dict[str, list[str]] = {}
    for setting in split_commas(inside[:-1]):
        name, equals, value = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name or name in values:
            raise _unreadable(text)
        values[name] = [alternative.strip() for alternative in value.split("|")]
    for combination in product(*values.values()):
        yield JudgeSpec(address.strip(), dict(zip(values, combination, strict=True)))


def _unreadable(text: str) -> InputError:
    return InputError(
        "a judge's settings cannot be read",
        field="--judges",
        expected="JUDGE[NAME=VALUE,...], each name once, such as debate[rounds=2,persona=plain]",
        found=text,
    )


def _parse_value(text: str) -> Any:
    """A JSON value where it is one (numbers, true, false), a list in brackets, otherwise the text itself."""
    if text.startswith("[") and text.endswith("]"):
        return [_parse_value(part) for part in split_commas(text[1:-1])]
    return parse_option_value(text)


# --- judges ---


def _is_export(address: str) -> bool:
    return address not in JUDGES and (in_mlflow(address) or Path(address).is_dir())


def _entrant(spec: JudgeSpec, aspects: Sequence[Aspect], persona_texts: Mapping[str, str]) -> Entrant:
    if spec.export is None:
        judge = _judge(spec, None, persona_texts)
        return Entrant(spec.name, {a.name: AspectJudge(judge, default_granularity(judge, a)) for a in aspects})
    compiled = spec.export.judge.aspects
    if not {a.name for a in aspects} <= compiled.keys():
        raise InputError(
            "the export does not judge these aspects",
            file=spec.address,
            expected=", ".join(a.name for a in aspects),
            found=", ".join(compiled),
            remedy="name the aspects that it judges with --aspects",
        )
    judges = {name: replace(each, judge=_judge(spec, each.judge, persona_texts)) for name, each in compiled.items()}
    # In the table it has the name of its folder, in MLflow's registry, or of its run.
    name = Path(spec.address).name
    if in_mlflow(spec.address):
        registered = spec.address.startswith("models:/")
        name = spec.address.partition(":/")[2] if registered else str(spec.export.manifest.name)
    compiled_on = spec.export.evidence.compiled_on
    return Entrant(name + spec.brackets, judges, compiled_on=frozenset(compiled_on))


_OF_PERSONA = ("persona_text", "persona_later", "two_briefs")
"""Entries of a debate's configuration that belong to its persona."""


def _judge(spec: JudgeSpec, compiled: Judge | None, persona_texts: Mapping[str, str]) -> Judge:
    """The judge of an export, or else the preset, with the settings in brackets and the same instructions.

    Raises:
        InputError: It quotes what the user wrote.
    """
    settings = {name: _parse_value(text) for name, text in spec.settings.items() if name != LM}
    if compiled is None and spec.address not in JUDGES and ":" not in spec.address:
        remedy = did_you_mean(spec.address, JUDGES, cutoff=0.4)
        raise InputError(f"unknown judge {spec.address!r}", field="--judges", expected=expected_judges(), remedy=remedy)
    try:
        if compiled is None:
            options = {name: settings.pop(name) for name in options_of(spec.address) if name in settings}
            compiled = build_preset(spec.address, read_text_files(options))
        return _varied(compiled, settings, persona_texts) if settings else compiled
    except (KeyError, TypeError, ValueError) as error:
        input_error = error if isinstance(error, InputError) else InputError(f"the judge cannot be built: {error!r}")
        raise input_error.replaced(field="--judges", found=spec.name) from error


def _varied(judge: Judge, settings: Mapping[str, Any], persona_texts: Mapping[str, str]) -> Judge:
    """A copy of the judge with these settings changed, and the same instructions."""
    config, state = {**judge.config(), **settings}, judge.dump_state()
    allowed = [name for name in judge.config() if name not in (*_OF_PERSONA, "precedents")]
    for name in settings:
        if name not in allowed:
            expected = f"one of {', '.join(allowed)}, {LM}"
            raise InputError(f"no setting {name!r}", expected=expected, remedy=did_you_mean(name, allowed))
    if "persona" in settings:
        persona = str(settings["persona"])
        if persona not in persona_texts:
            expected, remedy = f"one of {', '.join(persona_texts)}", did_you_mean(persona, persona_texts)
            raise InputError(f"unknown persona {persona!r}", expected=expected, remedy=remedy)
        config = {name: value for name, value in config.items() if name not in _OF_PERSONA}
        config["persona_text"] = persona_texts[persona]
        state.pop("critic", None)
    copy = build(judge.kind, config)
    for name, predictor in copy.named_predictors():
        if name in state:
            predictor.load_state(state[name])
    return copy
