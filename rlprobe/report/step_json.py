"""One step for programs. Non-finite numbers are null with their kind beside them."""

from __future__ import annotations

import math
from typing import Any

from rlprobe import schema
from rlprobe.report.json import dumps, measured, plain
from rlprobe.scan.step_view import GroupAtStep, MetricAtStep, RanksAtStep, StepView
from rlprobe.values import Event, Rollout


def render(view: StepView) -> str:
    """The document of `rlprobe show --format json`: everything, nothing shortened."""
    return dumps(
        {
            "format_version": schema.REPORT_VERSION,
            "path": view.path,
            "step": view.step,
            "attempt": view.attempt,
            "attempts": list(view.attempts),
            "time": view.time if math.isfinite(view.time) else None,
            **measured("tokens_seen", view.tokens_seen),
            "window": view.window,
            "metrics": [_metric(item) for item in view.metrics],
            "events": [_event(event) for event in view.events],
            "ranks": _ranks(view.ranks),
            "groups": [_group(group) for group in view.groups],
        }
    )


def _metric(item: MetricAtStep) -> dict[str, Any]:
    return {
        "name": item.name,
        **measured("value", item.value),
        "median": item.median if item.past else None,
        "past": item.past,
        "off": item.off if math.isfinite(item.off) else None,
        "off_kind": item.off_kind,
        "deviation": item.deviation if math.isfinite(item.deviation) else None,
        "unusual": item.unusual,
        "recent": plain(item.recent),
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "kind": event.kind,
        "step": event.step,
        "attempt": event.attempt,
        "rank": event.rank,
        "time": event.time if math.isfinite(event.time) else None,
        "message": event.message,
        "data": plain(event.data),
    }


def _ranks(ranks: RanksAtStep) -> dict[str, Any]:
    outliers = [
        {
            "rank": item.rank,
            "metric": item.metric,
            **measured("value", item.value),
            **measured("median", item.median),
        }
        for item in ranks.outliers
    ]
    return {
        "reporting": ranks.reporting,
        "outliers": outliers,
        "rank": ranks.rank,
        "own": [_metric(item) for item in ranks.own],
    }


def _group(group: GroupAtStep) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "flat": group.flat,
        "noise": group.noise,
        "rollouts": [_rollout(rollout) for rollout in group.rollouts],
    }


def _rollout(rollout: Rollout) -> dict[str, Any]:
    return {
        "sample_id": rollout.sample_id,
        "rank": rollout.rank,
        "prompt_id": rollout.prompt_id,
        "prompt": rollout.prompt,
        "completion": rollout.completion,
        **measured("reward", rollout.reward),
        "reward_components": plain(rollout.reward_components),
        **measured("advantage", rollout.advantage),
        "completion_length": rollout.completion_length,
        "truncated": rollout.truncated,
        "capture_reason": rollout.capture_reason,
    }
