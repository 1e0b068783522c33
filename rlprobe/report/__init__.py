"""What a person or a program reads. One file per format; nothing else formats for people.

reporter   the Reporter protocol and the choice of one
text       the terminal, plain in a pipe; incident_text: its incident blocks
json       the report as schemas/report.schema.json describes it
markdown   a comment on a pull request
verdict    the word of `rlprobe gate`, which each format puts beside the reports
life       what is said of a run that has not ended
account    what of a log was not understood, in a sentence
step_text, step_json   `rlprobe show`
examination_text, examination_json   `rlprobe doctor`
pages      `rlprobe explain`; listing: tables for `ls` and `query`
calibration_text   what `rlprobe calibrate` learnt, as text and as TOML
lines, sparkline, escape   what they are made of
"""
