"""A Q network, Huber loss and RMSProp in plain numpy, written from the paper and from the optimisers' papers."""

import numpy as np


class NetworkByHand:
    """Weights (out, in) and biases of tanh layers and a linear last one, in float64."""

    def __init__(self, weights, biases):
        self.weights = [np.array(weight, dtype=float) for weight in weights]
        self.biases = [np.array(bias, dtype=float) for bias in biases]

    def copy(self):
        return NetworkByHand(self.weights, self.biases)

    @property
    def parameters(self):
        return [*self.weights, *self.biases]

    def activations(self, states):
        found = [np.atleast_2d(states)]
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            sums = found[-1] @ weight.T + bias
            found.append(sums if number == len(self.weights) - 1 else np.tanh(sums))
        return found

    def __call__(self, states):
        return self.activations(states)[-1]

    def gradients(self, states, actions, targets):
        """Of the mean Huber loss (delta 1) of the values of ``actions``, in the order of ``parameters``."""
        activations = self.activations(states)
        rows = np.arange(len(actions))
        errors = activations[-1][rows, actions] - targets
        delta = np.zeros_like(activations[-1])
        delta[rows, actions] = np.clip(errors, -1, 1) / len(actions)
        weights, biases = [], []
        for number in reversed(range(len(self.weights))):
            weights.insert(0, delta.T @ activations[number])
            biases.insert(0, delta.sum(axis=0))
            delta = (delta @ self.weights[number]) * (1 - activations[number] ** 2)
        return [*weights, *biases]


class DQNByHand:
    """Both networks, the replay memory and the updates of Algorithm 2, lines 15 to 21."""

    def __init__(self, network, *, capacity, minimum, batch, gamma, tau, lr, clip=None):
        self.online, self.target = network, network.copy()
        self.capacity, self.minimum, self.batch = capacity, minimum, batch
        self.gamma, self.tau, self.lr, self.clip = gamma, tau, lr, clip
        self.memory, self.oldest = [], 0
        self.squares = [np.zeros_like(parameter) for parameter in network.parameters]
        self.updates = 0

    def store(self, transition):
        if len(self.memory) < self.capacity:
            self.memory.append(transition)
        else:
            self.memory[self.oldest] = transition
            self.oldest = (self.oldest + 1) % self.capacity

    def train(self, rng):
        if len(self.memory) < self.minimum:
            return
        drawn = [self.memory[index] for index in rng.integers(len(self.memory), size=self.batch)]
        states, actions, rewards, next_states = (np.array(column) for column in zip(*drawn, strict=True))
        targets = rewards + self.gamma * self.target(next_states).max(axis=1)
        gradients = self.online.gradients(states, actions, targets)
        for parameter, square, gradient in zip(self.online.parameters, self.squares, gradients, strict=True):
            if self.clip is not None:
                gradient = np.clip(gradient, -self.clip, self.clip)
            square *= 0.99
            square += 0.01 * gradient**2
            parameter -= self.lr * gradient / (np.sqrt(square) + 1e-8)
        for follower, followed in zip(self.target.parameters, self.online.parameters, strict=True):
            follower[...] = self.tau * followed + (1 - self.tau) * follower
        self.updates += 1
