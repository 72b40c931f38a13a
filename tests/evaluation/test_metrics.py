import pytest

from rota.evaluation.metrics import averages, score


def by_name(scores):
    return {found.metric: found for found in scores}


def test_a_perfect_translation_scores_a_hundred():
    text = ["the cat sat on the mat", "all work and no play"]
    found = by_name(score(text, text))
    assert found["bleu"].value == pytest.approx(100)
    assert found["chrf"].value == pytest.approx(100)


def test_bleu_carries_the_signature_of_the_paper():
    found = by_name(score(["a b c d e"], ["a b c d f"]))
    assert found["bleu"].signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.")
    assert found["chrf"].signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.")


def test_bleu_is_what_the_formula_gives():
    # Precisions 4/5, 3/4, 2/3, 1/2; same length, so no brevity penalty: the fourth root of their product, 0.2.
    found = by_name(score(["a b c d e"], ["a b c d f"]))
    assert found["bleu"].value == pytest.approx(100 * 0.2**0.25)


def test_missing_translations_are_noticed():
    with pytest.raises(ValueError, match="1 translations for 2 references"):
        score(["one"], ["one", "two"])


def test_averages_are_means_over_languages_not_sentences():
    found = averages({"az": 10.0, "be": 20.0, "tr": 36.0}, low_resource=["az", "be"])
    assert found == {"low-resource": 15.0, "high-resource": 36.0, "macro": 22.0}


def test_a_group_without_languages_is_left_out():
    assert averages({"az": 10.0}, low_resource=["az"]) == {"low-resource": 10.0, "macro": 10.0}


def test_only_the_metrics_that_are_named_are_computed():
    assert [found.metric for found in score(["a b"], ["a b"], metrics=["chrf"])] == ["chrf"]
    with pytest.raises(ValueError, match="unknown metric 'meteor'; it is bleu or chrf"):
        score(["a"], ["a"], metrics=["meteor"])


class Wordy:
    """As a COMET model: a sentence scores its number of words, those of the source and of the reference included."""

    signature = "words"

    def score(self, sources, hypotheses, references):
        scores = [len(" ".join(texts).split()) for texts in zip(sources, hypotheses, references, strict=True)]
        return sum(scores) / len(scores), scores


def test_comet_is_added_if_a_model_is_given():
    found = by_name(score(["a b", "c"], ["a b", "c"], sources=["x y z", "x"], comet=Wordy()))
    assert found["comet"].value == (7 + 3) / 2
    assert found["comet"].signature == "words"
    with pytest.raises(ValueError, match="COMET compares with the sources too; give them"):
        score(["a"], ["a"], comet=Wordy())
