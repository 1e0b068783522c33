"""What `rlprobe record COMMAND` would record, before the command is run.

examination   what was looked at, and what follows from it
starts        the programs that a command starts, as far as its words tell
command_line  words of a command -> the programs it starts
options       options of other programs in the words of a command
wrappers      programs that run another one as it is: `nohup`, `env`, `timeout`, …
environments  programs that choose a Python environment: `uv run`, `conda run`, …
ranks         programs that start several processes: `torchrun`, `mpirun`, …
elsewhere     programs that run a command where nothing of ours reaches it: `ssh`, `docker`, …
python_words  the words of a Python: its own options, and what it runs
notebooks     `jupyter execute` and its kin
shell_words, shell_script   shell text -> the commands in it; nothing is run
questions     what is asked of which Python, once each
interpreter   a Python, asked by `probe`, which imports none of its packages
packages      the packages whose calls are recorded
imports       what a script and the modules beside it import and call; syntax: one file of it
inside        whether anything is recorded inside a Python, and what stands in the way
places        where a recording would go, and whether there is room
judgement     what of it all would be recorded, and what to do
"""

from rlprobe.doctor.examination import examine

__all__ = ["examine"]
