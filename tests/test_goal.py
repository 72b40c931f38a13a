"""The goal: weights of the languages, and what follows them."""

import json

import numpy as np
import pytest

from rota import api
from rota.config import check_goal, difference, parse_config
from rota.data.division import teacher_part
from rota.evaluation.metrics import averages
from rota.evaluation.selection import dev_losses
from rota.goal import ALL, goal_mean, is_alike, resolve
from rota.measures import JointGain, JointLoss
from rota.runs import Run
from rota.settings import ConfigError
from rota.teachers import Classroom
from rota.training.devsets import DevSets
from rota.training.gauges.losses import JointGainGauge
from rota.types import Decision, SentenceLosses

LANGUAGES = ("az", "be", "tr")
DATA = {
    "corpus": "synthetic",
    "synthetic": {"families": {"la": {"lala": 200, "lato": 60}, "ke": {"kela": 100}}, "dev": 60, "test": 4},
    "subwords": {"size": 300},
}
TRAINING = {"steps": 4, "tokens": 60, "checkpoint_every": 2, "validate_every": 2, "threads": 1, "tensorboard": False}
FILES = {"corpus": "files", **{split: f"{split}.{{side}}" for split in ("train", "dev", "test")}}
STUDENT = {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 2}
DQN = {"name": "dqn", "decide_every": 1, "groups": 2, "group_sentences": 2, "reward_tokens": 60, "warmup": None}


def config(tmp_path, **more):
    values = {"data": {**DATA, "folder": str(tmp_path / "data")}, "student": STUDENT, "training": TRAINING}
    return parse_config({**values, **more})


@pytest.mark.parametrize(
    ("setting", "weights"),
    [
        ("all", {"az": 1 / 3, "be": 1 / 3, "tr": 1 / 3}),
        ("low-resource", {"az": 0.5, "be": 0.5}),
        ("high-resource", {"tr": 1.0}),
        ("be", {"be": 1.0}),
        ({"tr": 1, "az": 3}, {"az": 0.75, "tr": 0.25}),
        (["tr", "az"], {"az": 0.5, "tr": 0.5}),
        (("be",), {"be": 1.0}),
    ],
)
def test_a_goal_becomes_weights_that_sum_to_one(setting, weights):
    assert resolve(setting, LANGUAGES, ("az", "be")) == weights


def test_a_goal_that_the_corpus_cannot_have_is_refused():
    with pytest.raises(ValueError, match="unknown language 'gl' in the goal; the corpus has az, be, tr"):
        resolve("gl", LANGUAGES)
    with pytest.raises(ValueError, match="goal: low-resource: the corpus has no such language"):
        resolve("low-resource", LANGUAGES)


def test_weights_must_be_above_zero(tmp_path):
    with pytest.raises(ConfigError, match=r"goal: the weight of 'lala' is 0.0; weights are numbers above 0"):
        config(tmp_path, goal={"lala": 0})
    with pytest.raises(ConfigError, match="no language has a weight; write for example goal"):
        config(tmp_path, goal={})


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"az": 0}, "the weight of 'az' is 0; weights"),
        ({"az": -1, "tr": 2}, "of 'az' is -1"),
        ([], "no language has"),
        (["az", "tr", "az"], "'az' is listed twice; remove one, or write weights, for example goal: {az: 2"),
    ],
)
def test_so_must_those_that_are_given_from_python(setting, why):
    with pytest.raises(ValueError, match=why):
        resolve(setting, LANGUAGES)


def test_an_unknown_language_is_refused_before_anything_is_prepared(tmp_path):
    with pytest.raises(ValueError, match="unknown language 'lale' in the goal; did you mean 'lala'"):
        check_goal(config(tmp_path, goal="lale"))
    with pytest.raises(ValueError, match="unknown language 'lale' in the goal"):
        api.prepare(config(tmp_path, goal="lale"))
    assert not (tmp_path / "data").exists()
    check_goal(config(tmp_path, goal="low-resource"))


