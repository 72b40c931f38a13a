from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from student_cases import make_network, random_pairs, states_of

from rota.student.search import Hypothesis, translate
from rota.student.transformer import Transformer, logits

LENGTHS = (7, 2, 12, 4, 4, 1, 9)


def sources(*lengths: int) -> list[np.ndarray]:
    return [np.array(source, dtype=np.int32) for source, _ in random_pairs(*((length, 1) for length in lengths))]


def chatty(seed: int) -> Transformer:
    """A network with clear preferences, the end symbol among them: it ends some sentences early, others late."""
    network = make_network(seed, spread=0.25, tie_embeddings=False)
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


def slow_search(networks: list[Transformer], source: list[int], beam: int, penalty: float, limit: int) -> Hypothesis:
    """Beam search as one would tell it, with lists."""
    alive: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1, limit + 2):
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
    return Hypothesis(np.array(prefix), score)


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


@torch.inference_mode()
def test_an_ensemble_averages_probabilities():
    networks = [chatty(0), chatty(1), chatty(2)]
    found = translate(networks, sources(*LENGTHS), beam=3, max_ratio=0.5, extra=6)
    expected = [slow_search(networks, source.tolist(), 3, 1.0, len(source) // 2 + 6) for source in sources(*LENGTHS)]
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
        ({"beam": 12}, r"beam 12 is not possible; choose 1 \(greedy\) to 11"),
        ({"length_penalty": -1.0}, "length penalty -1.0 is negative"),
        ({"sources": [np.array([5, 2]), np.array([], dtype=np.int32)]}, "source 1 has no tokens"),
        ({"networks": [make_network(), make_network(vocabulary=30)]}, r"\[23, 30\]"),
    ],
)
def test_mistakes_are_refused(mistake, message):
    arguments = {"networks": [make_network()], "sources": sources(3)} | mistake
    with pytest.raises(ValueError, match=message):
        translate(**arguments)
