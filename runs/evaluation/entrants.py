"""The entrants of a comparison: presets and exports as a user names them, with settings of their own in brackets.

single
debate[rounds=2,persona=plain]              # a setting of the judge in place of its own
debate[rounds=0|1|2|3]                      # an entrant for each value
debate[sample=1|2|3,temperature=0.7]        # other samples of the LM: how much do scores vary?
runs/store/exports/NAME[tie_breaker=true]   # an export varied, with its instructions as they were tuned
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import Aspect
from debate_judge.programs import JUDGES, build, build_preset, options_of
from debate_judge.programs.compiled import AspectJudge, default_granularity
from debate_judge.programs.judge import Judge
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.runs.export.folder import find
from debate_judge.runs.export.from_mlflow import DEFAULT_STORE, MLflowStore, in_mlflow
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.export.recorded import evidence_part
from debate_judge.runs.flags.declaration import listed
from debate_judge.runs.flags.judge import option_value, personas, roles_of

_DEFAULT_TEMPERATURE = 1.0
"""Of samples."""

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class NamedJudge:
    """A judge as the user named it."""

    address: str
    """A preset, `module:Class`, the folder of an export or its place in MLflow."""
    settings: Settings = field(default_factory=dict)
    """Those in brackets."""
    export: Export | None = None

    @property
    def brackets(self) -> str:
        """The settings as they were written."""
        return bracketed(self.settings)


@dataclass(frozen=True)
class Entrant:
    """One judge of the table."""

    name: str
    aspects: Mapping[str, AspectJudge]
    """Aspect -> the judge that scores it."""
    held_out: str | None = None
    """Of an export: the fingerprint of its held-out groups, which it was neither tuned nor selected on."""
    base: str = ""
    """Its name without brackets."""
    settings: Settings = field(default_factory=dict)
    """Those in brackets."""

    def without(self, setting: str) -> str:
        """Its name without one of the settings."""
        return self.base + bracketed({name: value for name, value in self.settings.items() if name != setting})

    def lm(self, usual: JudgeLM) -> JudgeLM | None:
        """The LM that it asks, if it is another sample or temperature than the usual one."""
        if not {"sample", "temperature"} & set(self.settings):
            return None
        temperature = self.settings.get("temperature", _DEFAULT_TEMPERATURE)
        return usual.another_sample(self.settings.get("sample", 0), temperature)

    def dry_run_copy(self) -> Entrant:
        """The same for an estimate."""
        copies = {name: replace(judge, judge=judge.judge.dry_run_copy()) for name, judge in self.aspects.items()}
        return replace(self, aspects=copies)


def named_judges(names: Sequence[str], store: MLflowStore = DEFAULT_STORE) -> list[NamedJudge]:
    """What a user named, exports opened, a judge for each combination of alternatives in brackets."""
    parsed = [judge for name in names for judge in _parsed(name)]
    # A judge of the user's own that takes part itself may be imported for an export of it, too.
    addresses = [judge.address for judge in parsed]
    # Once for all alternatives: one in MLflow is fetched.
    exports = {address: find(address, addresses, store) for address in dict.fromkeys(addresses) if _is_export(address)}
    return [replace(judge, export=exports.get(judge.address)) for judge in parsed]


def entrants(
    named: Sequence[NamedJudge], aspects: Sequence[Aspect], personas_file: Path | None = None
) -> list[Entrant]:
    """The judges that a user named, in that order, with the user's own personas by name.

    A judge named twice, an unknown setting, and an export that does not judge one of the aspects are refused.
    """
    texts = personas(personas_file)
    made = [_entrant(judge, aspects, texts) for judge in named]
    twice = {c.name for c in made if sum(c.name == other.name for other in made) > 1}
    # Two exports of the same name go by what the user wrote.
    made = [
        replace(c, name=judge.address + judge.brackets, base=judge.address) if c.name in twice and judge.export else c
        for judge, c in zip(named, made, strict=True)
    ]
    for i, c in enumerate(made):
        if c.name in {other.name for other in made[:i]}:
            raise InputError("a judge is named twice", field="--judges", expected="each judge once", found=c.name)
    return made


def expected() -> str:
    """What may be named, in words."""
    return f"one of {', '.join(JUDGES)}, module:Class, or an export: folder, models:/NAME@champion, or id of its run"


# --- names and brackets ---


def _parsed(text: str) -> Iterator[NamedJudge]:
    address, bracket, inside = text.partition("[")
    if bracket and not inside.endswith("]"):
        raise _unreadable(text)
    values: dict[str, list[Any]] = {}
    for part in listed(inside[:-1]):
        name, equals, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name or name in values:
            raise _unreadable(text)
        values[name] = [_value(alternative.strip()) for alternative in value.split("|")]
    for chosen in product(*values.values()):
        yield NamedJudge(address.strip(), dict(zip(values, chosen, strict=True)))


def _unreadable(text: str) -> InputError:
    return InputError(
        "a judge's settings cannot be read",
        field="--judges",
        expected="JUDGE[NAME=VALUE,...], each name once, such as debate[rounds=2,persona=plain]",
        found=text,
    )


def _value(text: str) -> Any:
    """A JSON value where it is one (numbers, true, false), a list in brackets, otherwise the text itself."""
    if text.startswith("[") and text.endswith("]"):
        return [_value(part) for part in listed(text[1:-1])]
    return option_value(text)


def bracketed(settings: Settings) -> str:
    """Settings as a user writes them; empty where there are none."""
    return "[" + ",".join(f"{name}={_written(value)}" for name, value in settings.items()) + "]" if settings else ""


def _written(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return value if isinstance(value, str) else json.dumps(value)


# --- judges ---


def _is_export(address: str) -> bool:
    return address not in JUDGES and (in_mlflow(address) or Path(address).is_dir())


def _entrant(named: NamedJudge, aspects: Sequence[Aspect], texts: Mapping[str, str]) -> Entrant:
    judge_settings = {name: value for name, value in named.settings.items() if name not in ("sample", "temperature")}
    _check_sampling(named)
    if named.export is None:
        judge = _preset(named, judge_settings, texts)
        judges = {a.name: AspectJudge(judge, default_granularity(judge, a)) for a in aspects}
        return Entrant(named.address + named.brackets, judges, None, named.address, named.settings)
    missing = [a.name for a in aspects if a.name not in named.export.judge.aspects]
    if missing:
        raise InputError(
            "the export does not judge these aspects",
            file=named.address,
            expected=", ".join(a.name for a in aspects),
            found="only " + ", ".join(named.export.judge.aspects),
            remedy="name the aspects that it judges with --aspects",
        )
    judges = {
        name: replace(j, judge=_varied(j.judge, judge_settings, texts, named))
        for name, j in named.export.judge.aspects.items()
    }
    splits = evidence_part(named.export.manifest, "splits", dict[str, str]) or {}
    base = _short(named.address, named.export)
    return Entrant(base + named.brackets, judges, splits.get("held_out", ""), base, named.settings)


def _short(address: str, export: Export) -> str:
    """Its folder's name, its name in the registry, or the name of its run."""
    if not in_mlflow(address):
        return Path(address).name
    return address.partition(":/")[2] if address.startswith("models:/") else str(export.manifest["name"])


