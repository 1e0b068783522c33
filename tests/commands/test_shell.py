"""Text of the shell, read and not run: the commands in it, where they would run and with what."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rlprobe.commands.shell_script import Script
from rlprobe.commands.starts import Surroundings

ENVIRON = {"PATH": "/usr/bin", "HOME": "/home/x", "PYTHONPATH": "/hook"}


def commands(text: str, *arguments: str) -> list[list[str]]:
    script = Script(text, Surroundings(ENVIRON, Path("/d")), name="run.sh", arguments=arguments)
    return [words for words, _, _ in script.commands()]


def around(text: str) -> Surroundings:
    """Where the last command runs."""
    script = Script(text, Surroundings(ENVIRON, Path("/d")), name="run.sh", folder=Path("/s"))
    return [where for _, where, _ in script.commands()][-1]


# Texts in which all is known before they run: bash itself is asked, with a `p` that prints.
KNOWN = [
    "p a 'b  c' \"d e\" f\\ g # no\np '#' a#b",
    "X=1; p $X \"$X\" '$X' ${X} ${Y:-two} ${Y-} \"${Y:-a b}\"",
    'ARGS="--a 1 --b 2"; p $ARGS "$ARGS" x$ARGS',
    "p a \\\n  b \\\n  c",
    "if true; then p yes; fi; while false; do p no; done",
    "p a && p b || p c; p d & wait",
    "p a 2>&1 | cat; p b > /dev/null; p c",
    "f() { p inside; }\nf",
    "p $1 \"$2\" $# \"$@\"",
    "cat <<EOF > /dev/null\np not a command\nEOF\np after",
    "p $'a b' \"a\\$b\" a'b'\"c\"",
    "export X=5 Y=6; p $X$Y; unset X; p x$X",
    "for m in a; do p $m; done",
    "(p in a subshell); { p in a group; }",
    "p \"$(echo x)\" `echo y`",
]  # fmt: skip


@pytest.mark.parametrize("text", KNOWN)
def test_words_are_those_that_bash_makes(text: str) -> None:
    """Commands that bash runs are among those that are read, with the same words."""
    given = 'p() { printf "%s\\x1f" "$@"; printf "\\x1e"; }\n'
    done = subprocess.run(
        ["bash", "-c", given + text, "run.sh", "one", "two words"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    run = [part.split("\x1f")[:-1] for part in done.stdout.split("\x1e")[:-1]]
    read = [words[1:] for words in commands(text, "one", "two words") if words[0] == "p"]
    unknown = [words for words in read if any("$" in w or "`" in w for w in words)]
    assert run or unknown
    for words in run:
        assert words in read or unknown, (words, read)


def test_directories_and_variables_are_followed() -> None:
    assert around("cd src; python t.py").directory == Path("/d/src")
    assert around('cd "$(dirname "$0")"/..; python t.py').directory == Path("/s/..")
    assert around("(cd x; ls); python t.py").directory == Path("/d")
    assert around("A=1 python t.py").environ["A"] == "1"
    assert "A" not in around("A=1; python t.py").environ
    assert around("export A=1; python t.py").environ["A"] == "1"
    assert around("A=1; export A; python t.py").environ["A"] == "1"
    assert "HOME" not in around("unset HOME; python t.py").environ


def test_who_sets_the_path_of_python_anew() -> None:
    told = ("run.sh sets PYTHONPATH anew: append `:$PYTHONPATH` there",)
    assert around("export PYTHONPATH=$PWD; python t.py").changes == told
    assert around("PYTHONPATH=src python t.py").changes == told
    assert around("export PYTHONPATH=src:$PYTHONPATH; python t.py").changes == ()


def test_where_output_goes() -> None:
    assert around("python t.py > log.txt 2>&1").output == "log.txt"
    assert around("python t.py &>> log.txt").output == "log.txt"
    assert around("python t.py 2> err.txt").output == ""
    assert around("python t.py > >(tee log.txt)").output == ""
    assert around("python t.py >&2").output == ""
    assert around("exec > all.txt\npython t.py").output == "all.txt"
    assert around("python t.py 2>&1 | tee log.txt").output == ""


def test_a_document_is_the_code_of_a_python() -> None:
    script = Script("python - <<'EOF'\nimport wandb\nEOF\n", Surroundings(ENVIRON, Path("/d")))
    ((words, _, document),) = script.commands()
    assert (words, document) == (["python", "-"], "import wandb")


def test_environments_are_entered(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "activate").write_text("")
    there = around(f"source {tmp_path}/env/bin/activate\npython t.py")
    assert there.environ["PATH"].startswith(f"{tmp_path}/env/bin:")
    assert around("conda activate e; python t.py").runner == ("conda", "run", "-n", "e")


@pytest.mark.parametrize(
    "text",
    [
        "'" * 3, '"$(', "${", "$((", "<<", "<<EOF", "p <", "> >(", "((((", "`", "case x in", "\\",
        "f() {" * 500, "$(" * 5_000, "p " * 50_000, "\n" * 100_000, "for x in", "export",
        "cd", "eval",
    ],
)  # fmt: skip
def test_torn_text_is_read_to_its_end(text: str) -> None:
    commands(text)
