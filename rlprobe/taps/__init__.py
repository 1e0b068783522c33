"""What training tells its trackers, recorded from the inside.

`rlprobe record` hooks into the import of each tracker (`integrations/autoattach`). When one is
imported, its tap is, too: `install(module)` of it wraps the calls that carry metrics.
A tap hands what it saw to the hub and lets the call go on as before: same result, same exceptions.

Everything here is standard library, imports its own kind only, and runs under Python 3.8 and later:
where the training's Python has no rlprobe, or not what it needs, this folder is loaded by its path
and writes to a spool that the launcher reads. `recording` alone imports the recorder, where it is.

hooks      which module of which package is tapped by what; others by entry point `rlprobe.taps`
hub        where all taps of a process hand over; what is said twice is recorded once
streams    which of a process's trackers tell of the same run
wrapping   a call with a look at it
values     numbers among what a tracker was given
variables  names of environment variables
place      rank and role of this process; whether it is a helper of one that records
slots      which directory each run of a launch is recorded into
recording  a run as a recording, by the recorder
spool      a run as lines of JSON, for who has no recorder
packages   one tap for each package
"""
