"""The words that a detector's rules are written in.

    length = Signal.of(run, "completion_length_mean", minimum=8, above=0)
    past = length.past(log=1.0, below=math.log(2), warmup=3, window=WHOLE)
    short = Judged(length, bad=past.under(0.25))
    for stretch in short.persistent():
        yield finding(self, stretch, f"Length fell to {number(stretch.usual)}{SINCE}.", ...)

signals     a metric over the logged steps, and what it was like before each of them
changes     abrupt changes, against all changes that the signal made before
levels      slow drifts, against the beginning of the run
rewards     what the parts of a reward are for, and what has been learnt
episodes    where a rule says that it is bad, and the episodes of that
ranks       one metric of all ranks, and what each is compared with
flat        the share of groups whose rewards are all equal
rollouts    which recorded steps are read, and what belongs to a group
sampled     what rollouts show at the recorded steps, and the episodes of that
events      what several rules ask of a run's events and of its kind
wording     an episode in words

Everything is an array over a signal's rows (its logged steps) and costs time linear in them.
"""

from rlprobe.numbers import factor
from rlprobe.numbers import short as number
from rlprobe.rule.changes import Shift, leaps, shifts
from rlprobe.rule.episodes import (
    Change,
    Judged,
    Moment,
    Period,
    Stretch,
    known,
    stretch_from,
    together,
)
from rlprobe.rule.events import concerns_gradients, is_signed, learns_by_reward, restarts
from rlprobe.rule.flat import equal, flat_shares
from rlprobe.rule.levels import Levels, after_plateau, rise_at_end
from rlprobe.rule.ranks import RankGrid, all_steps
from rlprobe.rule.rewards import Learnt, is_auxiliary, is_task, learnt_since
from rlprobe.rule.rollouts import groups, sampled_steps
from rlprobe.rule.sampled import Sampled, SampledEpisode, Shown
from rlprobe.rule.signals import WHOLE, Best, Past, Signal, early
from rlprobe.rule.wording import SINCE, after, finding, listed, restore

__all__ = [
    "SINCE",
    "WHOLE",
    "Best",
    "Change",
    "Judged",
    "Learnt",
    "Levels",
    "Moment",
    "Past",
    "Period",
    "RankGrid",
    "Sampled",
    "SampledEpisode",
    "Shift",
    "Shown",
    "Signal",
    "Stretch",
    "after",
    "after_plateau",
    "all_steps",
    "concerns_gradients",
    "early",
    "equal",
    "factor",
    "finding",
    "flat_shares",
    "groups",
    "is_auxiliary",
    "is_signed",
    "is_task",
    "known",
    "leaps",
    "learns_by_reward",
    "learnt_since",
    "listed",
    "number",
    "restarts",
    "restore",
    "rise_at_end",
    "sampled_steps",
    "shifts",
    "stretch_from",
    "together",
]
