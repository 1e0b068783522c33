"""Recording frameworks from the inside.

trl           `attach`: the public entrance
run_dirs      which directory each trainer of a launch records into
session       one trainer's recording, from attaching to the end of training
callback      what the Trainer calls
steps         the probes of an optimizer step, in order
nonfinite     NaN and Inf in gradients, weights and loss
norms         norms and counts over many tensors
rollouts      prompts, completions, rewards, advantages
checkpoints   what a checkpoint directory holds
facts         algorithm, model, settings
probes        a probe that fails is switched off, and training goes on
wrapping      methods replaced on one instance
guarding      the guards, put in force in a trainer
autoattach    how `rlprobe record` gets into the training process
"""
