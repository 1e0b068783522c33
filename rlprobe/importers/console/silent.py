"""Console output without metrics, of a rank or of an error output: what it tells all the same."""

from __future__ import annotations

from rlprobe.importers.console.ending import LastWords
from rlprobe.importers.console.heard import Heard
from rlprobe.importers.console.messages import Messages
from rlprobe.importers.console.repeats.sieve import blocks_of
from rlprobe.importers.source import Source
from rlprobe.values import Event

_ENDS = frozenset({"crash", "halted"})


def events_of(source: Source) -> list[Event]:
    """The messages of the framework, and how the output ended; at no step where they name none."""
    messages, heard, words = Messages(), Heard(), LastWords()
    for block in blocks_of(source):
        for message in filter(None, map(messages.see, block.texts)):
            heard.hear(message, -1)
        words.add(block.texts)
    events = [item.event for item in heard.told()]
    ending = words.event(None) or heard.ending(-1)
    if ending is None:
        return events
    return [*(event for event in events if event.kind not in _ENDS), ending]
