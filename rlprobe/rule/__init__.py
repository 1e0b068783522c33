"""The words that a detector's rules are written in.

    length = Signal.of(run, "completion_length_mean", minimum=8, above=0)
    past = length.past(log=1.0, below=math.log(2), warmup=3, window=WHOLE)
    short = Judged(length, bad=past.under(0.25))
    for stretch in short.persistent():
        yield finding(self, stretch, f"Length fell to {number(stretch.usual)}{SINCE}.", ...)

signals     a metric over the logged steps, and what it was like before each of them
changes     abrupt changes, against all changes that the signal made before
breaks      milder changes, of which several at one moment prove much
levels      slow drifts, against the beginning of the run
rewards     what the parts of a reward are for, and what has been learnt
drift       where a signal began, and where the drift to where it got set in
episodes    where a rule says that it is bad, and the episodes of that
ranks       one metric of all ranks, and what each is compared with
learning    whether the reward still grows, whether it is at its top
flat        the share of groups whose rewards are all equal
reach       how far a reward can go, and how much of that was gained
rollouts    which recorded steps are read, and what belongs to a group
sampled     what rollouts show at the recorded steps, and the episodes of that
spikes      rows far above what is usual before and after them, and what lasts
gradients   where gradients are not finite, and whether their update was skipped
losses      what kind of loss a run logs, and why that is believed
onsets      where a fall began
collectives who is missing from a collective that timed out
events      what several rules ask of a run's events
wording     an episode in words

Everything is an array over a signal's rows (its logged steps) and costs time linear in them.
"""

from rlprobe.numbers import factor
from rlprobe.numbers import short as number
from rlprobe.rule.breaks import Break, breaks_in, held_until, moments
from rlprobe.rule.changes import Shift, leaps, level_moves, shifts
from rlprobe.rule.collectives import Absence, absences
from rlprobe.rule.drift import beginning, drift_onset, from_drift
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
from rlprobe.rule.events import concerns_gradients, concerns_weights, restarts, told_change
from rlprobe.rule.flat import (
    TELL_GROUPS,
    equal,
    flat_and_reward,
    flat_shares,
    in_blocks,
    told_of_few,
)
from rlprobe.rule.gradients import SKIPPING, BadGradients, names_in, skipped_updates
from rlprobe.rule.learning import near_top, still_gains
from rlprobe.rule.levels import Levels, after_plateau, rise_at_end
from rlprobe.rule.losses import LossKind, halved_since, held_out, training_loss
from rlprobe.rule.onsets import descent_onset
from rlprobe.rule.ranks import RankGrid, all_steps
from rlprobe.rule.reach import Reach, dead_parts, reached_top
from rlprobe.rule.rewards import Earned, Learnt, learnt_since, sides
from rlprobe.rule.rollouts import groups, sampled_steps, unpicked
from rlprobe.rule.sampled import Sampled, SampledEpisode, Shown
from rlprobe.rule.signals import WHOLE, Best, Past, Signal, early
from rlprobe.rule.spikes import Spikes, period
from rlprobe.rule.wording import (
    SINCE,
    after,
    drift_finding,
    finding,
    listed,
    restore,
    shift_finding,
)

__all__ = [
    "SINCE",
    "SKIPPING",
    "TELL_GROUPS",
    "WHOLE",
    "Absence",
    "BadGradients",
    "Best",
    "Break",
    "Change",
    "Earned",
    "Judged",
    "Learnt",
    "Levels",
    "LossKind",
    "Moment",
    "Past",
    "Period",
    "RankGrid",
    "Reach",
    "Sampled",
    "SampledEpisode",
    "Shift",
    "Shown",
    "Signal",
    "Spikes",
    "Stretch",
    "absences",
    "after",
    "after_plateau",
    "all_steps",
    "beginning",
    "breaks_in",
    "concerns_gradients",
    "concerns_weights",
    "dead_parts",
    "descent_onset",
    "drift_finding",
    "drift_onset",
    "early",
    "equal",
    "factor",
    "finding",
    "flat_and_reward",
    "flat_shares",
    "from_drift",
    "groups",
    "halved_since",
    "held_out",
    "held_until",
    "in_blocks",
    "known",
    "leaps",
    "learnt_since",
    "level_moves",
    "listed",
    "moments",
    "names_in",
    "near_top",
    "number",
    "period",
    "reached_top",
    "restarts",
    "restore",
    "rise_at_end",
    "sampled_steps",
    "shift_finding",
    "shifts",
    "sides",
    "skipped_updates",
    "still_gains",
    "stretch_from",
    "together",
    "told_change",
    "told_of_few",
    "training_loss",
    "unpicked",
]
