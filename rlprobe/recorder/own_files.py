"""What a process writes beside the tables: its attempt, its own file, the manifest.

If somebody deletes the directory under a living process, all of it is made again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlprobe import schema
from rlprobe.recorder.disk import DiskWatch
from rlprobe.recorder.health import Health
from rlprobe.recorder.sink import ShardSink
from rlprobe.store import layout, leftovers, manifest
from rlprobe.store.processes import leads
from rlprobe.store.text import plain_data, text_of


class OwnFiles:
    """This process's files in a run directory.

    Raises:
        OSError: the attempt cannot be claimed.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        rank: int,
        world_size: int,
        launch: str,
        role: str,
        health: Health,
        disk: DiskWatch,
    ) -> None:
        self.run_dir = run_dir
        self._rank = rank
        self._world_size = world_size
        self._launch = launch
        self._writer = f"{role}.{layout.new_writer_id()}"
        self._started = time.time()
        self._owner = os.getpid()
        self._health = health
        self._disk = disk
        self._described: dict[str, Any] = {}
        self.attempt = manifest.claim_attempt(run_dir, launch, rank, self._writer, world_size)
        self.sink = ShardSink(run_dir, self.attempt, rank, self._writer, disk)

    def clear_leftovers(self) -> None:
        """Delete what dead writers left unfinished; rank 0 does it for all."""
        if leads(self._rank):
            with self._disk:
                leftovers.clear(self.run_dir)

    def describe(self, changes: Mapping[str, Any]) -> bool:
        """Add to the manifest, which is rank 0's or the launcher's; whether that is done."""
        if not leads(self._rank):
            return True
        if self._rank == 0:
            own = {"world_size": self._world_size, "environment": manifest.environment()}
            changes = {**changes, **own}
        self._described = manifest.merged(self._described, changes)
        return self._done("describe", lambda: manifest.update(self.run_dir, changes))

    def tell(self, status: str | None) -> bool:
        """Write this process's file: how it stands, and what it lost; whether that is done."""
        return self._done("conclude", lambda: self._write_own_file(status))

    def tell_end(self, status: str) -> bool:
        """Write this process's file, and how all stand into the manifest."""
        told = self.tell(status)
        if leads(self._rank):
            self._done("describe", lambda: manifest.update(self.run_dir, {}))
        return told

    def _write_own_file(self, status: str | None) -> None:
        manifest.write_process(
            self.run_dir,
            self.attempt,
            self._rank,
            self._writer,
            started=self._started,
            status=status,
            health=self._health.totals(),
        )

    def _done(self, what: str, write: Callable[[], None]) -> bool:
        try:
            try:
                with self._disk:
                    write()
            except FileNotFoundError:
                if not self.restore():
                    raise
                with self._disk:
                    write()
        except Exception as error:
            self._health.fail(what, error)
            return False
        return True

    def restore(self) -> bool:
        """Make a deleted run directory again, with all that is known; whether it had gone."""
        with self._disk:
            folders = (*schema.TABLES, layout.ATTEMPTS)
            missing = [name for name in folders if not (self.run_dir / name).is_dir()]
            if not missing:
                return False
            manifest.prepare(self.run_dir)
            if os.getpid() == self._owner:  # a forked child has no file of its own
                self._write_all_again()
        self._health.count("directories_made_again")
        for table, rows in self.sink.forget_shards(missing).items():
            self._health.count(f"deleted_{table}_rows", rows)
        self._health.warn(
            "restored",
            f"rlprobe: '{self.run_dir}' was deleted; it is made again, with what is recorded from "
            "now on",
        )
        return True

    def _write_all_again(self) -> None:
        manifest.reopen_attempt(
            self.run_dir, self.attempt, self._launch, self._rank, self._writer, self._world_size
        )
        if leads(self._rank):
            manifest.update(self.run_dir, self._described)

    def move(self, attempt: int) -> None:
        """Go on under another attempt (the launcher, when a job restarts itself)."""
        self.attempt = attempt
        self.sink.move(attempt)


def describable(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes to the manifest as JSON can hold them, copied."""
    config = changes.get("config")
    if config is not None and not isinstance(config, Mapping):
        config = {"config": config}
    names = {
        key: text_of(changes[key])
        for key in ("framework", "algorithm", "model")
        if changes.get(key) is not None
    }
    return plain_data({**changes, **names, "config": plain_data(config or {})})
