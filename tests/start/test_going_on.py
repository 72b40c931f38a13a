"""Runs that go on from other runs and their exports: the same losses, new languages, new subwords, frozen parts."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from start_cases import m2m100, nllb, pairs, spm_bytes, write_text

from rota import api
from rota.config import as_begun, parse_config
from rota.data.ready_made.adopting import adopt
from rota.data.subwords import Subwords, SubwordsConfig
from rota.export.model import export
from rota.files import write_json
from rota.runs import Run
from rota.settings import ConfigError
from rota.start.vectors import first_weights, rows
from rota.student.config import StudentConfig

TINY = {"preset": "tiny", "width": 32, "heads": 2, "feedforward": 48, "layers": 1, "dropout": 0.1}
TRAINING = {"steps": 60, "tokens": 200, "checkpoint_every": "100%", "validate_every": "25%", "threads": 1}


def settings(folder, languages, student, **more):
    data = {**write_text(folder / "text", languages), "folder": str(folder / "data"), **more.pop("data", {})}
    training = {**TRAINING, **more.pop("training", {})}
    return parse_config({"data": data, "student": student, "training": training, **more})


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A run that has learned az and tr."""
    folder = tmp_path_factory.mktemp("before")
    student = {**TINY, "learning_rate": {"peak": 0.01}, "lr_warmup": 10}
    config = settings(folder, {"az": 200, "tr": 200}, student, data={"subwords": {"size": 320}})
    api.train(config, folder / "run")
    return Run(folder / "run")


def dev_losses(run):
    return {entry["step"]: entry["dev_loss"] for entry in run.read("validations")}


LANGUAGES = {"uz": 150, "az": 200, "tr": 200}


def go_on(folder, start, steps=12, languages=LANGUAGES, **more):
    student = {"start": str(start), "learning_rate": {"peak": 0.005}, **more.pop("student", {})}
    config = settings(folder, languages, student, training={"steps": steps}, **more)
    api.train(config, folder / "run")
    return Run(folder / "run")


@pytest.mark.parametrize("of", ["run", "export"])
def test_a_run_goes_on_with_a_new_language_from_the_losses_that_it_had(tmp_path, before, of):
    start = before.folder if of == "run" else export(before.folder, tmp_path / "hf", to="hf")
    after = go_on(tmp_path, start)
    old, new = dev_losses(before)[60], dev_losses(after)
    assert list(new) == [0, 3, 6, 9, 12]
    for language in ("az", "tr"):
        # The tag of the new language is one more token that could come next.
        assert 0 <= new[0][language] - old[language] < 0.01
    assert new[12]["uz"] < new[0]["uz"] - 0.03
    assert after.setting("config.student.width") == 32
    assert after.setting("config.student.dropout") == 0.1
    subwords, earlier = Subwords.load(after.subwords_path), Subwords.load(before.subwords_path)
    assert subwords.vocabulary == earlier.vocabulary + 1
    lines = [source for source, _ in pairs("az", 20, 4)]
    for ours, theirs in zip(subwords.encode_targets(lines), earlier.encode_targets(lines), strict=True):
        assert [subwords.tokens[each] for each in ours] == [earlier.tokens[each] for each in theirs]


def test_without_new_languages_nothing_changes_on_the_way(tmp_path, before):
    after = go_on(tmp_path, before.folder, steps=1, languages={"az": 200, "tr": 200}, teacher="proportional")
    old, new = dev_losses(before)[60], dev_losses(after)[0]
    assert new == pytest.approx(old, abs=1e-6)


def test_an_actor_and_a_critic_select_sentences_for_a_trained_model(tmp_path, before):
    """Zhao et al. 2020 use it for models that know something; the example of docs/start.md is this run."""
    curriculum = {"name": "actor-critic", "every": 2, "refresh_every": 6, "tokens": 60}
    student = {"start": str(before.folder), "learning_rate": {"peak": 0.005}}
    teacher = {"name": "temperature", "temperature": 5, "curriculum": curriculum}
    languages, more = {"az": 200, "tr": 200}, {"teacher": teacher, "training": {"steps": 12}}
    config = settings(tmp_path, languages, student, **more)
    whole, halves = Run(tmp_path / "whole"), Run(tmp_path / "halves")
    api.train(config, whole.folder)
    assert dev_losses(whole)[0] == pytest.approx(dev_losses(before)[60], abs=1e-6), "it begins where the model was"
    steps = list(whole.read("steps"))
    assert "scoring" not in steps[0], "before the first dev loss nothing is selected"
    assert all(set(entry["scoring"]["weights"]) == {"length", "rarity", "loss"} for entry in steps[1:])
    assert len({json.dumps(entry["scoring"]) for entry in steps[1:]}) >= 5, "the actor hardly ever changed its mind"
    learner = whole.checkpoint().load()["teacher"]["learner"]
    assert len(learner["memory"]) == 5, "a gain for every two updates but the first"
    assert any(any(row) for row in learner["matrix"]), "the actor has learned nothing"
    for until in (5, None):
        api.train(config, halves.folder, until=until)
    for record in ("steps", "observations", "validations"):
        assert halves.find_record(record).read_bytes() == whole.find_record(record).read_bytes()


