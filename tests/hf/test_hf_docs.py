"""The examples of docs/hf.md run as they stand."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hf_cases import ALIGN, Killed, collate, language, make, model, records
from transformers import Seq2SeqTrainingArguments

from rota.hf import LessonSampler

ROOT = Path(__file__).parents[2]
TRAINER, LOOP, MEASURE, LIGHTNING = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "hf.md").read_text(encoding="utf-8"), re.S
)

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_trainer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"eval_strategy": "steps", "eval_steps": 10, "learning_rate": 3e-3, "warmup_steps": 2}
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    names = {
        "az_train": language(30, 20, 1),
        "tr_train": language(60, 120, 1),
        "az_dev": language(30, 12, 2),
        "tr_dev": language(60, 12, 2),
        "model": model(),
        "collator": collate,
        "args": Seq2SeqTrainingArguments("run", max_steps=30, per_device_train_batch_size=8, **settings, **quiet),
    }
    exec(TRAINER, names)
    chosen = [entry["arm"] for entry in records("run")]
    assert chosen[:3] == ["tr"] * 3  # the warm-up, a tenth of the run, is on the larger data set
    assert set(chosen) == {"az", "tr"}
    assert (tmp_path / "out" / "index.html").is_file()


def test_a_loop_of_ones_own():
    seen = []
    names = {"az": ["az"] * 70, "tr": ["tr"] * 500, "train_on": lambda batch: seen.append(set(batch)) or 1.0}
    exec(LOOP, names)
    assert len(seen) == 1_000
    assert all(len(batch) == 1 for batch in seen)
    shares = sum(batch == {"az"} for batch in seen) / 1_000
    assert shares == pytest.approx(70**0.2 / (70**0.2 + 500**0.2), abs=0.05)


def test_a_loop_with_a_teacher_that_is_told():
    losses = iter(range(10_000, 0, -1))
    names = {"dev_loss": lambda arm: float(next(losses)), "LessonSampler": LessonSampler}
    exec(MEASURE, names)
    sampler = names["sampler"]
    for number, _ in enumerate(sampler, start=1):
        if number % 32 == 0:
            sampler.played(1.0)
        if number == 32 * 60:
            break
    assert sampler.turns.teacher.state_dict()
    assert len(sampler.told) >= 5


def fit(folder, checkpoint=None, until=None):
    """The example of Lightning, as it stands; stopped after ``until`` updates, it saves a checkpoint there."""
    lightning = pytest.importorskip("pytorch_lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.seen = torch.nn.Linear(1, 1), []

        def training_step(self, batch, index):
            self.seen.append(batch.flatten().tolist())
            return (self.layer(batch) - batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    class Stopping(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if trainer.global_step == until:
                trainer.should_stop = True

    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    saving = {"enable_checkpointing": False, "default_root_dir": str(folder)}
    names = {
        **{"az": -torch.linspace(0.1, 1, 40)[:, None], "tr": torch.linspace(0.1, 1, 300)[:, None]},
        **{"module": Module(), "checkpoint": checkpoint, "callbacks": [Stopping()], "settings": {**quiet, **saving}},
    }
    exec(LIGHTNING, names)
    if until is not None:
        names["trainer"].save_checkpoint(folder / "middle.ckpt")
    return names


def test_lightning(tmp_path):
    """Stopped in the middle of an epoch and resumed: the same examples, and the same weights in the end."""
    whole = fit(tmp_path)
    seen = whole["module"].seen
    assert len(seen) == whole["sampler"].played_updates == 200
    assert all(len({value < 0 for value in batch}) == 1 for batch in seen)  # az is negative
    first = fit(tmp_path, until=75)
    rest = fit(tmp_path, checkpoint=tmp_path / "middle.ckpt")
    assert first["module"].seen + rest["module"].seen == seen
    assert torch.equal(whole["module"].layer.weight, rest["module"].layer.weight)


def test_the_whole_example_trains_resumes_and_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import use_lessons

    use_lessons.main(tmp_path / "whole", 12)
    use_lessons.main(tmp_path / "parts", 12)
    shutil.rmtree(tmp_path / "parts" / "run" / "checkpoint-12")  # as if killed after step 6
    use_lessons.main(tmp_path / "parts", 12)
    assert records(tmp_path / "parts" / "run") == records(tmp_path / "whole" / "run")
    page = (tmp_path / "whole" / "report" / "index.html").read_text()
    assert all(name in page for name in use_lessons.TRAIN)
    assert f"wrote {tmp_path / 'whole' / 'report' / 'index.html'}" in capsys.readouterr().out


@pytest.mark.slow
def test_in_the_whole_example_the_teacher_leaves_the_text_that_is_not_aligned(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import use_lessons

    use_lessons.main(tmp_path, 800)
    chosen = [entry["arm"] for entry in records(tmp_path / "run")]
    assert chosen[:160].count("rus_Cyrl") > 16
    assert chosen[-160:].count("rus_Cyrl") == 0
    last = records(tmp_path / "run", "validations")[-1]["dev_loss"]
    assert max(last[name] for name in ("aze_Latn", "tur_Latn", "bel_Cyrl")) < 0.5 < last["rus_Cyrl"]


def torchrun(*arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = str(Path(__file__).parent / "hf_cases.py")
    done = subprocess.run(
        [*command, program, *arguments], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-6_000:]


@pytest.mark.slow
def test_two_processes_train_on_one_arm_together_and_resume_exactly(tmp_path):
    teacher = json.dumps(ALIGN)
    torchrun(str(tmp_path / "whole"), teacher, "16", "start")
    torchrun(str(tmp_path / "parts"), teacher, "16", "start")
    assert len(records(tmp_path / "whole")) == 16
    shutil.rmtree(tmp_path / "parts" / "checkpoint-16")  # as if killed after step 12
    torchrun(str(tmp_path / "parts"), teacher, "16", "resume")
    assert records(tmp_path / "parts") == records(tmp_path / "whole")
    weights = [json.loads((tmp_path / name / "weights.json").read_text()) for name in ("whole", "parts")]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_trls_trainer_of_language_models(tmp_path):
    from sft_case import make_sft

    _, whole = make_sft(tmp_path / "whole", ALIGN)
    whole.train()
    _, killed = make_sft(tmp_path / "killed", ALIGN, callbacks=[Killed(9)])
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    _, resumed = make_sft(tmp_path / "killed", ALIGN)
    resumed.train(resume_from_checkpoint=True)
    assert records(tmp_path / "killed") == records(tmp_path / "whole")
    weights, again = whole.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(weights[name], again[name]) for name in weights)


@pytest.mark.slow
def test_the_same_with_transformers_5(tmp_path):
    """Installed into a folder of its own, which comes first on the path."""
    new = ("transformers>=5,<6", "huggingface_hub>=1.31,<2", "tokenizers>=0.23.1,<0.24", "httpx2", "httpcore2")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path / "site"), *new]
    subprocess.run(pip, check=True, capture_output=True)
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    check = "import transformers; assert transformers.__version__.startswith('5.'), transformers.__version__"
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", check], check=True, env=environment)
    tests = [str(Path(__file__).parent / name) for name in ("test_taught.py", "test_lesson_sampler.py")]
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout[-3_000:]


def test_the_length_of_an_epoch_counts_updates(tmp_path):
    _, trainer = make(
        tmp_path, "uniform", max_steps=-1, num_train_epochs=2, eval_strategy="epoch", save_strategy="epoch"
    )
    trainer.train()
    assert trainer.state.global_step == 30  # 120 examples in updates of 8, twice
    assert [entry["step"] for entry in records(tmp_path, "validations")] == [15, 30]
