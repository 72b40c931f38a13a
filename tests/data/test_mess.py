"""Data degraded on purpose: what was asked for and nothing else, the same for a seed, and never by default."""

import hashlib
import json

import numpy as np
import pytest
from small_corpus import run

from rota.config import parse_config
from rota.data.preparation.mess import KINDS, KINDS_FILE, ArmMess, MessConfig
from rota.data.store import Store
from rota.settings import ConfigError

ALL = {"misaligned": 0.2, "copies": 0.1, "foreign": 0.3, "duplicates": 0.1}


def mess(seed=1, **arms):
    return MessConfig.model_validate({"seed": seed, "arms": arms})


def files(folder):
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def texts(store, arm):
    """Training pairs of a language as (tag, source, English)."""
    sentences, subwords = store.split("train"), store.subwords
    start, stop = sentences.range(arm)
    found = []
    for index in range(start, stop):
        source, _ = sentences.source.gather(np.array([index]))
        target, _ = sentences.target.gather(np.array([index]))
        found.append((int(source[0]), subwords.decode(source), subwords.decode(target)))
    return found


@pytest.fixture
def clean(corpus, tmp_path) -> Store:
    return run(corpus, tmp_path / "clean")


def test_each_kind_has_its_share_and_does_what_it_says(corpus, clean, tmp_path):
    messed = run(corpus, tmp_path / "messed", mess=mess(tr=ALL))
    # Of 80 pairs: 16, 8, 24 and 8.
    assert messed.manifest.mess == {"tr": {"misaligned": 16, "copies": 8, "foreign": 24, "duplicates": 8}}
    assert messed.sizes == clean.sizes
    kinds = np.fromfile(tmp_path / "messed" / KINDS_FILE, dtype=np.uint8)
    start, stop = messed.split("train").range("tr")
    assert len(kinds) == 110
    assert np.bincount(kinds[start:stop], minlength=5).tolist() == [24, 16, 8, 24, 8]
    assert not np.delete(kinds, np.s_[start:stop]).any()

    before, after = texts(clean, "tr"), texts(messed, "tr")
    assert {tag for tag, _, _ in after} == {before[0][0]}
    others = {(source, english) for _, source, english in texts(clean, "az")}
    own = {(source, english) for _, source, english in before}
    by_kind = {name: [] for name in ("untouched", *KINDS)}
    for kind, (_, *was), (_, *now) in zip(kinds[start:stop], before, after, strict=True):
        by_kind[("untouched", *KINDS)[kind]].append((tuple(was), tuple(now)))
    assert all(was == now for was, now in by_kind["untouched"])
    assert all(now == (was[0], was[0]) for was, now in by_kind["copies"])
    assert all(was[0] == now[0] and was[1] != now[1] for was, now in by_kind["misaligned"])
    assert sorted(was[1] for was, _ in by_kind["misaligned"]) == sorted(now[1] for _, now in by_kind["misaligned"])
    assert all(now in others for _, now in by_kind["foreign"])
    untouched = {now for _, now in by_kind["untouched"]}
    assert all(now in untouched and now != was for was, now in by_kind["duplicates"])
    assert own - {now for _, now in by_kind["untouched"]}


def test_nothing_else_changes(corpus, clean, tmp_path):
    run(corpus, tmp_path / "messed", mess=mess(tr=ALL))
    before, after = files(tmp_path / "clean"), files(tmp_path / "messed")
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    sides = {f"train.{side}.{part}" for side in ("source", "target") for part in ("tokens", "offsets")}
    assert changed == sides | {"manifest.json", KINDS_FILE}  # subwords, dev and test sets are the same


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_processes(corpus, tmp_path):
    one = run(corpus, tmp_path / "one", mess=mess(tr=ALL, az={"copies": 0.5}))
    two = run(corpus, tmp_path / "two", mess=mess(tr=ALL, az={"copies": 0.5}), processes=2)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert one.fingerprint == two.fingerprint
    three = run(corpus, tmp_path / "three", mess=mess(seed=2, tr=ALL, az={"copies": 0.5}))
    assert three.fingerprint != one.fingerprint
    alone = run(corpus, tmp_path / "alone", mess=mess(tr=ALL))
    assert texts(alone, "tr") == texts(one, "tr")  # whatever happens to other languages


