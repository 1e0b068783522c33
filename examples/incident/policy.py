"""The policy of the example, its prompts, and the optimizer that trains it."""

from __future__ import annotations

import numpy as np

from rlprobe.values import FloatArray

VOCABULARY = "0123456789 .?"
BOX, END = VOCABULARY.index("?"), len(VOCABULARY)
EASY = tuple(f"{a}+{b}=" for a in range(10) for b in range(10))
HARD = tuple(f"{a}{b}/7=" for a in range(1, 10) for b in range(10))
ANSWERS = np.array([(int(p[0]) + int(p[2])) % 10 for p in EASY] + [-1] * len(HARD))
# Fewer features than prompts: what is learnt of one prompt is, in part, learnt of all.
FEATURES = 24
LEARNING_RATE = 0.05


def softmax(logits: FloatArray) -> FloatArray:
    """Probabilities along the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    chances: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return chances


class Policy:
    """Logits of the first token from the prompt's features, of later ones from the token before."""

    def __init__(self, random: np.random.Generator) -> None:
        own = random.normal(size=(len(EASY) + len(HARD), FEATURES)) / np.sqrt(FEATURES)
        self.features = np.column_stack([own, np.ones(len(own))])  # the last one is the bias
        self.weights: FloatArray = np.zeros((FEATURES + 1, END + 1))
        self.later: FloatArray = np.zeros((END + 1, END + 1))
        self.later[:, END] = 0.7  # about nine tokens on average
        self._pretrain()

    def _pretrain(self) -> None:
        """Supervised, on easy prompts: 95 % right answers, 5 % empty boxes."""
        features, wanted = self.features[: len(EASY)], np.zeros((len(EASY), END + 1))
        wanted[np.arange(len(EASY)), ANSWERS[: len(EASY)]] = 0.95
        wanted[:, BOX] += 0.05
        while self.accuracy() < 0.35:
            self.weights += 0.1 * features.T @ (wanted - softmax(features @ self.weights))

    def first(self) -> FloatArray:
        """Logits of the first token, one row per prompt."""
        logits: FloatArray = self.features @ self.weights
        return logits

    def accuracy(self) -> float:
        """Mean probability of the right answer over all easy prompts."""
        chances = softmax(self.first()[: len(EASY)])
        return float(chances[np.arange(len(EASY)), ANSWERS[: len(EASY)]].mean())


class Adam:
    """Kingma & Ba (2015), as it trains language models: small gradients move as far as large ones.

    That is what makes rounding noise dangerous: it is scaled up twice.
    """

    def __init__(self, parameters: tuple[FloatArray, ...]) -> None:
        self.parameters = list(parameters)  # changed in place
        self.first = [np.zeros_like(p) for p in parameters]
        self.second = [np.zeros_like(p) for p in parameters]
        self.steps = 0

    def ascend(self, gradients: tuple[FloatArray, ...]) -> None:
        """One step up the gradient."""
        self.steps += 1
        warm = np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
        for index, gradient in enumerate(gradients):
            self.first[index] += 0.1 * (gradient - self.first[index])
            self.second[index] += 0.001 * (gradient**2 - self.second[index])
            step = warm * self.first[index] / (np.sqrt(self.second[index]) + 1e-8)
            self.parameters[index] += LEARNING_RATE * step
