"""Trains PPO and DQN of stable-baselines3 in a scripted world and compares them, as teachers, with Rota's own.

python docs/train_policy.py FOLDER [TIMESTEPS] [SEEDS]
"""

import sys
from pathlib import Path

import torch
from stable_baselines3 import DQN, PPO

from rota.simulation import ClassroomEnv
from rota.simulation.league import BEST, play
from rota.teachers import teacher_from

STEPS, WORLDS = 3_000, ("transfer", "noisy", "repeated")
folder = Path(sys.argv[1])
timesteps = int(sys.argv[2]) if len(sys.argv) > 2 else 90_000
seeds = int(sys.argv[3]) if len(sys.argv) > 3 else 10
torch.set_num_threads(1)

small = {"net_arch": [64, 64]}
common = {"policy_kwargs": small, "seed": 1, "device": "cpu"}
made = {
    "ppo": lambda env: PPO("MlpPolicy", env, n_steps=1_500, batch_size=500, gamma=1.0, **common),
    "ppo-mixture": lambda env: PPO("MlpPolicy", env, n_steps=1_500, batch_size=500, gamma=1.0, **common),
    "dqn": lambda env: DQN("MlpPolicy", env, train_freq=4, exploration_fraction=0.5, **common),
}
teachers = {name: teacher_from(name).fitted(STEPS, 1) for name in ("uniform", "proportional", "tscl", "align")}
for name, make in made.items():
    actions = "mixture" if name == "ppo-mixture" else "arm"
    env = ClassroomEnv("noisy", steps=STEPS, decide_every=10, actions=actions, vary=0.3)
    model = make(env).learn(timesteps)
    model.save(folder / f"{name}.zip")
    teachers[f"sb3 ({name})"] = teacher_from({"name": "sb3", "model": str(folder / f"{name}.zip")})
    print(f"trained {name} for {timesteps:,} choices", flush=True)

league = play(teachers, worlds=WORLDS, seeds=seeds, steps=STEPS)
assert BEST in league.gains
print(league.markdown())
