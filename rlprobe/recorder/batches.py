"""Rows of the backlog as the bytes of shards. A row that no column can take costs no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from rlprobe.naming import LiveAliases
from rlprobe.recorder.backlog import Backlog
from rlprobe.recorder.health import Health

AUTO = "auto"  # as a framework: the one whose names the rows turn out to have
GENERIC = "generic"


class Batches:
    """Owns the encoders of all tables.

    Args:
        framework: whose names rows have; `AUTO` for the one that the names give away.
    """

    def __init__(self, framework: str | None, health: Health, *, attempt: int, rank: int) -> None:
        # Imported now, whole: nothing can be imported any more while an interpreter shuts down.
        from rlprobe.recorder.encode import MetricEncoder
        from rlprobe.store.shards import TooWideError

        self.attempt = attempt
        self._rank = rank
        self._health = health
        self._too_wide = TooWideError
        self._rejected: Counter[str] = Counter()  # of the batch at hand
        self._aliases = LiveAliases(None if framework == AUTO else framework or GENERIC)
        self._told: dict[str, str] = {"framework": GENERIC} if framework == AUTO else {}
        self._metrics = {
            name: MetricEncoder(name, self._aliases, self._reject) for name in ("steps", "ranks")
        }

    def news(self) -> dict[str, str]:
        """What the names of rows have given away since this was asked last, for the manifest."""
        if not self._told or self._told["framework"] == self._aliases.framework:
            return {}
        known = {"framework": self._aliases.framework, "algorithm": self._aliases.algorithm() or ""}
        self._told = {name: value for name, value in known.items() if value}
        return self._told

    def _reject(self, name: str) -> None:
        self._rejected[name] += 1

    def encode(
        self,
        table: str,
        rows: list[Any],
        backlog: Backlog,
        to_bytes: Callable[[str, Any], Any],
    ) -> tuple[Any, int] | None:
        """Bytes of a shard, and of how many of the oldest rows; None if rows had to go first.

        Args:
            rows: the oldest rows of this table in the backlog.
        """

        def encode(part: list[Any]) -> Any:
            self._rejected.clear()
            return to_bytes(table, self._table(table, part))

        try:
            content = encode(rows)
        except self._too_wide:
            return self.encode(table, rows[: len(rows) // 2], backlog, to_bytes)
        except Exception as error:
            odd = _odd_rows(rows, 0, encode)
            if not odd:  # each can be encoded, all together cannot: fewer may
                return self.encode(table, rows[: len(rows) // 2], backlog, to_bytes)
            backlog.discard(table, set(odd))
            self._health.count(f"dropped_{table}_rows", len(odd))
            self._health.fail(f"encode {table}", error)
            return None
        self._tell_rejected()
        return content, len(rows)

    def _table(self, table: str, rows: list[Any]) -> Any:
        from rlprobe.store import codec

        if table not in self._metrics:
            return codec.rows(table, rows)
        constants = {"attempt": self.attempt}
        if table == "ranks":
            constants["rank"] = self._rank
        return self._metrics[table].encode(rows, constants)

    def _tell_rejected(self) -> None:
        for name, count in self._rejected.items():
            self._health.no_number(name, count)
        self._rejected.clear()


def _odd_rows(rows: list[Any], first: int, encode: Callable[[list[Any]], Any]) -> list[int]:
    """Positions of the rows that cannot be encoded even alone."""
    try:
        encode(rows)
    except Exception:
        if len(rows) == 1:
            return [first]
        half = len(rows) // 2
        return [
            *_odd_rows(rows[:half], first, encode),
            *_odd_rows(rows[half:], first + half, encode),
        ]
    return []
