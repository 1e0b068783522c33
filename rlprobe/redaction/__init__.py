"""Secrets are left out of what is recorded: of commands, settings, and the last lines of a failure.

Three ways to know one: by the name beside it, whose parts count as words (`--hf-token`,
`WANDB_API_KEY`, but not `--tokenizer` or `max_tokens`); by its shape (`hf_…`, `ghp_…`, a JWT, a
private key); by where it stands (`https://user:secret@host`, `Authorization: …`, `?sig=…`).

What is left out becomes `***`. That errs to the side of hiding where a name says so, and to the
side of showing where only a shape could: model names, paths, hashes of commits stay readable.

names     what a name says of the value beside it
shapes    what a value looks like
content   texts, without their secrets
options   what stands beside an option of a command
command   command lines
nested    settings, nested as they are
"""

from rlprobe.redaction.command import words
from rlprobe.redaction.content import lines, text
from rlprobe.redaction.nested import settings
from rlprobe.redaction.shapes import MASK

__all__ = ["MASK", "lines", "settings", "text", "words"]
