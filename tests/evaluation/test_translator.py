import logging
from pathlib import Path

import pytest
import torch
from window_cases import STEPS, damage, make_config, make_run, random_network, save_network

from rota import api
from rota.evaluation.translator import Loader, Translator, average_weights
from rota.runs import Run
from rota.student import search

TEXTS = ["lalo mite", "", "sano kile tulo", "a"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return api.prepare(make_config(tmp_path_factory.mktemp("translator") / "data"))


@pytest.fixture(scope="module")
def run(store, tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "six", store)


def test_the_average_is_the_mean_of_every_weight():
    first = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[0.5]])}
    second = {"a": torch.tensor([3.0, -2.0]), "b": torch.tensor([[0.0]])}
    third = {"a": torch.tensor([5.0, 3.0]), "b": torch.tensor([[1.0]])}
    found = average_weights([first, second, third])
    assert found["a"].tolist() == [3.0, 1.0]
    assert found["b"].tolist() == [[0.5]]
    assert found["a"].dtype == torch.float32


def test_the_average_is_summed_in_float64():
    # In float32 the sum 2**24 + 1 + 1 stays 2**24, and the mean would be 0.
    states = [{"a": torch.tensor([value])} for value in (2.0**24, 1.0, 1.0, -(2.0**24))]
    assert average_weights(states)["a"].item() == 0.5


def test_a_loaded_average_has_the_mean_weights(run, store):
    translator = Translator.load(run, steps=(10, 30), combine="average", device="cpu")
    (network,) = translator.networks
    first, second = random_network(store, 10).state_dict(), random_network(store, 30).state_dict()
    for name, tensor in network.state_dict().items():
        assert torch.allclose(tensor, (first[name] + second[name]) / 2, atol=1e-7), name


def test_an_ensemble_of_equal_checkpoints_translates_like_one(tmp_path, store):
    run = make_run(tmp_path / "equal", store, steps=(60,))
    for step in (10, 20):
        save_network(run, step, random_network(store, seed=60))
    single = Translator.load(run, step=60).translate(TEXTS, "lala", beam=3)
    assert len(set(single)) > 2
    for combine in ("ensemble", "average"):
        together = Translator.load(run, steps=(10, 20, 60), combine=combine)
        assert len(together.networks) == (3 if combine == "ensemble" else 1)
        assert together.translate(TEXTS, "lala", beam=3) == single


def test_the_last_of_several_steps_is_the_last_alone(run):
    assert len(Translator.load(run, steps=(10, 20), combine="last").networks) == 1
    expected = Translator.load(run, step=20).translate(TEXTS, "lala")
    assert Translator.load(run, steps=(10, 20)).translate(TEXTS, "lala") == expected


def test_without_a_step_the_last_checkpoint_translates(run):
    assert Translator.load(run).translate(TEXTS, "kiki") == Translator.load(run, step=60).translate(TEXTS, "kiki")


def test_each_text_may_have_its_own_language(run):
    translator = Translator.load(run, step=30)
    alone = [translator.translate([text], arm)[0] for text, arm in zip(TEXTS, ("kiki", "lala") * 2, strict=True)]
    assert translator.translate(TEXTS, ("kiki", "lala") * 2) == alone
    assert alone[1] == "", "blank for blank"
    assert len(set(alone)) > 1


def test_a_thinned_checkpoint_still_translates(run):
    assert not (run / "checkpoints" / "10" / "student.optimiser.safetensors").exists()
    assert Translator.load(run, step=10).translate(["lalo"], "lala")


def test_the_loader_reads_a_network_once_and_forgets_the_oldest(run):
    loader = Loader(run, "cpu", keep=2)
    ten, twenty = loader.network(10), loader.network(20)
    assert loader.network(10) is ten
    assert loader.network(30) is not None
    assert loader.network(10) is ten, "20 was asked for longest ago"
    assert loader.network(20) is not twenty


def test_the_encoder_reads_the_same_sentences_once(run, monkeypatch):
    loader, cache, calls = Loader(run, "cpu", keep=3), search.EncoderCache(), []
    encode = type(loader.network(10)).encode
    monkeypatch.setattr(type(loader.network(10)), "encode", lambda self, *rest: calls.append(1) or encode(self, *rest))
    plain = loader.translator((20, 30), "ensemble").translate(TEXTS, "lala")
    calls.clear()
    loader.translator((10, 20), "ensemble").translate(TEXTS, "lala", cache=cache)
    cached = loader.translator((20, 30), "ensemble").translate(TEXTS, "lala", cache=cache)
    assert len(calls) == 3, "10, 20 and 30"
    assert cached == plain
    loader.translator((20, 30), "ensemble").translate(TEXTS, "kiki", cache=cache)
    assert len(calls) == 5, "another language is another sentence"


def test_windows_are_consecutive_checkpoints(run):
    assert Run(run).checkpoints().windows(4) == [(10, 20, 30, 40), (20, 30, 40, 50), (30, 40, 50, 60)]
    assert Run(run).checkpoints().windows(1) == [(step,) for step in STEPS]
    assert Run(run).checkpoints().window(4) == (30, 40, 50, 60)
    assert Run(run).checkpoints().window(3, step=40) == (20, 30, 40)


def test_where_checkpoints_are_few_a_window_has_those_there_are(run, tmp_path, store, caplog):
    with caplog.at_level(logging.WARNING):
        assert Run(run).checkpoints().window(4, step=20) == (10, 20)
        assert Run(run).checkpoints().windows(20) == [STEPS]
    assert "a window has 4 checkpoints" in caplog.text
    assert "using 6" in caplog.text
    assert Run(make_run(tmp_path / "one", store, steps=(30,))).checkpoints().windows(4) == [(30,)]


def test_damaged_checkpoints_are_in_no_window(tmp_path, store, caplog):
    run = make_run(tmp_path / "damaged", store, steps=(10, 20, 30, 40))
    damage(run, 20)
    assert Run(run).checkpoints().windows(2) == [(10, 30), (30, 40)]
    assert Run(run).checkpoints().window(3) == (10, 30, 40)
    assert "20 is damaged (student.network.safetensors)" in caplog.text
    with pytest.raises(ValueError, match="no intact checkpoint of step 20"):
        Run(run).checkpoints().window(2, step=20)
    for step in (10, 30, 40):
        damage(run, step)
    with pytest.raises(ValueError, match="no intact checkpoint; train it again"):
        Run(run).checkpoints().windows(2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 25}, "no checkpoint of step 25; it has 10, 20, 30, 40, 50, 60"),
        ({"steps": (10, 25)}, "no checkpoint of step 25"),
        ({"step": 10, "steps": (20,)}, r"step 10 and steps \[20\] name two models"),
        ({"steps": (10, 20), "combine": "mean"}, "combine is 'mean'; it is one of last, average, ensemble"),
    ],
)
def test_mistakes_are_named(run, options, message):
    options = {"steps": None, "combine": "ensemble", **options}
    with pytest.raises(ValueError, match=message):
        Translator.load(run, **options)
