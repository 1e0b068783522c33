"""Keras on torch: fit, with a validation set."""

import sys

import keras
import numpy as np
import outcome

outcome.seed(2)
inputs = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
targets = inputs.sum(axis=1, keepdims=True)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
history = model.fit(
    inputs, targets, batch_size=8, epochs=6, validation_split=0.25, verbose=2, shuffle=True
)
stored = {
    name: {float(epoch): float(value) for epoch, value in enumerate(values)}
    for name, values in history.history.items()
}
weights = {str(place): value for place, value in enumerate(model.get_weights())}
outcome.write(sys.argv[1], stored, outcome.digest(weights))
