"""One step for the terminal: what is off first, then ranks, groups and rollouts."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from rich.text import Text

from rlprobe import numbers, repetition, schema
from rlprobe.report import escape
from rlprobe.report.life import alive
from rlprobe.report.lines import flow, labelled, paint, plain, wrap
from rlprobe.report.reporter import Layout
from rlprobe.report.sparkline import sparkline
from rlprobe.scan.step_view import GroupAtStep, MetricAtStep, RanksAtStep, StepView
from rlprobe.values import Event, Rollout

_ROWS = 5  # metrics shown even when none is off
_MOST = 24  # metrics shown however many are off
_GROUPS = 8
_OUTLIERS = 8
_GUTTER = "    │ "  # no line of a model's text can pass for one of ours, or for a CI command
_TEXT = 160  # characters of a rollout without --full


def render(
    view: StepView,
    layout: Layout,
    *,
    samples: int = 3,
    whole: bool = False,
    everything: bool = False,
) -> str:
    """The screen of `rlprobe show`.

    Args:
        view: what to show.
        layout: how wide, and whether in colour.
        samples: rollouts of the most telling group to show.
        whole: whole texts of them.
        everything: metrics within their usual range too.
    """
    width = layout.columns
    lines = [
        *_header(view, width),
        *_events(view, width),
        Text(),
        *_table(view.metrics, view.window, everything=everything),
        *([Text()] if view.ranks.reporting or view.groups else []),
        *_ranks(view.ranks, view.window, width, everything=everything),
        *_groups(view.groups, width, everything=everything),
        *_rollouts(view.groups, samples, width, whole=whole),
    ]
    return paint(lines, layout)


def _header(view: StepView, width: int) -> list[Text]:
    facts = [f"step {numbers.count(view.step)}", f"attempt {view.attempt}"]
    if math.isfinite(view.time):
        facts.append(numbers.moment(view.time))
    if view.tokens_seen is not None:
        facts.append(f"tokens {numbers.large(view.tokens_seen)}")
    facts += [] if view.pulse is None else [alive(view.pulse, time.time())]
    others = [str(number) for number in view.attempts if number != view.attempt]
    if others:
        facts.append(f"also in attempt {', '.join(others)} (--attempt)")
    first, *rest = flow(facts, width)
    return [Text(first, style="bold"), *plain(rest)]


def _events(view: StepView, width: int) -> list[Text]:
    if not view.events:
        return []
    told = [_event(event, view.attempt) for event in view.events]
    lines = flow([f"events nearby   {told[0]}", *told[1:]], width, rest=" " * 16)
    return plain(lines)


def _event(event: Event, attempt: int) -> str:
    said = f"{numbers.count(event.step or 0)} {escape.name(event.kind)}"
    if event.attempt != attempt:
        said += f" [attempt {event.attempt}]"
    return f"{said} ({escape.start(event.message, 48)})" if event.message else said


def _table(metrics: Sequence[MetricAtStep], window: int, *, everything: bool) -> list[Text]:
    if not metrics:
        return [Text("no metrics were logged at this step")]
    off = sum(item.unusual for item in metrics)
    unjudged = sum(not item.judged for item in metrics)
    most = max(_ROWS, min(off + unjudged, _MOST))
    shown = metrics if everything else _first(metrics, most)
    column = min(32, max(len(escape.name(item.name, 32)) for item in shown))
    head = f"{'metric':<{column}}  {'value':>10}   {f'before (median of {window})':<24}  off by"
    lines = [Text(head, style="dim"), *(_row(item, column) for item in shown)]
    hidden = len(metrics) - len(shown)
    if hidden:
        lines.append(Text(f"… {hidden} more {_why_hidden(metrics, shown)} (--all)"))
    return lines


def _first(metrics: Sequence[MetricAtStep], most: int) -> Sequence[MetricAtStep]:
    """What is off, then what has no past that would tell, then the rest."""
    ordered = sorted(metrics, key=lambda item: (not item.unusual, item.judged))
    return ordered[:most]


def _why_hidden(metrics: Sequence[MetricAtStep], shown: Sequence[MetricAtStep]) -> str:
    hidden = [item for item in metrics if item not in shown]
    if any(item.unusual for item in hidden):
        return "(some of them off)"
    if any(not item.judged for item in hidden):
        return "without enough of a past to tell"
    return "within their usual range"


def _row(item: MetricAtStep, column: int) -> Text:
    entry = schema.metric(item.name)
    spark = sparkline(item.recent, log=entry is not None and entry.scale == "log")
    before = numbers.number(item.median) if item.past else "-"
    text = f"{escape.name(item.name, 32):<{column}}  {numbers.number(item.value):>10}   "
    text += f"{before:<14}{spark:<10}  {_off(item)}"
    return Text(text, style="red" if item.unusual else "")


def _off(item: MetricAtStep) -> str:
    if not math.isfinite(item.value):
        return "not finite"
    if not item.past:
        return "no past"
    if item.off_kind == "ratio":
        return numbers.ratio(item.off)
    return numbers.difference(item.off)


def _ranks(ranks: RanksAtStep, window: int, width: int, *, everything: bool) -> list[Text]:
    if not ranks.reporting:
        return []
    facts = f"{numbers.count(ranks.reporting)} reporting"
    if ranks.metric is not None:
        span = f"{numbers.number(ranks.low)} … {numbers.number(ranks.high)}"
        facts += f"; {escape.name(ranks.metric)} {span}"
    facts += "; none sticks out" if not ranks.outliers else ""
    lines = labelled("ranks", facts, width, indent=0, column=9)
    for item in ranks.outliers[:_OUTLIERS]:
        outlier = f"rank {item.rank}   {escape.name(item.metric, 32)} {numbers.number(item.value)}"
        lines.append(Text(f"  {outlier}   (others {numbers.number(item.median)})   <- sticks out"))
    if len(ranks.outliers) > _OUTLIERS:
        lines.append(Text(f"  … and {len(ranks.outliers) - _OUTLIERS} more"))
    if ranks.rank is not None:
        lines += [Text(f"rank {ranks.rank}, against its own past")]
        lines += _table(ranks.own, window, everything=everything)
    return lines


def _groups(groups: Sequence[GroupAtStep], width: int, *, everything: bool) -> list[Text]:
    if not groups:
        return []
    flat = sum(group.flat for group in groups)
    shown = groups if everything else groups[:_GROUPS]
    lines = labelled("groups", f"{len(groups)}, of which {flat} flat", width, indent=0, column=9)
    for group in shown:
        lines += plain(flow(_group(group), width, rest="      "))
    if len(groups) > len(shown):
        lines.append(Text(f"  … {len(groups) - len(shown)} more groups (--all)"))
    return lines


def _group(group: GroupAtStep) -> list[str]:
    parts = [f"  {escape.name(group.group_id, 24)}"]
    parts.append(numbers.plural(len(group.rollouts), "rollout"))
    parts.append(_rewards(group))
    if not math.isnan(group.low):
        low, high = numbers.number(group.low), numbers.number(group.high)
        parts.append(f"advantages {low} … {high}")
    if group.noise:
        parts.append("<- noise")
    elif group.flat:
        parts.append("flat")
    return parts


def _rewards(group: GroupAtStep) -> str:
    if not group.rewards:
        return "no rewards"
    if len(group.rewards) > 6:
        low, high = group.rewards[0][0], group.rewards[-1][0]
        return f"rewards {numbers.number(low)} … {numbers.number(high)}"
    return "rewards " + ", ".join(f"{numbers.number(value)} x{n}" for value, n in group.rewards)


def _rollouts(
    groups: Sequence[GroupAtStep], samples: int, width: int, *, whole: bool
) -> list[Text]:
    if not groups or samples < 1:
        return []
    group = groups[0]
    hint = "" if whole else " (--samples N, --full for whole texts)"
    lines = [Text(f"rollouts of {escape.name(group.group_id, 24)}{hint}")]
    prompt = group.rollouts[0].prompt
    if prompt:
        lines += _said("prompt", prompt, width, whole=whole)
    for rollout in group.rollouts[:samples]:
        lines += _rollout(rollout, width, whole=whole)
    return lines


def _rollout(rollout: Rollout, width: int, *, whole: bool) -> list[Text]:
    lines = plain(flow(_figures(rollout), width, gap="  ", rest="    "))
    if rollout.completion:
        lines += _said("", rollout.completion, width, whole=whole)
    return lines


def _figures(rollout: Rollout) -> list[str]:
    figures = []
    if rollout.advantage is not None:
        figures.append(f"a={numbers.difference(rollout.advantage)}")
    if rollout.completion_length is not None:
        cut = " (cut)" if rollout.truncated else ""
        figures.append(f"len {numbers.count(rollout.completion_length)}{cut}")
    if rollout.reward is not None:
        figures.append(f"r={numbers.number(rollout.reward)}{_components(rollout)}")
    if rollout.completion and repetition.loops_in_completion(rollout.completion):
        figures.append(_loop(rollout.completion))
    first, *rest = figures or ["nothing recorded but the text"]
    return [f"  {first}", *rest]


def _loop(text: str) -> str:
    often = repetition.most_repeats(repetition.block_of(text))
    short = often <= repetition.MOST_REPEATS  # what fills a short text overlaps
    return "loops" if short else f"{repetition.N}-gram x{often}"


def _components(rollout: Rollout) -> str:
    if not rollout.reward_components:
        return ""
    parts = [
        f"{escape.name(name, 24)} {numbers.number(value)}"
        for name, value in rollout.reward_components.items()
        if value is not None
    ]
    return f" ({', '.join(parts)})"


def _said(label: str, text: str, width: int, *, whole: bool) -> list[Text]:
    opening = f"    {label} " if label else "    "
    if not whole:
        shown = f'"{escape.start(text, _TEXT)}"'
        return plain(wrap(shown, width, first=opening, rest="     "))
    lines = [Text(opening.rstrip())] if label else []
    for part in escape.block(text):
        lines += plain(wrap(part, width, first=_GUTTER, rest=_GUTTER))
    return lines
