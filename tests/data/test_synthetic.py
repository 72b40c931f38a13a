"""Generated languages: unambiguous, related, deterministic, and never the same English in train and test."""

import time
from collections import Counter
from itertools import islice

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rota.data.corpora.synthetic import english
from rota.data.corpora.synthetic.corpus import synthetic_corpus
from rota.data.corpora.synthetic.english import Clause, NounPhrase, Sentence
from rota.data.corpora.synthetic.families import SHIFTS, SyntheticConfig, make_ancestor, make_language, rng_for

SMALL = SyntheticConfig(high=300, low=50, dev=20, test=30)
numbers = st.lists(st.integers(0, 2**31 - 1), min_size=english.DRAWS, max_size=english.DRAWS)


def read(config, arm, split="train"):
    return list(synthetic_corpus(config)[arm][split].read())


def phrase(determiner, noun, adjective=None, *, plural=False):
    names = [forms[0] for forms in english.DETERMINERS]
    place = None if adjective is None else english.ADJECTIVES.index(adjective)
    return NounPhrase(names.index(determiner), place, english.NOUNS.index(noun), plural)


def clause(subject, verb, patient=None, *, past=False, adverb=None, place=None):
    when = None if adverb is None else english.ADVERBS.index(adverb)
    return Clause(subject, english.VERBS.index(verb), past, patient, when, place)


def test_english_inflects_as_it_should():
    wolf_city = clause(phrase("a", "wolf", plural=True), "carry", phrase("a", "apple"))
    assert english.say(Sentence(wolf_city, None, None)) == "some wolves carry an apple"
    lady = clause(phrase("this", "lady"), "watch", phrase("that", "city", plural=True), adverb="twice")
    assert english.say(Sentence(lady, None, None)) == "this lady watches those cities twice"
    boy = clause(
        phrase("my", "boy", "old"), "cry", past=True, place=(english.PREPOSITIONS.index("in"), phrase("a", "box"))
    )
    assert english.say(Sentence(boy, None, None)) == "my old boy cried in a box"
    two = Sentence(
        clause(phrase("the", "man"), "sing", past=True), 0, clause(phrase("the", "fish"), "dance", past=True)
    )
    assert english.say(two) == "the man sang and the fish danced"


@given(numbers)
def test_sentences_have_three_to_twelve_words(draws):
    assert 3 <= len(english.say(english.compose(draws)).split()) <= 12


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), relatedness=st.floats(0, 1))
@example(seed=122, relatedness=0.5)  # its own accusative was the inherited plural
def test_no_two_word_forms_of_a_language_are_the_same(seed, relatedness):
    language = make_language(make_ancestor(rng_for(seed, "f")), rng_for(seed, "l"), relatedness)
    forms = [form for table in language.forms.values() for lexeme in table for form in lexeme]
    unchanging = sum(map(len, (english.ADJECTIVES, english.ADVERBS, english.PREPOSITIONS, english.CONJUNCTIONS)))
    expected = 4 * len(english.NOUNS) + 2 * len(english.VERBS) + unchanging + len(english.DETERMINERS)
    assert len(forms) == len(set(forms)) == expected


def test_word_order_decides_where_the_verb_and_the_adposition_go():
    sentence = Sentence(
        clause(phrase("the", "man"), "see", phrase("a", "dog"), place=(0, phrase("my", "house"))), None, None
    )
    seen = set()
    for seed in range(30):
        language = make_language(make_ancestor(rng_for(seed, "f")), rng_for(seed, "l"), 1.0)
        words = language.say(sentence)
        verb = language.forms["verb"][english.VERBS.index("see")][0]
        adposition = language.forms["preposition"][0][0]
        assert words.index(verb) == {"SOV": 4, "SVO": 2, "VSO": 0}[language.order]
        assert words.index(adposition) == (7 if language.order == "SOV" else 5)
        seen.add(language.order)
    assert seen == {"SOV", "SVO", "VSO"}


def test_one_source_sentence_has_one_translation():
    for arm in synthetic_corpus(SMALL):
        pairs = [pair for split in ("train", "dev", "test") for pair in read(SMALL, arm, split)]
        assert len({source for source, _ in pairs}) == len({english for _, english in pairs}) == len(pairs)


def test_the_same_seed_gives_the_same_text_and_another_seed_another():
    assert read(SMALL, "lala") == read(SMALL, "lala")
    other = SMALL.model_copy(update={"seed": 2})
    assert not set(read(SMALL, "lala")) & set(read(other, "lala"))


def test_a_language_does_not_depend_on_the_others():
    alone = SMALL.model_copy(update={"families": {"la": {"lato": 50}}})
    assert read(alone, "lato") == read(SMALL, "lato")