def test_pieces_of_a_long_text_are_degraded_as_one(corpus, tmp_path, monkeypatch):
    run(corpus, tmp_path / "whole", mess=mess(tr=ALL))
    monkeypatch.setattr("rota.data.preparation.stages.PIECE", 7)
    run(corpus, tmp_path / "pieces", mess=mess(tr=ALL))
    assert files(tmp_path / "whole") == files(tmp_path / "pieces")


def test_without_mess_nothing_of_it_is_written(clean, tmp_path):
    assert not (tmp_path / "clean" / KINDS_FILE).exists()
    manifest = json.loads((tmp_path / "clean" / "manifest.json").read_text())
    assert "mess" not in manifest
    # As in version 0.1, key by key: fingerprints stay what they were.
    corpus = {"corpus", "languages", "low_resource", "target", "train", "dev", "test", "path", "synthetic"}
    assert set(manifest["settings"]) == {"corpus", "cleaning", "subwords", "seed"}
    assert set(manifest["settings"]["corpus"]) == corpus
    written = parse_config({"data": {"corpus": "synthetic"}}).dump()["data"]
    assert set(written) == corpus | {"folder", "seed", "cleaning", "subwords"}


def test_mess_is_recorded_in_config_and_manifest(corpus, tmp_path):
    written = {"seed": 3, "arms": {"tr": {"misaligned": 0.5}}}
    config = parse_config({"data": {"corpus": "synthetic", "mess": written}})
    full = {"seed": 3, "arms": {"tr": {"misaligned": 0.5, "copies": 0.0, "foreign": 0.0, "duplicates": 0.0}}}
    assert config.dump()["data"]["mess"] == full
    assert config.fingerprint != parse_config({"data": {"corpus": "synthetic"}}).fingerprint
    messed = run(corpus, tmp_path / "messed", mess=config.data.mess)
    assert messed.manifest.settings["mess"] == full


def test_adding_mess_to_prepared_data_is_a_change(corpus, clean, tmp_path):
    with pytest.raises(ConfigError, match=r"data\.mess\.seed changed from not set to 1; use --again"):
        run(corpus, tmp_path / "clean", mess=mess(tr=ALL))


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ({"tr": {"misaligned": 0.7, "copies": 0.4}}, r"data\.mess\.arms\.tr: the shares add up to 1\.1"),
        ({"tr": {}}, "the shares add up to 0"),
        ({"tr": {"shuffled": 0.1}}, r"unknown key 'data\.mess\.arms\.tr\.shuffled'"),
        ({"tr": {"copies": -0.1}}, "greater than or equal to 0"),
        ({}, "mess.arms"),
    ],
)
def test_impossible_shares_are_refused(arms, message):
    with pytest.raises(ConfigError, match=message):
        parse_config({"data": {"corpus": "synthetic", "mess": {"arms": arms}}})


def test_mess_that_the_data_do_not_allow_is_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"unknown language in data\.mess\.arms: 'tt'; did you mean"):
        run(corpus, tmp_path / "a", mess=mess(tt=ALL))
    with pytest.raises(ConfigError, match="is one pair of 30; two or more"):
        run(corpus, tmp_path / "b", mess=mess(az={"misaligned": 1 / 30}))
    with pytest.raises(ConfigError, match="no pair is left to duplicate"):
        run(corpus, tmp_path / "c", mess=mess(az={"misaligned": 0.5, "duplicates": 0.5}))
    with pytest.raises(ConfigError, match="there is no other language"):
        run(corpus.model_copy(update={"languages": ("az",)}), tmp_path / "d", mess=mess(az={"foreign": 0.5}))


def test_counts_are_rounded_without_losing_a_pair():
    thirds = ArmMess(misaligned=1 / 3, copies=1 / 3, foreign=1 / 3)
    assert thirds.counts(100) == [33, 34, 33, 0]
    assert sum(thirds.counts(101)) == 101
