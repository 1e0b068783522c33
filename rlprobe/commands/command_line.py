"""Words of a command -> the programs it starts, through all that stands before them.

Nothing is started: programs are told by their names and their first bytes, scripts of the shell by
their text.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlprobe.commands import elsewhere, environments, notebooks, python_words, ranks, wrappers
from rlprobe.commands.shell_script import MOST_TEXT, Script, read_text
from rlprobe.commands.starts import Start, Surroundings, Target

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_MOST_DEPTH = 20
_MOST_STARTS = 50
_SHELL_TAKES = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")
_HEAD = 256
# How an executable of PyInstaller and of Nuitka is told.
_FROZEN = (b"MEI\014\013\012\013\016", b"NUITKA_ONEFILE", b"_MEIPASS2")
_TAIL = 65_536


@dataclass
class Reading:
    """What was found in a command.

    Attributes:
        starts: the programs, in the order in which they would start.
        texts: scripts of the shell that were read.
        remarks: what was not followed in them.
        others: commands in scripts of the shell that start no Python as far as can be seen.
        cut: whether there was more than was looked at.
    """

    starts: list[Start] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    others: int = 0
    cut: bool = False


def read(words: Sequence[str], environ: Mapping[str, str], directory: Path) -> Reading:
    """The programs that a command starts.

    Args:
        words: the command.
        environ: the environment that it would get.
        directory: where it would run.
    """
    reading = Reading()
    starts = _Starts(reading).of(list(words), Surroundings(environ, directory))
    for start in starts:
        if len(reading.starts) >= _MOST_STARTS:
            reading.cut = True
            break
        reading.starts.append(start)
    return reading


class _Starts:
    """Follows the words of a command inwards."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def of(
        self, words: list[str], around: Surroundings, document: str | None = None
    ) -> Iterator[Start]:
        """The programs that these words start."""
        if not words:
            return
        if around.depth > _MOST_DEPTH:
            self._reading.cut = True
            return
        name = Path(words[0]).name
        deeper = replace(around, depth=around.depth + 1)
        apart = elsewhere.apart(name, words[1:])
        if apart is not None:
            yield _apart(words, around, name, apart)
            return
        inner = wrappers.unwrapped(name, words[1:], deeper)
        inner = inner or environments.entered(name, words, deeper)
        if inner is not None:
            yield from self.of(*inner)
            return
        launched = ranks.started(name, words[1:], deeper)
        if launched is not None:
            yield from self._launched(launched, words, deeper)
            return
        notebook = notebooks.executed(name, words[1:])
        if notebook is not None:
            yield _notebook(words, around, notebook)
        elif name in SHELLS:
            yield from self._of_shell(words, deeper)
        elif python_words.is_python(name):
            yield from self._of_python(words, deeper, document)
        else:
            yield from self._of_file(words, deeper)

    def _launched(
        self, launched: list[ranks.Started], words: list[str], around: Surroundings
    ) -> Iterator[Start]:
        """Each rank starts with the Python that the launcher itself runs in."""
        if not launched:
            yield Start(tuple(words), around)
        for command, there in launched:
            own = _python_beside(words[0], there) if command[:1] == ["python"] else None
            yield from self.of([own, *command[1:]] if own else command, there)

    def _of_python(
        self, words: list[str], around: Surroundings, document: str | None
    ) -> Iterator[Start]:
        own, target, arguments = python_words.parse(words[1:])
        launcher = ranks.MODULES.get(target.text) if target.kind == "module" else None
        if launcher is not None:
            for command, there in ranks.started(launcher, arguments, around) or []:
                again = [words[0], *own, *command[1:]] if command[:1] == ["python"] else command
                yield from self.of(again, there)
            return
        if target.kind == "module" and target.text in ("nbconvert", "jupyter", "papermill"):
            name = "jupyter-nbconvert" if target.text == "nbconvert" else target.text
            notebook = notebooks.executed(name, arguments)
            if notebook is not None:
                yield _notebook(words, around, notebook)
                return
        if target.kind == "stdin" and document is not None:
            target = Target("code", document)
        yield _python(words, around, own, target)

    def _of_shell(self, words: list[str], around: Surroundings) -> Iterator[Start]:
        at = 1
        while at < len(words) and words[at][:1] in ("-", "+") and words[at] not in ("-", "--"):
            if words[at][0] == "-" and not words[at].startswith("--") and "c" in words[at]:
                rest = words[at + 1 :]
                script = Script(rest[0] if rest else "", around, arguments=rest[2:])
                yield from self._of_script(script, f"{words[0]} -c")
                return
            at += 2 if words[at] in _SHELL_TAKES else 1
        rest = [word for word in words[at : at + 1] if word != "--"] + words[at + 1 :]
        if not rest:
            yield Start(tuple(words), around, problem="reads its commands from standard input")
            return
        path = around.directory / rest[0]
        text = read_text(path)
        if text is None:
            yield Start(tuple(words), around, problem=f"couldn't read '{rest[0]}'")
            return
        script = Script(text, around, name=path.name, folder=path.parent, arguments=rest[1:])
        yield from self._of_script(script, rest[0])

    def _of_script(self, script: Script, shown: str) -> Iterator[Start]:
        """What a script of the shell starts; what starts no Python is counted."""
        self._reading.texts.append(shown)
        for words, around, document in script.commands():
            inner = list(self.of(words, replace(around, depth=around.depth + 1), document))
            for start in inner:
                if start.interpreter or start.around.apart:
                    yield start
                elif "$" in words[0] or "`" in words[0]:
                    self._reading.remarks.append(
                        f"`{words[0]}` in {around.where or shown} is not known before it runs"
                    )
                else:
                    self._reading.others += 1
        self._reading.cut |= script.cut
        unfollowed = (f"`{words}` in {shown} was not followed" for words in script.unfollowed)
        self._reading.remarks += dict.fromkeys(unfollowed)

    def _of_file(self, words: list[str], around: Surroundings) -> Iterator[Start]:
        """A program by its first bytes: a script by its `#!`, or something that is no script."""
        if around.runner:  # a console script of an environment that is not ours to look into
            target = Target("script", words[0], tuple(words[1:]))
            yield _python(["python"], around, [], target, shown=words)
            return
        path = _program(words[0], around)
        if path is None:
            problem = "" if "$" in words[0] else "not found"
            yield Start(tuple(words), around, problem=problem)
            return
        line = _shebang(path)
        if not line:
            yield Start(tuple(words), around, problem=_binary(path))
            return
        if Path(line[0]).name == "env":
            _, line = ["env"], _env_words(line[1:])
        if line and python_words.is_python(Path(line[0]).name):
            own, _, _ = python_words.parse(line[1:])
            target = Target("script", str(path), tuple(words[1:]))
            yield _python([line[0]], around, own, target, shown=words)
        elif line:
            yield from self.of([*line, str(path), *words[1:]], around)


