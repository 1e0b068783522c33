"""What `rlprobe record COMMAND` would record, before the command is run.

examination   what was looked at, and what follows from it
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
