from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from student_cases import VOCABULARY, make_network, random_pairs, states_of

from rota.student import search
from rota.student.search import Hypothesis, translate
from rota.student.search.beams import best_continuations, largest
from rota.student.transformer import Transformer, logits

LENGTHS = (7, 2, 12, 4, 4, 1, 9)


def sources(*lengths: int) -> list[np.ndarray]:
    return [np.array(source, dtype=np.int32) for source, _ in random_pairs(*((length, 1) for length in lengths))]


def chatty(seed: int, **changes: Any) -> Transformer:
    """A network with clear preferences, the end symbol among them: it ends some sentences early, others late."""
    network = make_network(seed, spread=0.25, tie_embeddings=False, **changes)
    with torch.no_grad():
        network.decoder_norm.weight.mul_(2)
        network.decoder_norm.bias[0] = 1.0
        network.output.weight[:, 0] = 0.0
        network.output.weight[2, 0] = 2.0
    return network


def next_log_probabilities(networks: list[Transformer], source: list[int], prefix: list[int]) -> list[float]:
    """The whole network again for every prefix; the last row predicts what follows it."""
    probabilities = [
        logits(network, states_of(network, [(source, [*prefix, 2])]))[-1].double().softmax(-1) for network in networks
    ]
    row = torch.stack(probabilities).mean(0).log().tolist()
    row[0] = row[1] = -math.inf
    return row


