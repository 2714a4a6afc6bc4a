"""A reactor program of one's own: evolution search on CartPole, sampling and learning at the same time.

    python examples/evolution.py

A learner proposes 16 candidates, a bank of 16 reactors evaluates them, the learner moves towards the better ones. With `after=1` in
both directions the bank evaluates one generation while the learner digests the one before, and yet the result is
the same for every executor and number of workers. Needs the extra `[gymnasium]`.
"""

import gymnasium as gym
import numpy as np

from reactor_rl import Input, Output, Program, Reactor, reaction, startup

POPULATION, GENERATIONS, SIZE = 16, 40, 4


class Evaluate(Reactor):
    """One member of the population: the return of one episode of the candidate it is given."""

    candidate = Input()  # shape and dtype come from the connection
    returns = Output((), np.float32)

    def __init__(self, bank_index):
        self.seed = bank_index

    @reaction(startup)
    def build(self):
        self.env = gym.make("CartPole-v1")

    @reaction(candidate, effects=returns)
    def evaluate(self):
        total, over = 0.0, False
        observation, _ = self.env.reset(seed=self.seed)
        while not over:
            action = int(observation @ self.candidate.value > 0)
            observation, reward, terminated, truncated, _ = self.env.step(action)
            total, over = total + reward, terminated or truncated
        self.returns.set(np.float32(total))


class Evolve(Reactor):
    """Evolution strategy: the mean moves along the candidates, weighted by how good they were."""

    returns = Input()
    candidates = Output((POPULATION, SIZE), np.float64)
    mean_return = Output((), np.float64)

    def __init__(self, first):
        self.mean = first.mean(axis=0)
        self.tried = [first, first]  # the generations under way: their returns come two ticks later
        self.random = np.random.default_rng(0)

    @reaction(returns, effects=(candidates, mean_return))
    def learn(self):
        returns = self.returns.value
        weights = (returns - returns.mean()) / (returns.std() + 1e-6)
        tried = self.tried.pop(0)
        self.mean = self.mean + 0.3 * weights @ (tried - self.mean) / POPULATION
        self.tried.append(self.mean + 0.5 * self.random.normal(size=(POPULATION, SIZE)))
        self.candidates.set(self.tried[-1])
        self.mean_return.set(float(returns.mean()))


def build():
    first = 0.5 * np.random.default_rng(1).normal(size=(POPULATION, SIZE))
    program = Program("evolution")
    bank = program.bank(Evaluate, POPULATION)
    search = program.add(Evolve, first=first)
    program.connect(search.candidates.rows, bank.candidate, after=1, initial=first)  # row i to member i
    program.connect(bank.returns, search.returns.rows, after=1, initial=0.0)  # gathered in index order
    program.connect(search.mean_return, program.output("mean_return"))
    return program


with build().start(executor="processes", workers=2) as run:
    curve = []
    for generation in range(GENERATIONS):
        run.tick()
        curve.append(float(run.mean_return))
        if generation % 8 == 7:
            print(f"generation {generation + 1:3d}  mean return {curve[-1]:6.1f}")
    shared = run.fingerprint()

with build().start(executor="inline") as run:
    run.run(GENERATIONS)
    print("the same inline:", run.fingerprint() == shared)

build().draw("evolution.svg")
print("drawing: evolution.svg")