def test_a_run_that_goes_on_is_the_same_cut_in_two_and_needs_its_start_no_longer(tmp_path, before):
    start = export(before.folder, tmp_path / "hf", to="hf")
    whole = go_on(tmp_path / "whole", start, student={"freeze": ["embeddings"], "rates": {"encoder": 0.5}})
    config = settings(
        tmp_path / "whole",
        LANGUAGES,
        {"start": str(start), "learning_rate": {"peak": 0.005}, "freeze": ["embeddings"], "rates": {"encoder": 0.5}},
        training={"steps": 12},
    )
    api.train(config, tmp_path / "parts", until=5)
    start.rename(tmp_path / "gone")
    api.train(config, tmp_path / "parts")
    for name in ("steps", "validations", "alarms"):
        cut, uncut = (run.record_path(name) for run in (Run(tmp_path / "parts"), whole))
        assert cut.exists() == uncut.exists()
        assert not cut.exists() or cut.read_bytes() == uncut.read_bytes()
    ends = [run.checkpoint().network() for run in (Run(tmp_path / "parts"), whole)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_frozen_parts_stay_as_they_were_and_are_not_saved_twice(tmp_path, before):
    after = go_on(tmp_path, before.folder, steps=2, student={"freeze": ["embeddings", "encoder"]})
    old, new = before.checkpoint().network(), after.checkpoint().network()
    subwords, earlier = Subwords.load(after.subwords_path), Subwords.load(before.subwords_path)
    for number, [origin, *_] in enumerate(rows(earlier, subwords, before.folder)):
        if subwords.tokens[number] in earlier.tokens:
            assert torch.equal(new["embedding.weight"][number], old["embedding.weight"][origin])
    for name in old.keys() - {"embedding.weight"}:
        assert torch.equal(old[name], new[name]) == name.startswith("encoder"), name
    moments = after.checkpoint().load()["student"]["optimiser"]["exp_avg"]
    assert {name.split(".")[0] for name in moments} == {"decoder", "decoder_norm"}


def test_a_part_with_half_the_rate_moves_half_as_far_in_the_first_update(tmp_path, before):
    moved = {}
    for factor in (1.0, 0.5):
        student = {"dropout": 0.0, "attention_dropout": 0.0, "rates": {"encoder": factor}}
        after = go_on(tmp_path / f"at-{factor}", before.folder, steps=1, student=student)
        old, new = before.checkpoint().network(), after.checkpoint().network()
        moved[factor] = {name: new[name] - old[name] for name in old if name != "embedding.weight"}
    # The first step of Adam is the rate times the sign of the gradient, whatever its size.
    for name, change in moved[1.0].items():
        expected = change * (0.5 if name.startswith("encoder") else 1.0)
        torch.testing.assert_close(moved[0.5][name], expected, atol=2e-6, rtol=1e-3)


def test_new_subwords_start_from_the_mean_of_their_pieces_and_a_new_tag_from_the_mean_of_tags(tmp_path, before):
    after = go_on(tmp_path, before.folder, steps=1, data={"subwords": {"add": 10}})
    subwords, earlier = Subwords.load(after.subwords_path), Subwords.load(before.subwords_path)
    new = [token for token in subwords.tokens if token not in earlier.tokens]
    assert len(new) == 11
    lines = [source for source, _ in pairs("uz", 50, 0)]
    shorter = sum(map(len, subwords.encode_targets(lines)))
    assert shorter < sum(map(len, earlier.encode_targets(lines))), "the new language is divided into fewer pieces"
    assert subwords.decode_batch(subwords.encode_targets(lines)) == lines
    origins = rows(earlier, subwords, before.folder)
    tag = subwords.tag("uz")
    assert origins[tag] == [earlier.tag("az"), earlier.tag("tr")]
    for number, token in enumerate(subwords.tokens):
        if token in new and number != tag:
            assert len(origins[number]) > 1
            assert "".join(earlier.tokens[origin] for origin in origins[number]) == token
    old = before.checkpoint().network()["embedding.weight"]
    found = first_weights(StudentConfig(start=before.folder), subwords)["embedding.weight"]
    for number, token in enumerate(subwords.tokens):
        mean = torch.stack([old[origin] for origin in origins[number]]).double().mean(0)
        torch.testing.assert_close(found[number].double(), mean, atol=1e-6, rtol=0, msg=token)


@pytest.mark.parametrize(
    ("steps", "combine", "said"),
    [
        ([4], "last", "step 4"),
        ([4, 8], "ensemble", "the mean of the weights of steps 4, 8"),
        ([4, 8], "average", "the mean of the weights of steps 4, 8"),
    ],
)
def test_a_start_has_the_weights_of_the_checkpoints_that_were_selected(tmp_path, caplog, steps, combine, said):
    caplog.set_level("INFO")
    training = {"steps": 12, "checkpoint_every": 4, "keep": 3}
    config = settings(tmp_path, {"az": 60}, TINY, data={"subwords": {"size": 320}}, training=training)
    api.train(config, tmp_path / "first")
    first = Run(tmp_path / "first")
    last = first_weights(StudentConfig(start=first.folder), Subwords.load(first.subwords_path))
    assert torch.equal(last["embedding.weight"], first.checkpoint(12).network()["embedding.weight"])
    assert f"starting from {first}: its last checkpoint, step 12" in caplog.messages
    found = {"select": "loss", "combine": combine, "best": {"steps": steps}}
    write_json(first.selection_path, found, checked=True)
    weights = first_weights(StudentConfig(start=first.folder), Subwords.load(first.subwords_path))
    assert f"starting from {first}: {said}, found best by rota evaluate --select loss" in caplog.messages
    selected = [first.checkpoint(step).network() for step in steps]
    assert not torch.equal(weights["embedding.weight"], last["embedding.weight"])
    for name, tensor in weights.items():
        mean = torch.stack([each[name] for each in selected]).mean(0)
        torch.testing.assert_close(tensor, mean, atol=1e-6, rtol=0, msg=name)


def test_a_language_that_is_only_measured_is_forgotten_and_the_alarm_says_so(tmp_path, before):
    odd = tmp_path / "odd.tsv"
    odd.write_text("".join(f"{source}\t{'qoppa zeta ' * len(source.split())}\n" for source, _ in pairs("uz", 90, 0)))
    data = {"only_measured": ["az", "tr"], "train": {"uz": str(odd)}}
    after = go_on(tmp_path, before.folder, data=data, student={"learning_rate": {"peak": 0.02}})
    assert {entry["arm"] for entry in after.read("steps")} == {"uz"}
    losses = dev_losses(after)
    assert losses[12]["tr"] > losses[0]["tr"] + 0.1
    alarms = [entry for entry in after.read("alarms") if entry["kind"] == "forgetting"]
    assert {entry["arm"] for entry in alarms} <= {"az", "tr"}
    [text] = [entry["text"] for entry in alarms if entry["arm"] == "tr"]
    assert f"from {losses[0]['tr']:.3f} at step 0" in text
    assert "uz" not in {entry["arm"] for entry in alarms}


@pytest.mark.parametrize(
    ("student", "message"),
    [
        ({"start": "nowhere"}, r"student.start: nowhere does not exist; give a run, its export, or an M2M100"),
        (
            {"width": 64, "heads": 2, "layers": 1},
            r"student.width is 64 and that of .* is 32; leave the sizes of the student out",
        ),
        ({"preset": "base"}, r"student.encoder_layers is 6 and that of .* is 1"),
        ({"width": 64}, r"student.width is 64 and that of .* is 32"),
        ({"heads": 4}, r"student.heads is 4 and that of .* is 2"),
        ({"layers": 2}, r"student.encoder_layers is 2 and that of .* is 1"),
        ({"start": __file__}, r"student.start: .*test_going_on.py is a file, not a folder; give a run"),
    ],
)
def test_a_start_that_does_not_fit_is_named(tmp_path, before, student, message):
    with pytest.raises(ConfigError, match=message):
        go_on(tmp_path, before.folder, student=student)
    assert not (tmp_path / "run").exists()


def test_a_model_of_ctranslate2_is_no_start(tmp_path, before):
    start = export(before.folder, tmp_path / "ct2", to="ctranslate2")
    message = "ct2 is a model of CTranslate2, which can translate but not be trained; give the run, or its export with"
    with pytest.raises(ConfigError, match=message):
        go_on(tmp_path, start)


def test_the_codes_of_a_run_are_its_languages(tmp_path, before):
    message = r"has no code 'ast_Latn', it has az, tr; leave 'uz' out of data.subwords.codes: it gets a tag of its own"
    with pytest.raises(ConfigError, match=message):
        go_on(tmp_path, before.folder, data={"subwords": {"codes": {"uz": "ast_Latn"}}})


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("checkpoints", "student.start: .*checkpoints/60 is missing; rota train makes it again, from the beginning"),
        ("checkpoints/60/student.network.safetensors", "student.start: .*start has no intact checkpoint"),
        ("subwords.json", "student.start: .*start has no subwords.json; copy the run again, with that file"),
    ],
)
def test_a_run_without_its_files_is_found_before_the_text_is_prepared(tmp_path, before, missing, message):
    start = Path(shutil.copytree(before.folder, tmp_path / "start"))
    assert (start / missing).exists()
    (start / missing).rename(tmp_path / "gone")
    with pytest.raises(ConfigError, match=message):
        go_on(tmp_path, start)
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "run").exists()