def slow_search(
    networks: list[Transformer], source: list[int], beam: int, penalty: float, limit: int, *given: int
) -> Hypothesis:
    """Beam search as one would tell it, with lists; tokens that are given count in the length and cost nothing."""
    alive: list[tuple[float, list[int]]] = [(0.0, [*given])]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1 + len(given), limit + 2):
        candidates = []
        for score, prefix in alive:
            row = next_log_probabilities(networks, source, prefix)
            words = [2] if len(prefix) == limit else range(len(row))
            candidates += [(score + row[word], prefix, word) for word in words]
        candidates.sort(key=lambda candidate: -candidate[0])
        ended += [(score / length**penalty, prefix) for score, prefix, word in candidates[:beam] if word == 2]
        alive = [(score, [*prefix, word]) for score, prefix, word in candidates if word != 2][:beam]
        if len(ended) >= beam or not alive:
            break
    score, prefix = max(ended, key=lambda hypothesis: hypothesis[0])
    return Hypothesis(np.array(prefix[len(given) :]), score)


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [hypothesis.ids.tolist() for hypothesis in found] == [hypothesis.ids.tolist() for hypothesis in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx(
        [hypothesis.score for hypothesis in expected], abs=1e-4
    )


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("beam", "penalty"), [(1, 1.0), (3, 1.0), (5, 1.0), (3, 0.0), (4, 0.6)])
@torch.inference_mode()
def test_it_finds_what_a_plain_search_finds(seed, beam, penalty):
    networks = [chatty(seed)]
    found = translate(networks, sources(*LENGTHS), beam=beam, length_penalty=penalty, max_ratio=0.5, extra=6)
    expected = [
        slow_search(networks, source.tolist(), beam, penalty, len(source) // 2 + 6) for source in sources(*LENGTHS)
    ]
    assert_same(found, expected)


@pytest.mark.parametrize(("beam", "penalty"), [(3, 1.0), (5, 1.0), (4, 0.6)])
@torch.inference_mode()
def test_after_a_given_token_it_finds_what_a_plain_search_finds(beam, penalty):
    """The end symbol right after it is an end as any other."""
    networks, tags = [chatty(3)], range(4, VOCABULARY)
    texts = sources(*(3 + tag % 6 for tag in tags))
    found = translate(networks, texts, first=tags, beam=beam, length_penalty=penalty, max_ratio=0.5, extra=6)
    expected = [
        slow_search(networks, text.tolist(), beam, penalty, len(text) // 2 + 6, tag)
        for text, tag in zip(texts, tags, strict=True)
    ]
    assert any(len(hypothesis.ids) == 0 for hypothesis in expected)
    assert_same(found, expected)


@pytest.mark.parametrize("beam", [1, 3])
@torch.inference_mode()
def test_an_ensemble_averages_probabilities(beam):
    networks = [chatty(0), chatty(1), chatty(2)]
    found = translate(networks, sources(*LENGTHS), beam=beam, max_ratio=0.5, extra=6)
    expected = [slow_search(networks, source.tolist(), beam, 1.0, len(source) // 2 + 6) for source in sources(*LENGTHS)]
    assert_same(found, expected)


@pytest.mark.parametrize("count", [1, 2])
@torch.inference_mode()
def test_it_finds_the_same_in_a_large_vocabulary(count):
    networks = [chatty(seed, vocabulary=700) for seed in range(count)]  # 700 = 21 groups of 32, and 28 more
    found = translate(networks, sources(5, 2), beam=2, max_ratio=0.5, extra=4)
    expected = [slow_search(networks, source.tolist(), 2, 1.0, len(source) // 2 + 4) for source in sources(5, 2)]
    assert_same(found, expected)


def test_an_ensemble_of_a_network_with_itself_is_the_network():
    network = chatty(1)
    assert_same(translate([network, network], sources(*LENGTHS)), translate([network], sources(*LENGTHS)))


@torch.inference_mode()
def test_a_beam_of_one_is_greedy():
    network = chatty(0)
    (source,) = sources(6)
    prefix: list[int] = []
    while len(prefix) < 22:
        row = next_log_probabilities([network], source.tolist(), prefix)
        if row.index(max(row)) == 2:
            break
        prefix.append(row.index(max(row)))
    (found,) = translate([network], [source], beam=1)
    assert found.ids.tolist() == prefix


@pytest.mark.parametrize("batch_tokens", [1, 15, 10_000])
def test_the_batch_does_not_matter_and_the_order_is_kept(batch_tokens):
    network = chatty(1)
    alone = [translate([network], [source])[0] for source in sources(*LENGTHS)]
    assert_same(translate([network], sources(*LENGTHS), batch_tokens=batch_tokens), alone)


def test_a_large_vocabulary_makes_small_batches(monkeypatch):
    monkeypatch.setattr(search.batches, "LOGITS", 23 * 2 * 3)
    seen: list[int] = []
    found = translate([chatty(1)], sources(*LENGTHS), beam=2, progress=seen.append)
    assert seen == [3, 3, 1]
    monkeypatch.undo()
    assert_same(found, translate([chatty(1)], sources(*LENGTHS), beam=2))


def never_ending() -> Transformer:
    """Says word 7 whatever happens."""
    network = make_network()
    with torch.no_grad():
        network.embedding.weight[2] = -10 * network.embedding.weight[7]
        network.decoder_norm.weight.zero_()
        network.decoder_norm.bias.copy_(10 * network.embedding.weight[7])
    return network


def test_the_length_limit_counts_subwords_without_the_end():
    found = translate([never_ending()], sources(4, 9), beam=2, max_ratio=1.5, extra=1)
    assert [len(hypothesis.ids) for hypothesis in found] == [7, 14]


def test_an_end_of_no_probability_can_still_be_forced():
    # The end symbol is so unlikely that its probability is 0 in float32, its logarithm is not.
    network = never_ending()
    (alone,) = translate([network], sources(4), beam=2, max_ratio=1, extra=0)
    (together,) = translate([network, network], sources(4), beam=2, max_ratio=1, extra=0)
    assert alone.ids.tolist() == together.ids.tolist() == [7, 7, 7, 7]
    assert -math.inf < alone.score < -87 / 5
    assert together.score == pytest.approx(alone.score)


def test_a_source_of_nothing_but_its_end_is_translated():
    (found,) = translate([chatty(0)], [np.array([2])], beam=2)
    assert len(found.ids) <= 12, "twice its length, and ten"


def test_sentences_of_one_batch_do_not_disturb_each_other():
    network = chatty(1)
    long, short = sources(1100, 2)
    alone = [translate([network], [source], beam=2)[0] for source in (long, short)]
    assert_same(translate([network], [long, short], beam=2, batch_tokens=100_000), alone)


@pytest.mark.parametrize("vocabulary", [23, 640, 700])
def test_the_largest_are_found_by_groups_as_by_sorting(vocabulary):
    values_RV = torch.randn(9, vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    values, places = largest(values_RV, 4)
    expected = values_RV.topk(4)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


def test_the_best_continuations_of_two_networks_are_worked_out_by_hand():
    # Probabilities of tokens 0..4: [.1 .1 .2 .2 .4] and [.1 .1 .6 .1 .1]; the means are [.1 .1 .4 .15 .25].
    first, second = torch.tensor([[0.1, 0.1, 0.2, 0.2, 0.4]] * 2), torch.tensor([[0.1, 0.1, 0.6, 0.1, 0.1]] * 2)
    full_R = torch.tensor([False, True])
    found_RC, tokens_RC = best_continuations([first.log() + 3, second.log() - 5], 2, full_R)
    assert tokens_RC[0].tolist() == [2, 4]
    assert found_RC[0].tolist() == pytest.approx([math.log(0.4), math.log(0.25)])
    assert tokens_RC[1].tolist()[0] == 2, "a full row can only end"
    assert found_RC[1].tolist() == pytest.approx([math.log(0.4), -math.inf])


def test_padding_and_beginning_are_never_produced():
    network = make_network()
    with torch.no_grad():  # the more a word is wanted, the lower its id
        network.decoder_norm.weight.zero_()
        network.decoder_norm.bias.fill_(1.0)
        network.embedding.weight.copy_(torch.linspace(1, -1, 23)[:, None].expand(23, 16))
        network.embedding.weight[2] = -1.0
    (found,) = translate([network], sources(3), beam=2)
    assert set(found.ids.tolist()) == {3}


def test_a_long_source_is_translated_up_to_the_last_position():
    (found,) = translate([never_ending()], sources(1500), beam=1)
    assert len(found.ids) == 1023


def test_progress_counts_every_sentence():
    seen: list[int] = []
    translate([chatty(0)], sources(*LENGTHS), beam=1, batch_tokens=20, progress=seen.append)
    assert sum(seen) == 7
    assert len(seen) > 1


def test_nothing_to_translate_gives_nothing():
    assert translate([chatty(0)], []) == []


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"networks": []}, "no network"),
        ({"beam": 0}, "beam 0 is not possible; choose 1"),
        ({"beam": 11}, r"beam 11 is not possible; choose 1 \(greedy\) to 10"),
        ({"length_penalty": -1.0}, "length penalty -1.0 is negative"),
        ({"sources": [np.array([5, 2]), np.array([], dtype=np.int32)]}, "source 1 has no tokens"),
        ({"networks": [make_network(), make_network(vocabulary=30)]}, r"\[23, 30\]"),
    ],
)
def test_mistakes_are_refused(mistake, message):
    arguments = {"networks": [make_network()], "sources": sources(3)} | mistake
    with pytest.raises(ValueError, match=message):
        translate(**arguments)