def _preset(named_judge: NamedJudge, settings: Settings, texts: Mapping[str, str]) -> Judge:
    if named_judge.address not in JUDGES and ":" not in named_judge.address:
        remedy = did_you_mean(named_judge.address, JUDGES, cutoff=0.4)
        raise InputError(f"unknown judge {named_judge.address!r}", field="--judges", expected=expected(), remedy=remedy)
    options: dict[str, Any] = {
        name: value for name, value in settings.items() if name in options_of(named_judge.address)
    }
    with _settings_of(named_judge):
        if isinstance(options.get("roles"), str):
            options["roles"] = roles_of(options["roles"])
        judge = build_preset(named_judge.address, options)
    return _varied(judge, {name: value for name, value in settings.items() if name not in options}, texts, named_judge)


def _varied(judge: Judge, settings: Settings, texts: Mapping[str, str], named: NamedJudge) -> Judge:
    """The same judge, its instructions included, with other settings."""
    if not settings:
        return judge
    changed, state = {**judge.config(), **settings}, judge.dump_state()
    known = [name for name in judge.config() if name not in ("persona_text", "gap")]
    with _settings_of(named):
        for name in settings:
            if name not in known:
                wanted = f"one of {', '.join(known)}, sample, temperature"
                raise InputError(f"no setting {name!r}", expected=wanted, remedy=did_you_mean(name, known))
        if "persona" in settings:
            name = str(settings["persona"])
            if name not in texts:
                wanted = f"one of {', '.join(texts)}"
                raise InputError(f"unknown persona {name!r}", expected=wanted, remedy=did_you_mean(name, texts))
            # The instructions of the Critic are its persona, and whether it scores blind is part of that.
            changed.pop("gap", None)
            changed["persona_text"], state = (
                texts[name],
                {n: predictor_state for n, predictor_state in state.items() if n != "critic"},
            )
        copy = build(judge.kind, changed)
    for name, predictor in copy.named_predictors():
        if name in state:
            predictor.load_state(state[name])
    return copy


@contextmanager
def _settings_of(judge: NamedJudge) -> Iterator[None]:
    """Turn what is wrong with a judge's settings into an error about what the user wrote."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        known = error if isinstance(error, InputError) else InputError(f"the judge cannot be made: {error!r}")
        raise known.changed(field="--judges", found=judge.address + judge.brackets) from error


def _check_sampling(judge: NamedJudge) -> None:
    sample, temperature = judge.settings.get("sample", 0), judge.settings.get("temperature", 0.0)
    with _settings_of(judge):
        if type(sample) is not int or sample < 0:
            raise InputError("not the number of a sample", expected="sample=N, a whole number")
        if type(temperature) not in (int, float) or not 0 <= temperature <= 2:
            raise InputError("not a temperature", expected="temperature=X, from 0 to 2")
