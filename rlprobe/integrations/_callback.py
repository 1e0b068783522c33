"""The callback that the Trainer calls; it only passes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from transformers import TrainerCallback

if TYPE_CHECKING:
    from rlprobe.integrations._session import Session


class RecorderCallback(TrainerCallback):  # type: ignore[misc]
    """Connects a trainer to its recording session.

    A copy (deepcopy, pickle) of it is not connected to anything: two trainers never write into one
    recording. It has no state that a checkpoint would keep.
    """

    def __init__(self, session: Session | None = None) -> None:
        self.session = session

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def _pass(self, method: str, *args: Any, **kwargs: Any) -> None:
        if self.session is not None:
            self.session.probes.run(method, getattr(self.session, method), *args, **kwargs)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training begins, from the start or from a checkpoint."""
        self._pass("on_train_begin", state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step's first micro-batch is next."""
        self._pass("on_step_begin", state)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The gradients are complete, and clipped."""
        self._pass("on_pre_optimizer_step")

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The weights are updated."""
        self._pass("on_optimizer_step", kwargs.get("optimizer"), kwargs.get("lr_scheduler"))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The step is over; whether it is logged is decided."""
        self._pass("on_step_end", logged=bool(control.should_log))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """A row of scalars is logged. The same dict goes to other callbacks: it is only read."""
        self._pass("on_log", state, dict(logs or {}))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint was written."""
        self._pass("on_save", state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The training loop is over."""
        self._pass("on_train_end", state)