@pytest.mark.parametrize(
    ("data", "goal"),
    [
        ({"low_resource": []}, "low-resource"),
        ({"low_resource": ["lala", "lato", "kela"]}, "high-resource"),
        ({"low_resource": [], "only_measured": ["kela"]}, "low-resource"),
        ({"corpus": "ted8", "languages": ["tr", "pt"]}, "low-resource"),
        ({"corpus": "files", "train": {"gl": "a"}, "dev": {"gl": "a"}, "test": {"gl": "a"}}, "low-resource"),
        ({**FILES, "languages": ["gl", "pt"], "directions": ["gl-en", "en-gl"]}, "low-resource"),
        ({**FILES, "languages": ["gl", "pt"], "directions": ["gl-pt", "pt-gl"]}, "low-resource"),
    ],
)
def test_a_group_that_no_language_can_be_in_is_refused_before_the_text_is_prepared(tmp_path, data, goal):
    data = {**(DATA if "corpus" not in data else {}), "folder": str(tmp_path / "data"), **data}
    values = {"data": data, "student": STUDENT, "training": TRAINING, "goal": goal}
    with pytest.raises(ValueError, match=f"goal: {goal}: the corpus has no such language; set data.low_resource"):
        api.train(parse_config(values), tmp_path / "run")
    assert not (tmp_path / "data").exists()


def test_two_directions_of_which_one_may_have_little_text_are_not_refused_before_it_is_counted(tmp_path):
    data = {**FILES, "languages": ["gl", "pt"], "directions": ["gl-en", "gl-pt"]}
    check_goal(parse_config({"data": data, "goal": "low-resource"}))


def test_a_group_that_turns_out_to_be_empty_costs_no_prepared_data(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="goal: low-resource: the corpus has no such language") as refused:
        api.train(config(tmp_path, goal="low-resource"), tmp_path / "run")
    assert "'lato' has 60 training pairs, 'lala' 200; name languages, for example goal: lato" in str(refused.value)
    assert f"the data in {tmp_path / 'data'} are kept and need not be prepared again" in str(refused.value)
    assert not (tmp_path / "run").exists()

    def prepared_again(*_):
        raise AssertionError("the data were there")

    monkeypatch.setattr("rota.data.preparation.stages._prepare", prepared_again)
    assert api.train(config(tmp_path, goal="lato"), tmp_path / "run").is_over


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ({"gl": 2, "be": 1}, "gl", "goal was {'gl': 2.0, 'be': 1.0} and is 'gl'"),
        ("all", "gl", "goal was not set and is 'gl'"),
        ({"gl": 2}, {"be": 1}, "goal.be was not set and is 1.0"),
    ],
)
def test_a_run_of_another_goal_is_told_both(before, now, message):
    data = {**FILES, "languages": ["gl", "be"]}
    dumped = (parse_config({"data": data, "goal": goal}).dump() for goal in (before, now))
    assert difference(*dumped) == message


def test_preparing_says_already_that_a_group_is_empty(tmp_path, rota):
    path = tmp_path / "my.yaml"
    path.write_text(json.dumps({"goal": "low-resource", "data": {**DATA, "folder": str(tmp_path / "data")}}))
    code, printed, error = rota("prepare", str(path))
    assert (code, "kela" in printed) == (2, True), "after the table of the data, which are there"
    assert error.startswith("error: goal: low-resource: the corpus has no such language; 'lato' has 60")
    assert rota("prepare", str(path), "--set", "goal=lato")[0] == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"only_measured": ["kela"], "low_resource": ["kela"]}, "'kela', which is in 'only_measured' and not trained"),
        ({"directions": ["lala-en"], "low_resource": ["lato"]}, "names 'lato', which is in no direction; remove it"),
        ({"corpus": "ted8", "low_resource": ["gx"]}, "unknown low-resource language 'gx'; did you mean 'gl'"),
    ],
)
def test_a_language_that_cannot_be_low_resource_is_refused_before_the_text_is_prepared(tmp_path, data, why):
    with pytest.raises(ConfigError, match=why):
        parse_config({"data": {**({} if "corpus" in data else DATA), **data}})


def test_a_group_that_is_misspelt_is_guessed(tmp_path):
    with pytest.raises(ValueError, match="unknown language 'low_resource' in the goal; did you mean 'low-resource'"):
        check_goal(config(tmp_path, goal="low_resource"))


