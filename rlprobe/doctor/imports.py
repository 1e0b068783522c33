"""What a script and the modules beside it import and call, by their text: nothing is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlprobe.commands import notebooks
from rlprobe.commands.starts import Target
from rlprobe.doctor.syntax import Call, FileFacts, Import, facts_of

_MOST_FILES = 300
_MOST_BYTES = 4_000_000  # of a file


@dataclass(slots=True)
class Sources:
    """What was looked at, and what stands in it.

    Attributes:
        files: parsed, by the names that people call them, the script first.
        unread: files that were not, and why.
        more: files that were not looked at any more.
        missing: the script or module itself was not there.
        imports: (file, import) of packages that are not beside the script.
        calls: (file, call).
        switched_off: (file, call that turns a tracker off).
    """

    files: dict[str, FileFacts] = field(default_factory=dict)
    unread: list[tuple[str, str]] = field(default_factory=list)
    more: int = 0
    missing: str = ""
    imports: list[tuple[str, Import]] = field(default_factory=list)

    @property
    def calls(self) -> Iterator[tuple[str, Call]]:
        """Every call, with its file."""
        return ((name, call) for name, facts in self.files.items() for call in facts.calls)

    @property
    def switched_off(self) -> list[str]:
        """Calls that turn a tracker off."""
        each = (facts.switched_off for facts in self.files.values())
        return list(dict.fromkeys(written for several in each for written in several))

    @property
    def prints(self) -> int:
        """Calls that print or log."""
        return sum(facts.prints for facts in self.files.values())

    def roots(self) -> list[str]:
        """The top names of what is imported."""
        return sorted({item.name.partition(".")[0] for _, item in self.imports})


@dataclass(frozen=True, slots=True)
class _Module:
    """A file to look at, and where relative imports in it begin."""

    path: Path
    package: tuple[str, ...]
    root: Path


class Look:
    """Looks at the file that a Python would run, and at what it imports from beside it.

    Args:
        directory: the working directory.
        search: folders in which modules are looked for besides the script's own.
    """

    def __init__(self, directory: Path, search: Sequence[Path] = ()) -> None:
        self._directory = directory
        self._search = list(search)
        self._waiting: list[_Module] = []
        self._seen: set[Path] = set()
        self.sources = Sources()

    def at(self, target: Target) -> Sources:
        """What stands in a target and around it."""
        if target.kind == "code":
            self._parse("the code behind -c", target.text, (), self._directory)
        elif target.kind == "notebook":
            content = notebooks.document(self._directory / target.text)
            self._parse(target.text, notebooks.code_of(content), (), self._directory)
        elif target.kind == "script":
            self._begin_script(target)
        elif target.kind == "module":
            self._begin_module(target.text)
        self._follow()
        return self.sources

    def at_module_alone(self, name: str) -> Sources:
        """What stands in the file of an installed module: what it imports is not followed."""
        parts = tuple(name.split("."))
        for folder in self._search:
            path = _file_of(folder, (*parts, "__main__")) or _file_of(folder, parts)
            if path is not None:
                self._search = []
                self._wait(_Module(path, parts, folder))
                self._follow()
                return self.sources
        self.sources.missing = f"no module '{name}' was found"
        return self.sources

    def _begin_script(self, target: Target) -> None:
        path = self._directory / target.text
        if path.is_dir():
            path /= "__main__.py"
        if not path.is_file():
            self.sources.missing = f"no such file: '{target.text}'"
            return
        folder = resolved(path).parent
        self._search.insert(0, folder)
        self._wait(_Module(path, (), folder))
        for name in target.names:  # what a console script may run in turn
            other = self._directory / name
            if name.endswith(".py") and other.is_file():
                self._search.append(resolved(other).parent)
                self._wait(_Module(other, (), resolved(other).parent))

    def _begin_module(self, name: str) -> None:
        self._search.insert(0, self._directory)
        parts = tuple(name.split("."))
        root = next((folder for folder in self._search if _file_of(folder, parts)), None)
        if root is None:
            self.sources.missing = f"no module '{name}' beside the command"
            return
        main = _file_of(root, (*parts, "__main__"))
        path = main or _file_of(root, parts)
        if path is not None:
            package = parts if main else parts[:-1]
            self._wait(_Module(path, package, root))

    def _wait(self, module: _Module) -> None:
        path = resolved(module.path)
        if path in self._seen:
            return
        self._seen.add(path)
        if len(self._seen) > _MOST_FILES:
            self.sources.more += 1
        else:
            self._waiting.append(module)

    def _follow(self) -> None:
        while self._waiting:
            module = self._waiting.pop(0)
            shown = _shown(module.path, self._directory)
            try:
                if module.path.stat().st_size > _MOST_BYTES:
                    raise ValueError("larger than 4 MB")  # noqa: TRY301 - said like the others
                text = module.path.read_bytes().decode("utf-8-sig", "replace")
            except OSError as error:
                self.sources.unread.append((shown, error.strerror or str(error)))
                continue
            except ValueError as error:
                self.sources.unread.append((shown, str(error)))
                continue
            self._parse(shown, text, module.package, module.root)

    def _parse(self, shown: str, text: str, package: tuple[str, ...], root: Path) -> None:
        try:
            facts = facts_of(text)
        except ValueError as error:
            self.sources.unread.append((shown, str(error)))
            return
        self.sources.files[shown] = facts
        for item in facts.imports:
            if not self._is_beside(item, package, root):
                self.sources.imports.append((shown, item))

    def _is_beside(self, item: Import, package: tuple[str, ...], root: Path) -> bool:
        """Whether an import is of a module beside the script, which is looked at then, too."""
        parts = tuple(part for part in item.name.split(".") if part != "*")
        folders: Sequence[Path] = self._search
        if item.level:
            parts = package[: len(package) - item.level + 1] + parts
            folders = [root]
        for folder in folders:
            modules = [(parts[:end], _file_of(folder, parts[:end])) for end in _ends(parts)]
            there = [(names, path) for names, path in modules if path is not None]
            for names, path in there:
                is_package = path.name == "__init__.py"
                self._wait(_Module(path, names if is_package else names[:-1], folder))
            if there or (parts and (folder / parts[0]).is_dir() and item.level):
                return True
        return bool(item.level)


def _ends(parts: tuple[str, ...]) -> range:
    return range(1, len(parts) + 1)


def _file_of(folder: Path, parts: tuple[str, ...]) -> Path | None:
    """The file of a module below a folder."""
    if not parts or not all(part.isidentifier() for part in parts):
        return None
    place = folder.joinpath(*parts)
    candidates = (place / "__init__.py", place.with_suffix(".py"))
    try:
        return next((path for path in candidates if path.is_file()), None)
    except OSError:
        return None


def _shown(path: Path, directory: Path) -> str:
    try:
        return str(path.relative_to(directory))
    except ValueError:
        return str(path)


def resolved(path: Path) -> Path:
    """The path without symbolic links; as it is where these go round in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()
