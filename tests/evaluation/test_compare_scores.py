"""``rota compare-scores`` on run folders with translations of known quality."""

import csv
import json

import pytest
from compared_runs import evaluate, make_run, prepare_corpus

from rota.evaluation.comparison import compare_runs
from rota.runs import Run
from rota.runs.standing import standing_scores

QUICK = ("--resamples", "200", "--trials", "200")


def every(number):
    return lambda place: place % number == 0


def none(place):
    return False


def read_csv(path):
    return {row["name"]: row for row in csv.DictReader(path.read_text().splitlines())}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return prepare_corpus(tmp_path_factory.mktemp("compared") / "data")


def test_a_better_run_is_told_from_a_worse_one(rota, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "worse", store, wrong=every(2))
    make_run(tmp_path / "better", store, wrong=none)
    code, output, error = rota("compare-scores", "worse", "better", *QUICK, "--csv", "all.csv", "--latex", "all.tex")
    assert code == 0, error
    assert "A: worse, step 100 (not selected)" in output
    assert "BLEU on the test sets of 2 languages, 40 sentences each." in output
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp" in output
    assert "one run of each" in output
    assert max(map(len, output.splitlines())) <= 100
    rows = read_csv(tmp_path / "all.csv")
    assert list(rows) == ["lala", "lato", "low-resource", "high-resource", "macro"]
    for row in rows.values():
        assert float(row["system"]) == pytest.approx(100)
        assert float(row["difference"]) == pytest.approx(100 - float(row["baseline"]))
        assert float(row["sentences_low"]) > 0
        assert float(row["p_randomisation"]) == pytest.approx(1 / 201)
    assert float(rows["lala"]["p_holm"]) == pytest.approx(2 / 201), "the smaller of two p values, doubled"
    assert float(rows["low-resource"]["difference"]) == pytest.approx(float(rows["lato"]["difference"]))
    assert "* p ar below 0.05" in output
    assert r"lato (low) & " in (tmp_path / "all.tex").read_text()
    assert r"95 \% interval" in (tmp_path / "all.tex").read_text()


def test_a_run_does_not_differ_from_its_copy(store, tmp_path):
    runs = [make_run(tmp_path / name, store, wrong=every(3)) for name in ("one", "two")]
    found = compare_runs(runs[:1], runs[1:], metric="chrf", resamples=100, trials=100)
    for row in found.rows:
        assert (row.difference, row.bootstrap.p, row.p_randomisation) == (0, 1, 1)


def test_folders_with_seeds_are_paired_by_seed(rota, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2, 3):
        make_run(tmp_path / "plain" / f"seed-{seed}", store, wrong=every(2 + seed), seed=seed)
        make_run(tmp_path / "taught" / f"seed-{seed}", store, wrong=every(4 + seed), seed=seed)
    make_run(tmp_path / "taught" / "seed-9", store, wrong=none, seed=9)
    code, output, error = rota("compare-scores", "plain", "taught", "--resamples", "200", "--csv", "all.csv")
    assert code == 0, error
    assert "A: plain, seeds 1, 2, 3 (not selected)" in output
    assert "seeds without a partner are left out: 9" in output
    assert "with 3 seeds it cannot be below 0.250" in output
    assert "95 % (sent.)" in output
    assert max(map(len, output.splitlines())) <= 100
    macro = read_csv(tmp_path / "all.csv")["macro"]
    pairs = [([tmp_path / "plain" / seed], [tmp_path / "taught" / seed]) for seed in ("seed-1", "seed-2", "seed-3")]
    alone = [compare_runs(*pair, resamples=100, trials=100).rows[-1].difference for pair in pairs]
    assert float(macro["difference"]) == pytest.approx(sum(alone) / 3)
    assert float(macro["p_sign_flip"]) == 0.25, "all three are better: two of eight"
    assert float(macro["seeds_low"]) < float(macro["difference"]) < float(macro["seeds_high"])


def test_runs_in_any_folder_are_given_by_options(rota, store, tmp_path):
    options = []
    for seed in (1, 2):
        options += ["--baseline", make_run(tmp_path / f"a{seed}", store, wrong=every(2 + seed), seed=seed)]
        options += ["--system", make_run(tmp_path / f"b{seed}", store, wrong=every(5), seed=seed)]
    code, output, error = rota("compare-scores", *options, "--metric", "chrf", "--resamples", "100", "--trials", "100")
    assert code == 0, error
    assert "chrF on the test sets" in output
    assert "over 2 seeds" in output