def test_which_languages_are_low_resource_by_name_or_in_any_number_of_sentences(tmp_path):
    check_goal(config(tmp_path, goal="low-resource"))  # by numbers of pairs, which only preparing counts
    for corpus, languages in {"ted8": ["gl", "pt"], "catalogues": ["be", "ru"]}.items():
        values = {"data": {"corpus": corpus, "languages": languages}, "student": STUDENT, "training": TRAINING}
        for goal in ("low-resource", "high-resource"):
            check_goal(parse_config({**values, "goal": goal}))


@pytest.mark.parametrize("goal", ["gl", "gl-en", "en", ["gl-en", "en-gl"], {"pt-gl": 2, "gl-en.ted": 1}])
def test_a_goal_may_name_directions_and_sources_with_dev_sets_of_their_own(goal):
    check_goal(several(goal))


def test_a_direction_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match="unknown language 'en-pt' in the goal; did you mean 'en-gl'"):
        check_goal(several("en-pt"))


@pytest.mark.parametrize(
    ("goal", "measured"), [("gl-en.web", "gl-en"), ("web", "gl-en, en-gl"), ({"gl": 1, "en-gl.web": 1}, "en-gl")]
)
def test_a_goal_cannot_name_a_source_without_dev_text_of_its_own(goal, measured):
    remedy = f"a source without dev and test text of its own; name what it is measured by \\({measured}\\)"
    with pytest.raises(ConfigError, match=remedy):
        check_goal(several(goal))


def several(goal):
    """A config with four directions and two sources, of which one has dev and test text."""
    files = {split: f"{split}.{{side}}" for split in ("train", "dev", "test")}
    sources = {"ted": {"language": "gl", **files}, "web": {"language": "gl", "train": "web.tsv"}}
    directions = ["gl-en", "en-gl", "pt-en", "pt-gl"]
    data = {"languages": ["gl", "pt"], **files, "directions": directions, "sources": sources}
    return parse_config({"goal": goal, "data": data})


def test_a_list_of_languages_counts_them_alike(tmp_path):
    assert config(tmp_path, goal=["lala", "lato"]).goal == {"lala": 1.0, "lato": 1.0}
    with pytest.raises(ConfigError, match="no language has a weight"):
        config(tmp_path, goal=[])


def test_the_mean_follows_the_weights_and_is_the_plain_one_by_default():
    values = {"az": 0.1, "be": 0.2, "tr": 0.4}
    assert goal_mean(values, {"az": 0.75, "tr": 0.25}) == pytest.approx(0.175)
    assert goal_mean(values, resolve(ALL, LANGUAGES)) == sum(values.values()) / 3
    assert is_alike(resolve(ALL, LANGUAGES), LANGUAGES)
    assert not is_alike({"az": 1.0}, LANGUAGES)


def test_averages_have_the_goal_last_and_only_if_there_is_one():
    values = {"az": 10.0, "be": 20.0, "tr": 36.0}
    assert list(averages(values, ["az"], resolve(ALL, LANGUAGES))) == ["low-resource", "high-resource", "macro"]
    assert averages(values, ["az"], {"be": 0.5, "tr": 0.5})["goal"] == 28.0


def test_a_classroom_without_a_goal_has_all_alike():
    assert Classroom({"az": 5, "tr": 90}, low_resource=("az",), steps=10).goal == {"az": 0.5, "tr": 0.5}


def test_a_config_without_a_goal_is_what_it_always_was(tmp_path):
    plain, alike, goal = config(tmp_path), config(tmp_path, goal="all"), config(tmp_path, goal="lato")
    assert "goal" not in plain.dump()
    assert plain.fingerprint == alike.fingerprint != goal.fingerprint
    assert plain.evaluation.select is None


def test_who_names_a_goal_gets_checkpoints_selected_by_it_unless_the_config_says_otherwise(tmp_path):
    assert config(tmp_path, goal="lato").evaluation.select == "goal"
    assert config(tmp_path, goal="lato").evaluation.combine == "ensemble"
    assert config(tmp_path, goal="lato", evaluation={"select": "none"}).evaluation.select is None
    assert config(tmp_path, goal="lato", evaluation={"beam": 2}).evaluation.select == "goal"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return api.prepare(config(tmp_path_factory.mktemp("goal")))


def sets(store, goal=None):
    return DevSets(store, teacher_share=0.5, division="text", validate_tokens=500, goal=goal)


