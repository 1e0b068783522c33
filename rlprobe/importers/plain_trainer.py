"""The Hugging Face Trainer without TRL: it logs under the same names, but few of them."""

from __future__ import annotations

from collections.abc import Iterable

from rlprobe import naming

TRL = "trl"
TRANSFORMERS = "transformers"
_OWN = frozenset(  # of transformers.Trainer itself
    {
        "loss",
        "Training Loss",
        "Validation Loss",
        "grad_norm",
        "learning_rate",
        "epoch",
        "step",
        "num_input_tokens_seen",
        "train_tokens_per_second",
        "train_runtime",
        "total_flos",
    }
)
_STARTS = ("eval_", "eval/", "train_", "test_")
_OF_TRL = ("rewards/", "logps/", "logits/", "completions/", "sampling/", "clip_ratio", "entropy")


def told_apart(framework: str | None, keys: Iterable[str]) -> str | None:
    """The framework that these keys gave away; a Trainer that logs nothing of TRL's is itself."""
    if framework != TRL:
        return framework
    aliases = naming.every()[TRL]
    bare = {aliases.bare(key) for key in keys}
    own = (aliases.exact.keys() | set(aliases.detect)) - _OWN
    is_trls = any(
        (key in own or key.startswith(_OF_TRL)) and not key.startswith(_STARTS) for key in bare
    )
    return TRL if is_trls else TRANSFORMERS
