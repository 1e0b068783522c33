"""Recording frameworks from the inside.

trl            `attach`: the public entrance
guarding       `guard`: the guards, put in force in a trainer
autoattach     how `rlprobe record` gets into the training process

_run_dirs      which directory each trainer of a launch records into
_session       one trainer's recording, from attaching to the end of training
_callback      what the Trainer calls
_steps         the probes of an optimizer step, in order
_nonfinite     NaN and Inf in gradients, weights and loss
_norms         norms and counts over many tensors
_rollouts      prompts, completions, rewards, advantages
_checkpoints   what a checkpoint directory holds
_facts         algorithm, model, settings
_probes        a probe that fails is switched off, and training goes on
_wrapping      methods replaced on one instance
"""