def test_the_joint_batch_has_tokens_in_proportion_to_the_weights(store):
    batch = sets(store, {"lala": 0.75, "kela": 0.25}).joint(JointLoss(tokens=400))
    assert set(batch.tokens_by_language) == {"lala", "kela"}
    assert 240 <= batch.tokens_by_language["lala"] <= 300
    assert 70 <= batch.tokens_by_language["kela"] <= 100


def test_the_weighted_loss_of_the_joint_batch_is_the_goals_mean_even_of_a_dev_set_that_is_too_small(store):
    weights = {"lato": 0.9, "kela": 0.1}
    batch = sets(store, weights).joint(JointLoss(tokens=1_000_000))
    losses = np.linspace(1, 3, batch.sentences) * batch.target_lengths  # sums over tokens
    first = len(teacher_part(store.split("dev"), "lato", 0.5, "text"))
    by_language = [
        losses[:first].sum() / batch.target_lengths[:first].sum(),
        losses[first:].sum() / batch.target_lengths[first:].sum(),
    ]
    assert losses @ batch.weights / batch.tokens == pytest.approx(0.9 * by_language[0] + 0.1 * by_language[1])


def test_the_gain_that_rewards_the_variant_rota_is_that_of_the_goal(store):
    class Halving:
        """Losses of 4 nats a token for lato and 2 for kela; the next time, half of that."""

        calls = 0

        def losses(self, batches, weights):
            assert weights == "raw"
            self.calls += 1
            nats = {"lato": 4.0, "kela": 2.0}
            of = [nats[language] for batch in batches for language in batch.tokens_by_language]
            found = [
                np.full(batch.sentences, loss) * batch.target_lengths for batch, loss in zip(batches, of, strict=True)
            ]
            return SentenceLosses(
                np.concatenate(found) / self.calls, np.concatenate([b.target_lengths for b in batches])
            )

    gauge = JointGainGauge(JointGain(tokens=200, weights="raw"), Halving(), sets(store, {"lato": 0.75, "kela": 0.25}))
    gauge.begin(Decision("lala", "told"))
    # 0.75 * 4 + 0.25 * 2 is 3.5 before, and half of that after
    assert gauge.read(None) == pytest.approx(1.75)


def test_without_a_goal_the_joint_batch_has_no_weights(store):
    plain, alike = sets(store).joint(JointLoss(tokens=90)), sets(store, resolve(ALL, store.languages))
    assert plain.weights is None
    assert (plain.source == alike.joint(JointLoss(tokens=90)).source).all()


def test_a_run_with_a_goal_is_rewarded_validated_and_selected_by_it(tmp_path):
    run = Run(tmp_path / "run")
    api.train(config(tmp_path, goal={"lato": 3, "kela": 1}, teacher=DQN), run.folder)
    assert run.goal == {"lato": 0.75, "kela": 0.25}
    last = list(run.read("validations"))[-1]["dev_loss"]
    assert run.last_dev_loss() == pytest.approx(0.75 * last["lato"] + 0.25 * last["kela"])
    assert dev_losses(run)[4] == run.last_dev_loss()
    joint = json.loads(run.about_path.read_text())["measured"]["joint_tokens"]
    plain = Run(tmp_path / "plain")
    api.train(config(tmp_path, teacher=DQN), plain.folder)
    assert joint != plain.setting("measured.joint_tokens")
    found = api.evaluate(run.folder, beam=1, window=2)
    assert found.select == "goal"
    assert set(found.selection.sentences) == {"lato", "kela"}
    best = found.selection.best
    assert best.averages["goal"] == pytest.approx(0.75 * best.bleu["lato"] + 0.25 * best.bleu["kela"])
    assert "goal" in found.averages("chrf")
    with pytest.raises(ConfigError, match="goal was not set and is 'lato'"):
        api.train(config(tmp_path, goal="lato", teacher=DQN), plain.folder)


def test_a_run_without_a_goal_can_be_selected_by_it_all_languages_alike(tmp_path):
    api.train(config(tmp_path), tmp_path / "run")
    best = api.evaluate(tmp_path / "run", select="goal", beam=1).selection.best
    assert best.averages["goal"] == best.averages["macro"]