def test_another_vocabulary_is_refused(tmp_path, before):
    other = tmp_path / "other.model"
    other.write_bytes(spm_bytes())
    message = r"of the \d+ subwords of the data are not in the vocabulary of .*; leave data.subwords.model out"
    with pytest.raises(ConfigError, match=message):
        go_on(tmp_path, before.folder, data={"subwords": {"model": str(other)}})


@pytest.mark.parametrize("make", [m2m100, nllb])
def test_the_tags_of_another_vocabulary_do_not_count(tmp_path, before, make):
    """It has 100 (202) tags, which would make up for its subwords, none of them with the run's mark of a space."""
    model, codes = make(tmp_path / "model"), {} if make is m2m100 else {"az": "azj_Latn", "en": "eng_Latn"}
    subwords = {"model": str(model), "codes": codes}
    message = r"of the 10\d subwords of the data are not in the vocabulary of .*; leave data.subwords.model out"
    with pytest.raises(ConfigError, match=message):
        go_on(tmp_path, before.folder, data={"subwords": subwords}, languages={"az": 40})


def test_many_new_subwords_are_not_another_vocabulary(tmp_path, before, caplog):
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefgh", k=6)) for _ in range(200)]
    config = SubwordsConfig(model=before.folder, add=400)
    found = adopt(config, ["uz"], lambda _: iter([" ".join(words)] * 2), tmp_path, tags_targets=False)
    earlier = Subwords.load(before.subwords_path)
    assert found.vocabulary == earlier.vocabulary + 401 > 2 * earlier.vocabulary
    assert len(rows(earlier, found, before.folder)) == found.vocabulary
    assert "data.subwords.add" not in caplog.text


