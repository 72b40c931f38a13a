"""The paper's tables as rows: each value beside the place where the paper has it."""

from pathlib import Path

import pytest

from rota.config import parse_config
from rota.experiments.suites.paper import BASE, CONTROLS, DQN_ABLATION, MAIN, TSCL_ABLATION, paper

SUITE = paper()


def value(row, key):
    found = parse_config(SUITE.values(row, 1, Path("runs/paper"))).dump()
    for part in key.split("."):
        found = None if found is None else found[part]
    return found


# Section 4 and Table 1: what all rows share.
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("data.corpus", "ted8"),
        ("data.subwords.size", 32_000),
        ("data.subwords.lines", 10_000),
        ("student.preset", "base"),
        ("student.dropout", 0.3),
        ("student.label_smoothing", 0.1),
        ("student.learning_rate.scale", 10),
        ("student.lr_warmup", 16_000),
        ("student.clip_norm", 5.0),
        ("training.steps", 150_000),
        ("training.tokens", 8_000),
        ("training.checkpoint_every", 4_000),
        ("evaluation.select", "low-resource"),
        ("evaluation.combine", "ensemble"),
        ("evaluation.window", 4),
    ],
)
def test_the_base_has_the_settings_of_section_4(key, expected):
    for row in SUITE.rows:
        assert value(row, key) == expected


@pytest.mark.parametrize(
    ("row", "key", "expected"),
    [
        # Section 5.1; Tables 2, 3, 4 and 7
        ("uniform", "teacher.name", "uniform"),
        ("uniform", "teacher.warmup", None),
        ("proportional", "teacher.name", "proportional"),
        ("proportional", "teacher.warmup", None),
        ("uniform-warmup", "teacher.name", "uniform"),
        ("uniform-warmup", "teacher.warmup.until", 16_000),
        ("uniform-warmup", "teacher.warmup.languages", "high-resource"),
        ("proportional-warmup", "teacher.name", "proportional"),
        ("proportional-warmup", "teacher.warmup.until", 16_000),
        ("shuffled", "teacher.name", "mixed"),
        ("shuffled", "teacher.warmup.until", 16_000),
        # Section 4, RL Agents: TSCL
        ("tscl", "teacher.name", "tscl"),
        ("tscl", "teacher.alpha", 0.1),
        ("tscl", "teacher.epsilon", 0.1),
        ("tscl", "teacher.decide_every", 1),
        ("tscl", "teacher.warmup.until", 16_000),
        ("tscl", "teacher.reward_tokens", 8_000),
        # Section 4, RL Agents: DQN; Appendix A.1
        ("dqn", "teacher.name", "dqn"),
        ("dqn", "teacher.decide_every", 10),
        ("dqn", "teacher.hidden", [512, 512]),
        ("dqn", "teacher.groups", 25),
        ("dqn", "teacher.group_sentences", 10),
        ("dqn", "teacher.learning_rate", 2.5e-4),
        ("dqn", "teacher.tau", 0.005),
        ("dqn", "teacher.gamma", 0.99),
        ("dqn", "teacher.replay_minimum", 1_000),
        ("dqn", "teacher.replay_capacity", 10_000),
        ("dqn", "teacher.epsilon_steps", 50_000),
        ("dqn", "teacher.epsilon_floor", 0.01),
        ("dqn", "teacher.warmup.until", 16_000),
        # Table 5
        ("tscl-warmup-all", "teacher.warmup.languages", "all"),
        ("tscl-no-warmup", "teacher.warmup", None),
        ("tscl-alpha-0.3", "teacher.alpha", 0.3),
        ("tscl-epsilon-0.3", "teacher.epsilon", 0.3),
        ("tscl-n-10", "teacher.decide_every", 10),
        # Table 6
        ("dqn-hidden-128", "teacher.hidden", [128, 128]),
        ("dqn-tau-0.5", "teacher.tau", 0.5),
        ("dqn-tau-0.995", "teacher.tau", 0.995),
        ("dqn-gamma-0.5", "teacher.gamma", 0.5),
        ("dqn-gamma-0.01", "teacher.gamma", 0.01),
        # controls, not in the paper
        ("temperature-2", "teacher.temperature", 2),
        ("temperature-5", "teacher.temperature", 5),
        ("temperature-5", "teacher.warmup.until", 16_000),
        ("replay-proportions", "teacher.run", "runs/paper/dqn/seed-1"),
        ("replay-proportions", "teacher.warmup.until", 16_000),
        ("replay-shuffled", "teacher.run", "runs/paper/dqn/seed-1"),
        ("replay-exact", "teacher.run", "runs/paper/dqn/seed-1"),
        ("proportional-tokens", "teacher.by", "tokens"),
        ("proportional-tokens", "teacher.warmup.until", 16_000),
        ("dqn-random", "teacher.learn", False),
        ("dqn-gamma-0", "teacher.gamma", 0),
    ],
)
def test_a_row_has_the_value_of_its_place(row, key, expected):
    assert value(row, key) == expected


def changed_settings(row, base):
    found, default = (parse_config(SUITE.values(name, 1, Path("r"))).dump() for name in (row, base))
    assert {key for key in found if found[key] != default[key]} == {"name", "teacher"}
    return {key for key in found["teacher"] if found["teacher"][key] != default["teacher"][key]}


@pytest.mark.parametrize("row", [*TSCL_ABLATION, *DQN_ABLATION, "dqn-random", "dqn-gamma-0"])
def test_an_ablation_changes_one_thing(row):
    assert len(changed_settings(row, row.partition("-")[0])) == 1


def test_the_rows_are_those_of_the_tables():
    assert len(MAIN) == 7  # Tables 2, 3, 4 and 7
    assert len(TSCL_ABLATION) == 5  # Table 5, without its default
    assert len(DQN_ABLATION) == 5  # Tables 6 and 8, without their default
    assert [row.table for row in SUITE.rows.values()] == ["main"] * 7 + ["tscl"] * 5 + ["dqn"] * 5 + ["control"] * 8


def test_every_row_of_the_paper_is_found_among_its_printed_results():
    from rota.report.numbers.printed import paper_row

    for name, row in SUITE.rows.items():
        assert (paper_row(row.paper) is None) == (name in CONTROLS)
    assert paper_row(SUITE.rows["dqn"].paper).scores["bleu"]["be"] == 21.11
    assert paper_row(SUITE.rows["uniform"].paper).best_step == 136_000
    assert paper_row(SUITE.rows["tscl-n-10"].paper).scores["comet"]["gl"] == 72.82


def test_every_value_says_where_it_comes_from():
    assert all(setting.place for setting in BASE)
    assert all(row.place for row in SUITE.rows.values())


def test_a_section_that_is_not_a_mapping_is_refused_in_one_line(rota, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.yaml").write_text(
        "base: {data: {corpus: synthetic}}\nover: {training: x}\nrows: {uniform: {teacher: uniform}}\n"
    )
    code, _, error = rota("compare", "odd.yaml", "--dry-run")
    assert code == 2
    assert error.startswith("error: ")
    assert "training" in error
    assert len(error.splitlines()) == 1
