"""How good a scan is: a lab of real runs with one known fault each, suites, labelled logs.

faults     the faults: what is broken, from which step on, and what a scan may call it
trials     runs of faults with seeds, each trained once
training   one run on a tiny local model, recorded by `attach`
trainers   TRL's GRPO, RLOO, DPO and SFT, as the lab uses them
ppo        a PPO loop of our own, which TRL no longer has
tiny       the model, its tokenizer, the data
breaking   how a run is broken: weights, optimizer, rollouts, batches, loss
rewards    the rewards of online runs, and how they break
scoring    scans of the recording and of trainer_state.json, against the label
peers      other tools on the same logs, where they are installed
suites     the ground truth that two other programs ship for tests of their own
labels     labelled logs in a folder, and what a set of findings gets right of them
left_out   knobs chosen without one source of logs, and judged on it
healthy    false alarms on healthy logs, and on beginnings of them
sentences  whether what a finding says is true of the rows it names
"""