def _env_words(words: Sequence[str]) -> list[str]:
    """The words behind `#!/usr/bin/env`, which `-S` splits, too."""
    rest = [word for word in words if word != "-S"]
    while rest and (rest[0].startswith("-") or wrappers.assignment(rest[0])):
        rest = rest[1:]
    return rest


def _python(
    words: Sequence[str],
    around: Surroundings,
    own: Sequence[str],
    target: Target,
    shown: Sequence[str] = (),
) -> Start:
    """The start of a Python, if it is there to be started."""
    closed = python_words.closing(own)
    if around.runner:
        interpreter = (*around.runner, words[0], *own)
        return Start(tuple(shown or words), around, interpreter, target, closed)
    path = _program(words[0], around)
    if path is None:
        return Start(tuple(shown or words), around, problem="not found")
    return Start(tuple(shown or words), around, (str(path), *own), target, closed)


def _apart(words: list[str], around: Surroundings, name: str, why: tuple[str, str]) -> Start:
    nowhere = "nowhere we see" if elsewhere.shows_nothing(name) else around.output
    remarks = (*around.remarks, why[1])
    return Start(tuple(words), replace(around, apart=why[0], output=nowhere, remarks=remarks))


def _notebook(words: list[str], around: Surroundings, notebook: str) -> Start:
    """The Python of a notebook's kernel."""
    content = notebooks.document(around.directory / notebook)
    target = Target("notebook", notebook)
    if around.runner:
        return Start(tuple(words), around, (*around.runner, "python"), target)
    path = _program(words[0], around)
    if path is None:
        return Start(tuple(words), around, problem="not found")
    own = _python_beside(words[0], around) or str(path)
    name = notebooks.kernel_of(content)
    python, known = notebooks.kernel_python(name, Path(own).parent.parent, around.environ)
    if not known:
        return Start(tuple(words), around, problem=f"no kernel '{name}' was found")
    if not content:
        return Start(tuple(words), around, problem=f"couldn't read '{notebook}'")
    return Start(tuple(words), around, (python or own,), target)


def _program(word: str, around: Surroundings) -> Path | None:
    """The file that a word starts."""
    if "/" in word:
        path = around.directory / word
        return path if path.is_file() else None
    found = shutil.which(word, path=around.environ.get("PATH", "/usr/bin:/bin"))
    return around.directory / found if found else None


def _python_beside(word: str, around: Surroundings) -> str | None:
    """The Python of a console script; None where there is no telling."""
    if around.runner or python_words.is_python(Path(word).name):
        return None
    path = _program(word, around)
    line = _shebang(path) if path is not None else []
    named = line[:1] if line and Path(line[0]).name != "env" else line[1:2]
    if named and python_words.is_python(Path(named[0]).name):
        return named[0]
    if path is not None and line and Path(line[0]).name in SHELLS:  # pip's for long paths
        return _exec_of(path)
    return None


def _exec_of(path: Path) -> str | None:
    """The Python that a console script of a long path starts by way of the shell."""
    lines = (read_text(path) or "").split("\n")[1:2]
    words = lines[0].replace("'", " ").replace('"', " ").split() if lines else []
    return words[1] if words[:1] == ["exec"] and len(words) > 1 else None


def _shebang(path: Path) -> list[str]:
    """The words behind `#!`; [] where a file does not begin with it."""
    try:
        with path.open("rb") as file:
            head = file.readline(MOST_TEXT)[:_HEAD]
    except OSError:
        return []
    return head[2:].decode("utf-8", "replace").split() if head.startswith(b"#!") else []


def _binary(path: Path) -> str:
    """What there is to say of a program that is no script."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - _TAIL, 0))
            tail = file.read()
    except OSError:
        return "cannot be read"
    if any(sign in tail for sign in _FROZEN):
        return "is a frozen program: no hook gets into it"
    return ""
