"""Whether every name that a detector uses means something: a misspelt one would disable it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rlprobe import catalog, schema
from rlprobe.detector import Detector
from rlprobe.findings import Finding
from rlprobe.scan.context import Context
from rlprobe.values import Event, Series

_WHOLE_NEEDS = ("samples", "ranks")


def misspelt(detector: type[Detector], also: Collection[str] = ()) -> Iterator[str]:
    """Names in `needs` and `caused_by` that nobody else knows."""
    for need in dict.fromkeys(need for group in detector.needs for need in group):
        kind = need.removeprefix("event:")
        if need in _WHOLE_NEEDS or need in also:
            continue
        if need != kind:
            if kind not in schema.event_kinds() and kind not in also:
                yield f"needs '{need}': no such kind of event"
        elif not is_metric(need, also):
            yield f"needs '{need}': no such metric"
    causes = {*catalog.load(), *also}
    yield from (
        f"caused_by '{cause}': no such detector"
        for cause in detector.caused_by
        if cause not in causes
    )
    if detector.id in detector.caused_by:
        yield f"caused_by '{detector.id}': itself"


def is_metric(name: str, also: Collection[str] = ()) -> bool:
    """Whether the vocabulary has this metric, or the family that a name in `/*` stands for."""
    return name in also or name in schema.metrics() or schema.metric(name) is not None


class WatchedContext(Context):
    """A run that notes what a detector asks for under a name that means nothing."""

    def __init__(self, context: Context, also: Collection[str] = ()) -> None:
        super().__init__(context.run)
        self._also = {*also, *context.run.steps.names, *context.run.ranks.names}
        self.strange: dict[str, None] = {}

    def series(self, metric: str) -> Series | None:
        """One metric; an unknown name is noted."""
        self._check(metric)
        return super().series(metric)

    def rank_series(self, metric: str) -> Mapping[int, Series]:
        """One metric of each rank; an unknown name is noted."""
        self._check(metric)
        return super().rank_series(metric)

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """Metrics that begin so; a beginning that no metric has is noted."""
        families = (name.removesuffix("*") for name in schema.metrics())
        if not any(name.startswith(prefix) or prefix.startswith(name) for name in families):
            self._note(f"metrics '{prefix}…'")
        return super().names(prefix)

    def events(self, *kinds: str) -> tuple[Event, ...]:
        """Events of these kinds; an unknown kind is noted."""
        for kind in kinds:
            if kind not in schema.event_kinds() and kind not in self._also:
                self._note(f"event '{kind}'")
        return super().events(*kinds)

    def _check(self, metric: str) -> None:
        if not is_metric(metric, self._also):
            self._note(f"metric '{metric}'")

    def _note(self, what: str) -> None:
        self.strange[f"asks for {what}, which means nothing"] = None


def strange_metrics(
    finding: Finding, context: Context, also: Collection[str] = ()
) -> Iterator[str]:
    """Metrics of a finding and its evidence that are neither known nor logged."""
    logged = {*context.run.steps.names, *context.run.ranks.names, *also, "samples", "step"}
    for name in (*finding.metrics, *(item.metric for item in finding.evidence)):
        kind = name.removeprefix("event:")
        known = (
            kind in schema.event_kinds() or kind in also
            if kind != name
            else is_metric(name, logged)
        )
        if not known:
            yield f"speaks of '{name}', which means nothing"
