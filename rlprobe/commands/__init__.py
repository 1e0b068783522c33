"""What a command starts, as far as its words and the text of its scripts tell: nothing is run.

command_line  words of a command -> the programs it starts
starts        those programs
options       options of other programs in the words of a command
wrappers      programs that run another one as it is: `nohup`, `env`, `timeout`, …
environments  programs that choose a Python environment: `uv run`, `conda run`, …
ranks         programs that start several processes: `torchrun`, `mpirun`, …
elsewhere     programs that run a command where nothing of ours reaches it: `ssh`, `docker`, …
python_words  the words of a Python: its own options, and what it runs
notebooks     `jupyter execute` and its kin
shell_words, shell_script   text of the shell -> the commands in it
unreached     why no hook gets into what a command starts
"""
