"""The examples of docs/gym.md run as they stand."""

import re
import sys

import pytest
from doc_pages import DOCS

pytest.importorskip("stable_baselines3")

CLASSROOM, STUDENT = re.findall(r"```python\n(.*?)```", (DOCS / "gym.md").read_text(encoding="utf-8"), re.DOTALL)

CONFIG = """
data:
  corpus: synthetic
  synthetic: {families: {la: {lala: 300, lato: 60}}, dev: 20, test: 4}
  low_resource: [lato]
  subwords: {size: 300}
student: {preset: tiny, width: 16, heads: 2, feedforward: 16, layers: 1, lr_warmup: 4}
training: {steps: 20, tokens: 60, threads: 1, tensorboard: false}
"""


def test_a_scripted_student():
    names = {}
    exec(CLASSROOM, names)
    assert names["seen"].shape == (17,)
    assert not names["over"]


def test_a_real_student(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(CONFIG)
    names = {}
    exec(STUDENT, names)
    env = names["env"]
    env.reset(seed=1)
    assert not env.step(0)[2]
    assert env.step(1)[2]
    env.close()
    assert (tmp_path / "episodes" / "episode-1" / "steps.jsonl").is_file()


@pytest.mark.filterwarnings("ignore")  # those of stable-baselines3 about the size of its buffer
def test_policies_are_trained_and_play_as_teachers(tmp_path, monkeypatch, capsys, rota):
    """A few choices only: what they have learned is not the point here."""
    monkeypatch.syspath_prepend(DOCS)
    import train_policy

    monkeypatch.setattr(train_policy, "STEPS", 100)
    monkeypatch.setattr(train_policy, "DECIDE_EVERY", 10)
    monkeypatch.setattr(train_policy, "OTHERS", ("uniform",))
    league = train_policy.main(tmp_path, 20, 2)
    assert {"sb3, ppo", "sb3, ppo-mixture", "sb3, dqn", "uniform"} <= set(league.gains)
    assert set(league.gains["sb3, dqn"]) == set(train_policy.WORLDS)
    assert "| `sb3, ppo-mixture` |" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.glob("*.zip")) == ["dqn.zip", "ppo-mixture.zip", "ppo.zip"]
    code, output, _ = rota("simulate", "sb3", "--set", f"model={tmp_path / 'ppo.zip'}", "--steps", 100)
    assert code == 0
    assert "sb3" in output
    sys.modules.pop("train_policy")