def test_more_new_subwords_than_the_text_gives_are_said(tmp_path, before, caplog):
    config = SubwordsConfig(model=before.folder, add=100_000)
    found = adopt(config, ["uz"], lambda _: iter(["qoppa zeta"] * 3), tmp_path, tags_targets=False)
    count = found.vocabulary - Subwords.load(before.subwords_path).vocabulary - 1
    assert 0 < count < 12
    assert f"data.subwords.add is 100000, and the text gives only {count} new subwords: every word that" in caplog.text


def test_languages_that_are_only_measured_must_exist_and_leave_some(tmp_path, before):
    with pytest.raises(ConfigError, match="unknown language in only_measured 'be'"):
        go_on(tmp_path, before.folder, data={"only_measured": ["be"]})
    with pytest.raises(ConfigError, match="'only_measured' names every language"):
        go_on(tmp_path, before.folder, data={"only_measured": list(LANGUAGES)})


@pytest.mark.parametrize(
    ("student", "message"),
    [
        ({"freeze": ["embeddings", "encoder", "decoder"]}, "freeze names every part"),
        ({"freeze": ["encoder"], "rates": {"encoder": 2}}, "encoder is frozen and has a rate"),
        ({"rates": {"encoder": 0}}, "greater than 0"),
        ({"freeze": ["head"]}, "student.freeze.0"),
        ({"start": 3}, r"student.start: Input should be a path \(it is 3\)$"),
    ],
)
def test_what_cannot_be_trained_is_refused(student, message):
    with pytest.raises(ConfigError, match=message):
        parse_config({"data": {"corpus": "synthetic"}, "student": student})


def test_a_copy_of_a_config_does_not_take_defaults_for_wishes(tmp_path, before):
    config = settings(tmp_path, LANGUAGES, {"start": str(before.folder), "dropout": 0.25}, training={"steps": 2})
    copy = parse_config(config.dump())
    assert copy.dump() == config.dump()
    api.train(copy, tmp_path / "run")
    run = Run(tmp_path / "run")
    assert run.setting("config.student.dropout") == 0.25
    assert run.setting("config.student.learning_rate.peak") == 0.0001
    assert run.setting("config.student.lr_warmup") == "10%"
    begun = as_begun(config, run.about["config"])
    assert api.difference(run.about["config"], begun.dump()) is None, "rota compare knows the run again"
    card = (export(run.folder, tmp_path / "hf") / "README.md").read_text()
    assert "width 32, heads 2, feedforward 48, started from run" in card


def test_nothing_is_written_of_what_is_not_used():
    dumped = parse_config({"data": {"corpus": "synthetic"}}).dump()
    assert not {"start", "freeze", "rates"} & dumped["student"].keys()
    assert not {"model", "codes", "cut", "add"} & dumped["data"]["subwords"].keys()
    assert "only_measured" not in dumped["data"]