def test_sizes_are_as_told_and_shared_dev_and_test_sets_never_meet_the_training_text():
    corpus = synthetic_corpus(SMALL)
    assert list(corpus) == ["lala", "lato", "tola", "toto"]
    held_out = {split: [e for _, e in corpus["lala"][split].read()] for split in ("dev", "test")}
    assert [len(held_out["dev"]), len(held_out["test"])] == [20, 30]
    assert len({*held_out["dev"], *held_out["test"]}) == 50
    for arm, size in {"lala": 300, "lato": 50, "tola": 300, "toto": 50}.items():
        train = [english for _, english in corpus[arm]["train"].read()]
        assert len(set(train)) == len(train) == size
        assert not {*train} & {*held_out["dev"], *held_out["test"]}
        assert [english for _, english in corpus[arm]["test"].read()] == held_out["test"]
        assert corpus[arm]["train"].files == ()


def test_no_held_out_sentence_is_trained_on_even_where_short_ones_are_bound_to_recur():
    config = SyntheticConfig(languages=1, high=15_000, dev=2_000, test=2_000)
    train = {english for _, english in read(config, "lala")}
    assert len(train) == 15_000
    assert not train & {english for split in ("dev", "test") for _, english in read(config, "lala", split)}


def test_sound_changes_are_regular():
    ancestor = make_ancestor(rng_for(1, "f"))
    language = make_language(ancestor, rng_for(1, "l"), 1.0)
    pairs = [(old, new[0]) for old, new in zip(ancestor.stems["noun"], language.forms["noun"], strict=True)]
    heirs = Counter((old[place], new[place]) for old, new in pairs for place in range(4))
    usual = {sound: heir for (sound, heir), _ in reversed(heirs.most_common()) if sound in SHIFTS}
    shifted = {sound: heir for sound, heir in usual.items() if heir != sound}
    assert len(shifted) == 3
    assert shifted.items() <= SHIFTS.items()
    regular = [new.startswith(old[:4].translate(str.maketrans(shifted))) for old, new in pairs]
    assert sum(regular) > 0.95 * len(regular)  # the others would have fallen together with another word


def pieces(config, arm):
    """All stretches of four letters within words."""
    words = {word for source, _ in read(config, arm, "test") for word in source.split()}
    return {word[start : start + 4] for word in words for start in range(len(word) - 3)}


def overlap(config, one, other):
    first, second = pieces(config, one), pieces(config, other)
    return len(first & second) / len(first | second)


def test_relatives_share_pieces_of_words_and_strangers_do_not():
    config = SMALL.model_copy(update={"relatedness": 1.0})
    assert overlap(config, "lala", "lato") > 3 * overlap(config, "lala", "tola")
    unrelated = SMALL.model_copy(update={"relatedness": 0.0})
    assert overlap(config, "lala", "lato") > 3 * overlap(unrelated, "lala", "lato")


def test_noise_replaces_its_share_of_the_training_words_and_nothing_else():
    noisy = SMALL.model_copy(update={"noise": 0.25})
    pairs = list(zip(read(SMALL, "lala"), read(noisy, "lala"), strict=True))
    assert all(clean[1] == dirty[1] for clean, dirty in pairs)
    words = [(a, b) for clean, dirty in pairs for a, b in zip(clean[0].split(), dirty[0].split(), strict=True)]
    changed = sum(a != b for a, b in words) / len(words)
    assert 0.20 < changed < 0.30
    assert read(noisy, "lala", "test") == read(SMALL, "lala", "test")


def test_512_languages_have_names_of_their_own_and_open_in_seconds():
    start = time.process_time()
    corpus = synthetic_corpus(SyntheticConfig(languages=512, high=20, low=10, dev=5, test=5))
    assert len(corpus) == 512
    assert all(next(corpus[arm]["train"].read()) for arm in islice(corpus, 0, 512, 50))
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"families": {"a": {"x": 5}, "b": {"x": 5}}}, "language 'x' is in two families; rename one"),
        ({"families": {}}, "'families' names no language"),
        ({"families": {"a": {"x": 0}}}, "language 'x' has 0 training pairs"),
        ({"relatedness": 1.5}, "less than or equal to 1"),
        ({"noise": -0.1}, "greater than or equal to 0"),
    ],
)
def test_impossible_families_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        SyntheticConfig.model_validate(changes)


def test_sizes_may_be_written_with_a_k():
    assert SyntheticConfig.model_validate({"families": {"a": {"x": "2k"}}}).tree() == {"a": {"x": 2000}}
