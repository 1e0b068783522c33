"""The fault lab: real GRPO runs with one known fault each, and what is said about them.

faults     the faults: what is broken, from which step on, and what a scan may call it
training   one run: TRL GRPO on a tiny local model, recorded by `attach`
scoring    scans of the recording and of trainer_state.json, against the label
peers      other tools on the same logs, where they are installed
sentences  whether what a finding says is true of the rows it names
"""