def test_the_selected_model_speaks_for_a_run(store, tmp_path):
    run = make_run(tmp_path / "run", store, wrong=every(2), step=200)
    evaluate(run, store, wrong=every(5), step=100, steps=[50, 100], combine="ensemble", select="low-resource")
    evaluate(run, store, wrong=every(4), step=150, steps=[100, 150], combine="ensemble", select="macro")
    assert standing_scores(Run(run)).model.step == 150, "no selection.json: that which was selected last"
    best = {"select": "low-resource", "best": {"steps": [50, 100], "step": 100}}
    (run / "selection.json").write_text(json.dumps(best))
    model = standing_scores(Run(run)).model
    assert (model.step, model.kind) == (100, "ensemble of 2, selected by low-resource")
    found = compare_runs([make_run(tmp_path / "other", store, wrong=none)], [run], resamples=100, trials=100)
    assert "the models were made differently: ensemble of 2, selected by low-resource; not selected" in found.notes


def test_without_a_selection_the_last_step_speaks_with_the_search_of_the_config(store, tmp_path):
    run = make_run(tmp_path / "run", store, wrong=every(2), step=300)
    evaluate(run, store, wrong=every(3), step=300, beam=1)
    evaluate(run, store, wrong=every(3), step=200)
    evaluate(run, store, wrong=every(3), step=400, languages=["lala"])
    scores = standing_scores(Run(run))
    assert (scores.model.step, scores.search["beam"]) == (300, 5), "step 400 lacks a language"


def test_different_searches_are_noted(store, tmp_path):
    greedy = make_run(tmp_path / "greedy", store, wrong=none, beam=1)
    beam = make_run(tmp_path / "beam", store, wrong=every(2))
    found = compare_runs([greedy], [beam], resamples=100, trials=100)
    assert any("different searches: beam 1, length_penalty 1.0; beam 5" in note for note in found.notes)


def test_other_test_sets_are_refused_and_equal_ones_are_not(store, tmp_path):
    run = make_run(tmp_path / "run", store, wrong=none)
    other = make_run(tmp_path / "other", prepare_corpus(tmp_path / "fewer", test=30), wrong=none)
    with pytest.raises(ValueError, match=r"the test sets of \S+ and \S+ differ in lala \(40 and 30 sentences; data"):
        compare_runs([run], [other])
    same_text = make_run(tmp_path / "same", prepare_corpus(tmp_path / "vocabulary", subwords=350), wrong=every(2))
    found = compare_runs([run], [same_text], resamples=100, trials=100)
    assert found.baseline[0].data.fingerprint != found.system[0].data.fingerprint
    assert found.rows[-1].difference < 0


def mistake(rota, *arguments):
    code, _, error = rota("compare-scores", *arguments)
    assert code == 2
    assert error.count("\n") == 1
    return error


def test_mistakes_end_with_one_line(rota, store, tmp_path):
    run = make_run(tmp_path / "run", store, wrong=none)
    assert "1 folder, 0 --baseline, 0 --system: give two folders" in mistake(rota, run)
    assert "is not a run folder (no run.json) and has no runs seed-*" in mistake(rota, run, tmp_path / "data")
    assert "unknown metric 'meteor'; it is bleu, chrf, comet" in mistake(rota, run, run, "--metric", "meteor")
    assert "--split is 'train'; it is dev or test" in mistake(rota, run, run, "--split", "train")
    assert "has no scores of its dev sets (none); run rota evaluate" in mistake(rota, run, run, "--split", "dev")
    assert "has no COMET scores of lala, step 100" in mistake(rota, run, run, "--metric", "comet")


def test_lost_or_cut_translations_are_noticed(rota, store, tmp_path):
    run = make_run(tmp_path / "run", store, wrong=none)
    file = run / "translations" / "100.test.lato.beam5-1.txt"
    file.write_text("one line\n")
    assert "has 1 lines for 40 sentences; delete it" in mistake(rota, run, run)
    file.unlink()
    assert "100.test.lato.beam5-1.txt is missing; run rota evaluate" in mistake(rota, run, run)


def test_seeds_must_meet_and_be_unique(rota, store, tmp_path):
    one, two, three = (make_run(tmp_path / str(seed), store, wrong=none, seed=seed) for seed in (1, 2, 3))
    again = make_run(tmp_path / "again", store, wrong=none, seed=1)
    assert "no seed is in both systems (they are 1, 2 and 3)" in mistake(
        rota, "--baseline", one, "--baseline", two, "--system", three
    )
    assert "both have seed 1" in mistake(rota, "--baseline", one, "--baseline", again, "--system", three)
