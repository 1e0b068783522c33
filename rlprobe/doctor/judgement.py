"""What of a start would be recorded, and what to do about the rest, from what was looked at."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rlprobe import redaction
from rlprobe.commands.starts import Start
from rlprobe.doctor.imports import Sources
from rlprobe.doctor.inside import Inside
from rlprobe.doctor.interpreter import Answer
from rlprobe.doctor.packages import PACKAGES, Package, Use
from rlprobe.numbers import plural

Verdict = Literal["inside", "output", "unknown", "nothing"]  # from best to worst
ORDER: tuple[Verdict, ...] = ("inside", "output", "unknown", "nothing")
# Packages that say nothing by themselves: a script of these alone prints what it prints itself.
_QUIET = frozenset(
    {"torch", "numpy", "scipy", "pandas", "jax", "jaxlib", "flax", "einops", "matplotlib", "yaml"}
)
_MOST_NAMED = 3


@dataclass(slots=True)
class Judgement:
    """What follows for one start, in sentences.

    Attributes:
        verdict: where its metrics are recorded.
        names: what is recorded from inside, in a few words.
        is_opaque: whether it is a program that is not looked into.
        obstacle: what keeps it from being recorded at all; empty if nothing does.
    """

    verdict: Verdict = "nothing"
    names: list[str] = field(default_factory=list)
    is_opaque: bool = False
    will: list[str] = field(default_factory=list)
    will_not: list[str] = field(default_factory=list)
    to_do: list[str] = field(default_factory=list)
    obstacle: str = ""


def judge(start: Start, sources: Sources, answer: Answer, uses: list[Use]) -> Judgement:
    """What of a start would be recorded.

    Args:
        start: the program.
        sources: what was seen of its code.
        answer: what its Python said.
        uses: the packages of ours that the code uses.
    """
    judged = Judgement(to_do=list(start.around.remarks))
    if start.around.apart:
        _judge_apart(judged, start)
    elif start.problem:
        judged.will_not.append(f"`{_shown(start)}`: {start.problem}")
    elif not start.interpreter:
        judged.is_opaque = True
        judged.will.append(
            f"from inside, where `{start.words[0]}` starts a Python: not looked into"
        )
        _judge_output(judged, start, sources)
    elif start.target.kind == "nothing":
        judged.will_not.append(f"`{_shown(start)}` runs no script")
    else:
        _judge_python(judged, start, sources, answer, uses)
    return judged


def _judge_apart(judged: Judgement, start: Start) -> None:
    judged.will_not.append(f"from inside: {start.around.apart}")
    if not start.around.output:
        judged.verdict = "output"
        judged.will.append("what comes back of its output, where it reads as metrics")


def _judge_python(
    judged: Judgement, start: Start, sources: Sources, answer: Answer, uses: list[Use]
) -> None:
    if answer.problem:
        asked = " ".join(redaction.words(list(start.interpreter))[-3:])
        judged.will_not.append(f"not known: couldn't ask `{asked}`: {answer.problem}")
        judged.verdict = "unknown"
        return
    inside = Inside(start, answer)
    if inside.obstacle:
        judged.will_not.append(f"from inside: {inside.obstacle}")
        judged.to_do += inside.remedies
    if answer.packages is None:
        _judge_output(judged, start, sources)
        return
    judged.will_not += _missing(sources, answer)
    for use in uses:
        _judge_use(judged, use, inside, answer)
    if not judged.names:
        judged.will_not += (_unseen(use, answer) for use in uses if not use.seen)
    if inside.lacks and any(use.package.ours and use.seen for use in uses):
        judged.will_not.append(f"gradients, weights and rollouts of the Trainer: {inside.lacks}")
        judged.to_do += inside.remedies
    _judge_switches(judged, start, sources, uses)
    _judge_cluster(judged, start, uses)
    if sources.missing:
        judged.will_not.append(f"not known: {sources.missing}")
    if judged.obstacle:
        return
    if judged.names:
        judged.verdict = "inside"
    _judge_output(judged, start, sources)


def _judge_use(judged: Judgement, use: Use, inside: Inside, answer: Answer) -> None:
    """What is recorded of one package."""
    package = use.package
    absent = _absent(package, answer)
    where = f" ({', '.join(use.places[:_MOST_NAMED])})" if use.places else ""
    if absent:
        judged.will_not.append(
            f"{package.name}{where}: {absent} is not installed in {answer.executable}"
            + ("" if use.optional else ": the script ends there")
        )
        if not use.optional:
            judged.obstacle = f"the script needs {absent}, which is not there"
            judged.to_do.append(f"{answer.executable} -m pip install {absent}")
        return
    named = f"{package.name} {_version(package, answer)}".strip()
    if not use.seen:
        return
    if inside.obstacle:
        judged.will_not.append(f"calls of {named}: {', '.join(use.seen[:_MOST_NAMED])}")
    else:
        seen = ", ".join(use.seen[:_MOST_NAMED])
        more = len(use.seen) - _MOST_NAMED
        judged.will.append(f"{named}: {seen}" + (f", and {more} more" if more > 0 else ""))
        judged.names += [item.partition(" (")[0] for item in use.seen]
        judged.to_do += _too_old(package, answer)


def _unseen(use: Use, answer: Answer) -> str:
    """What there is to say of a package that is imported, where nothing else is recorded."""
    package = use.package
    what = "a Trainer of it" if package.classes == ("Trainer",) else "a call that is recorded"
    named = f"{package.name} {_version(package, answer)}".strip()
    return f"{named} ({', '.join(use.places[:_MOST_NAMED])}): imported; {what} was not seen"


def _absent(package: Package, answer: Answer) -> str:
    """The first of a package and what it needs that is not there; empty if all is."""
    if not any(answer.has(root) for root in package.roots):
        return package.distributions[0]
    return next((name for name in package.needs if not answer.has(name)), "")


def _version(package: Package, answer: Answer) -> str:
    there = (answer.has(root) for root in package.roots)
    return next((item.version for item in there if item is not None), "")


def _too_old(package: Package, answer: Answer) -> Iterator[str]:
    version = _version(package, answer)
    if package.oldest and version and _parts(version) < _parts(package.oldest):
        yield (
            f"{package.name} {version} is older than what is tested ({package.oldest}): "
            "look after a few steps whether it is recorded"
        )


def _parts(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(int(part) for part in parts[:3] if part.isdigit())


def _missing(sources: Sources, answer: Answer) -> list[str]:
    """Imports of packages that are not there, but for those of the table."""
    known = {root for package in PACKAGES for root in package.roots} | sys.stdlib_module_names
    absent = {
        item.name.partition(".")[0]: f"{file}, line {item.line}"
        for file, item in reversed(sources.imports)
        if not item.optional
    }
    lines = [
        f"`import {root}` ({place})"
        for root, place in reversed(absent.items())
        if root not in known and not answer.has(root)
    ]
    if not lines:
        return []
    named = ", ".join(lines[:_MOST_NAMED])
    named += f" and {len(lines) - _MOST_NAMED} more" if len(lines) > _MOST_NAMED else ""
    return [
        f"{named}: not installed in {answer.executable}, so the script ends there unless it looks "
        "elsewhere"
    ]


def _judge_switches(judged: Judgement, start: Start, sources: Sources, uses: list[Use]) -> None:
    """Trackers that are turned off: their calls are recorded all the same."""
    environ = start.around.environ
    recorded = [use.package for use in uses if use.seen]
    turned_off = [
        f"{name}={environ[name]}"
        for package in recorded
        for name, values in package.switches
        if environ.get(name, "").lower() in values
    ]
    turned_off += sources.switched_off
    if turned_off and judged.names:
        judged.will.append(f"all the same where a tracker is off: {', '.join(turned_off)}")


def _judge_cluster(judged: Judgement, start: Start, uses: list[Use]) -> None:
    """Workers of a Ray that runs already were started without the hook."""
    address = start.around.environ.get("RAY_ADDRESS")
    if address and any(use.package.name == "ray" or use.package.stack for use in uses):
        judged.will_not.append(
            f"workers of the Ray at RAY_ADDRESS={address}: they were started without the hook"
        )
        judged.to_do.append("unset RAY_ADDRESS, so that Ray is started by the command")


def _judge_output(judged: Judgement, start: Start, sources: Sources) -> None:
    """What is recorded of what it prints."""
    output = start.around.output
    if output:
        judged.will_not.append(f"what it prints: it goes to `{output}`, not through us")
        judged.to_do.append(f"let it print here as well: `2>&1 | tee {output}`")
    elif start.target.kind == "notebook":
        judged.will_not.append(
            "what cells print: it goes into the notebook; `rlprobe scan` reads it there"
        )
    elif judged.verdict == "inside":
        judged.will.append("messages in what it prints, and how it ends")
    elif _is_silent(sources):
        judged.will_not.append("what it prints: nothing that prints or logs was seen")
        judged.to_do.append("log with any tracker, or print `step 1 loss 0.5` once a step")
    else:
        judged.verdict = "output"
        if sources.files and not judged.will_not:
            judged.will_not.append(
                "calls: nothing of it reaches a tracker, as far as was looked at; rows come from "
                "what it prints"
            )
        seen = (
            f" (it prints or logs in {plural(sources.prints, 'place')})" if sources.prints else ""
        )
        judged.will.append(f"what it prints, where it reads as metrics{seen}")


def _is_silent(sources: Sources) -> bool:
    """Whether all of a script was looked at, and nothing in it can print."""
    if not sources.files or sources.unread or sources.more or sources.prints:
        return False
    known = _QUIET | set(sys.stdlib_module_names)
    return set(sources.roots()) <= known


def _shown(start: Start) -> str:
    words = " ".join(redaction.words(list(start.words)))
    return words if len(words) <= 60 else f"{words[:59]}…"


def looked_at(start: Start, sources: Sources, answer: Answer) -> list[str]:
    """What was looked at of a start, and no more."""
    lines = [*_of_sources(sources), *_of_python(start, answer)]
    around = start.around
    if around.launcher and around.ranks is None:
        lines.append(f"how many ranks {around.launcher} starts is not in its words")
    elif around.launcher:
        lines.append(f"{plural(around.ranks or 1, 'rank')} expected ({around.launcher})")
    return lines


def _of_sources(sources: Sources) -> list[str]:
    lines = []
    names = list(sources.files)
    if names:
        beside = len(names) - 1
        more = f" and {plural(beside, 'module')} beside it" if beside else ""
        lines.append(f"{names[0]}{more}, by the text: nothing of it was imported or run")
    lines += [f"{name} could not be read: {why}" for name, why in sources.unread[:_MOST_NAMED]]
    unread = len(sources.unread) - _MOST_NAMED
    lines += [f"{plural(unread, 'more file')} could not be read"] if unread > 0 else []
    lines += [f"{plural(sources.more, 'module')} not looked at"] if sources.more else []
    return lines


def _of_python(start: Start, answer: Answer) -> list[str]:
    if not answer.executable:
        return []
    inside = Inside(start, answer)
    there = answer.has("rlprobe")
    if inside.lacks:
        word = f": {inside.lacks}; what it tells its trackers comes by way of a file"
    elif inside.obstacle or there is None:
        word = ""
    else:
        word = f": rlprobe {there.version} is there".replace("  ", " ")
    lines = [f"Python {answer.python} in {answer.executable}, asked where its packages are{word}"]
    for name, place in (answer.customize or {}).items():
        if place and Path(place).parent.name != "autoattach":
            lines.append(f"its own {name} ({place}) runs as usual")
    return lines
