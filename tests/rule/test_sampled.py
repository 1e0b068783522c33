"""What rollouts show at recorded steps: where an episode begins, and what is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlprobe.rule import Sampled, SampledEpisode, Shown
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import Rollout

LAST = 400


def sampled(bad: Sequence[int], of: Sequence[int]) -> tuple[Sampled, list[int]]:
    """A run with rollouts at steps `of`, bad at `bad`; and the steps that were looked at."""
    looked: list[int] = []
    samples: list[Mapping[str, object]] = [
        {"step": step, "group_id": f"g{step}", "sample_id": str(step)} for step in of
    ]
    run = Context(run_of({"name": "run", "rows": LAST, "samples": samples}))

    def look(step: int) -> Shown:
        looked.append(step)
        rollouts: Sequence[Rollout] = run.rollouts(step)
        return Shown(step, float(step in bad), rollouts if step in bad else (), rollouts)

    return Sampled.of(run, look), looked


def episodes(bad: Sequence[int], of: Sequence[int]) -> list[SampledEpisode]:
    shown, _ = sampled(bad, of)
    return list(shown.episodes(shown.shares.values >= 0.5, 0.5))


def test_the_first_bad_step_is_looked_for_between_the_steps_that_were_read() -> None:
    steps = range(1, LAST + 1)
    shown, looked = sampled(range(151, LAST + 1), steps)
    assert len(looked) < len(steps) / 3
    before = len(looked)
    [episode] = shown.episodes(shown.shares.values >= 0.5, 0.5)
    assert episode.period.first == 151
    assert len(looked) - before <= 2
    assert episode.period.state == "ongoing"


def test_an_episode_shows_its_first_group_beside_the_last_healthy_one() -> None:
    [episode] = episodes([5, 6, 7], range(1, 11))
    assert (episode.period.first, episode.period.last) == (5, 7)
    assert episode.samples == ["5", "4"]
    steps = [item.step for item in episode.evidence("share") if item is not None]
    assert steps == [5, None, 4]


def test_a_start_that_passes_and_a_single_step_are_no_episodes() -> None:
    assert not episodes([1, 2, 3], range(1, 11))
    assert not episodes([5], range(1, 11))


def test_the_only_step_there_is_may_be_bad() -> None:
    [episode] = episodes([1], [1])
    assert episode.before is None
    assert episode.samples == ["1"]
    assert episode.period.last == LAST


def test_no_rollouts_show_nothing() -> None:
    assert not episodes([], [])
