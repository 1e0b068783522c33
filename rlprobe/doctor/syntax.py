"""One file of Python, parsed and not run: what it imports, what it calls."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field

_LOGS = frozenset({"info", "warning", "log_metrics", "set_postfix", "set_description", "write"})
_MODES = frozenset({"disabled", "offline", "dryrun", "debug"})


@dataclass(frozen=True, slots=True)
class Import:
    """An import.

    Attributes:
        name: dotted; with the name that is taken from a module: `trl.GRPOTrainer`.
        level: dots of a relative import.
        optional: inside a function, a `try` or an `if`: the script may do without.
    """

    name: str
    line: int
    level: int = 0
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call of something with a dot in its name, spelled as in the file.

    Attributes:
        name: the same with aliases resolved: `wandb.log` for `wb.log`.
    """

    spelled: str
    name: str
    line: int

    @property
    def method(self) -> str:
        """Its last part."""
        return self.name.rpartition(".")[2]


@dataclass(slots=True)
class FileFacts:
    """What stands in a file.

    Attributes:
        prints: calls that print or log.
        switched_off: `mode="disabled"` and its kin, as written.
    """

    imports: list[Import] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    prints: int = 0
    switched_off: list[str] = field(default_factory=list)


def facts_of(code: str) -> FileFacts:
    """Parse code.

    Raises:
        ValueError: it is no Python that this version understands; the reason in words.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
        visitor = _Visitor()
        visitor.visit(tree)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno or '?'}: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise ValueError("nested too deeply") from error
    return visitor.facts


class _Visitor(ast.NodeVisitor):
    def __init__(self) -> None:
        self.facts = FileFacts()
        self._aliases: dict[str, str] = {}
        self._optional = 0

    def _inside(self, node: ast.AST) -> None:
        self._optional += 1
        self.generic_visit(node)
        self._optional -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Try = visit_If = _inside  # noqa: N815

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._import(alias.name, node.lineno, 0)
            self._aliases[alias.asname or alias.name.partition(".")[0]] = (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            name = ".".join(filter(None, (node.module, alias.name)))
            self._import(name, node.lineno, node.level)
            if not node.level:
                self._aliases[alias.asname or alias.name] = name

    def _import(self, name: str, line: int, level: int) -> None:
        self.facts.imports.append(Import(name, line, level, bool(self._optional)))

    def visit_Call(self, node: ast.Call) -> None:
        spelled = _dotted(node.func)
        first, dot, rest = spelled.replace("()", "").partition(".")
        name = self._aliases.get(first, first) + dot + rest
        if name in ("__import__", "importlib.import_module") and node.args:
            self._dynamic(node.args[0], node.lineno)
        elif name == "print" or (dot and rest.rpartition(".")[2] in _LOGS):
            self.facts.prints += 1
        if spelled:
            self.facts.calls.append(Call(spelled, name, node.lineno))
        for keyword in node.keywords:
            value = getattr(keyword.value, "value", None)
            if keyword.arg == "mode" and value in _MODES and spelled:
                self.facts.switched_off.append(f'{spelled}(mode="{value}")')
        self.generic_visit(node)

    def _dynamic(self, argument: ast.expr, line: int) -> None:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            self.facts.imports.append(Import(argument.value, line, 0, optional=True))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """`transformers.Trainer` counts as an import of the name."""
        first, dot, rest = _dotted(node).partition(".")
        if dot and first in self._aliases and rest[:1].isupper():
            self._import(f"{self._aliases[first]}.{rest}", node.lineno, 0)
        self.generic_visit(node)


def _dotted(node: ast.AST) -> str:
    """`a.b.c`, `a().b`; of another expression its last names with a dot before them: `.log`."""
    parts: list[str] = []
    called = ""
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr + called)
        called = "()" if isinstance(node, ast.Call) else ""
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        parts.append(node.id + called)
    elif parts:
        parts.append("")
    return ".".join(reversed(parts))
