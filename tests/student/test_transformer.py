from __future__ import annotations

import math

import pytest
import torch
from student_cases import (
    CPU,
    VOCABULARY,
    batch_of,
    hugging_face_twin,
    make_network,
    make_student,
    random_pairs,
    states_of,
)
from torch import nn
from torch.nn.functional import cross_entropy

from rota.student.config import Shape
from rota.student.kernels.attention import Layout
from rota.student.kernels.dropout import Noise
from rota.student.transformer import EncoderLayer, Transformer, logits, shift_right, sinusoids


@pytest.mark.parametrize("tied", [True, False])
def test_hugging_face_computes_the_same_logits_from_our_weights(tied):
    network = make_network(tie_embeddings=tied, encoder_layers=3)
    pairs = random_pairs((7, 5), (4, 9))
    twin = hugging_face_twin(network)
    ours = logits(network, states_of(network, pairs))
    with torch.no_grad():
        theirs = [
            twin(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[2, *target[:-1]]])).logits[0]
            for source, target in pairs
        ]
    assert ours.shape == (14, VOCABULARY)
    torch.testing.assert_close(ours, torch.cat(theirs), atol=1e-4, rtol=0)


COMMON_NAMES = {
    "self_attn.in_proj_": ["attention.query_key_value."],
    "self_attn.out_proj.": ["attention.out."],
    "norm1.": ["attention_norm."],
    "linear1.": ["feedforward.inner."],
    "linear2.": ["feedforward.outer."],
}
ENCODER_NAMES = COMMON_NAMES | {"norm2.": ["feedforward_norm."]}
DECODER_NAMES = COMMON_NAMES | {
    "multihead_attn.in_proj_": ["cross_attention.query.", "cross_attention.key_value."],
    "multihead_attn.out_proj.": ["cross_attention.out."],
    "norm2.": ["cross_attention_norm."],
    "norm3.": ["feedforward_norm."],
}


def torch_twin(layer: nn.Module, shape: Shape) -> nn.Module:
    """The layer of torch.nn with the weights of ours; it joins query, key and value in the same order."""
    is_encoder = isinstance(layer, EncoderLayer)
    kind = nn.TransformerEncoderLayer if is_encoder else nn.TransformerDecoderLayer
    twin = kind(shape.width, shape.heads, shape.feedforward, dropout=0.0, batch_first=True, norm_first=True)
    ours = layer.state_dict()
    names = ENCODER_NAMES if is_encoder else DECODER_NAMES
    twin.load_state_dict(
        {
            name + part: torch.cat([ours[source + part] for source in sources])
            for name, sources in names.items()
            for part in ("weight", "bias")
        }
    )
    return twin


def torch_loss(network: Transformer, source: list[int], target: list[int]) -> torch.Tensor:
    """Summed cross-entropy of one sentence, with the layers of torch.nn and positions written out."""

    def embed(ids: list[int]) -> torch.Tensor:
        # Width 16: eight frequencies from 1 to 1/10000; the first position is number 2.
        angles = torch.tensor([[place * 10_000 ** (-k / 7) for k in range(8)] for place in range(2, 2 + len(ids))])
        return network.embedding.weight[ids] * 4 + torch.cat([angles.sin(), angles.cos()], dim=1)

    memory, states = embed(source)[None], embed([2, *target[:-1]])[None]
    for layer in network.encoder:
        memory = torch_twin(layer, network.shape)(memory)
    memory = network.encoder_norm(memory)
    causal = nn.Transformer.generate_square_subsequent_mask(len(target))
    for layer in network.decoder:
        states = torch_twin(layer, network.shape)(states, memory, tgt_mask=causal)
    scores = network.decoder_norm(states)[0] @ network.embedding.weight.t()
    return cross_entropy(scores, torch.tensor(target), reduction="sum")


def test_the_loss_equals_that_of_torch_modules_with_the_same_weights():
    network = make_network()
    pairs = random_pairs((7, 5), (4, 9), (1, 1))
    with torch.no_grad():
        expected = [torch_loss(network, source, target).item() for source, target in pairs]
    assert make_student(network).losses([batch_of(pairs)]).sums.tolist() == pytest.approx(expected, rel=1e-5)


def test_the_decoder_cannot_see_the_future():
    network = make_network()
    source = [4, 5, 6, 2]
    before = states_of(network, [(source, [7, 8, 9, 10, 2])])
    after = states_of(network, [(source, [7, 8, 11, 12, 2])])
    # Row i predicts token i from the tokens before it: token 2 differs, so rows 0 to 2 must not.
    torch.testing.assert_close(before[:3], after[:3], atol=0, rtol=0)
    assert (before[3:] - after[3:]).abs().amax(1).min() > 1e-3


def test_neither_side_sees_padding_or_other_sentences():
    network = make_network()
    pairs = random_pairs((3, 12), (20, 2), (1, 1), (6, 6))
    together = states_of(network, pairs)
    apart = torch.cat([states_of(network, [pair]) for pair in pairs])
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=0)


def test_every_sentence_starts_with_the_start_symbol():
    layout = Layout(torch.tensor([3, 1, 2]).numpy(), 2, CPU)
    shifted = shift_right(torch.tensor([10, 11, 12, 13, 14, 15]), layout)
    assert shifted.tolist() == [2, 10, 11, 2, 2, 14]


def test_positions_count_within_each_sentence():
    layout = Layout(torch.tensor([3, 1, 2]).numpy(), 2, CPU)
    assert layout.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert layout.longest == 3


def test_pieces_of_rows_go_into_the_rectangle_and_come_back():
    parts = Layout(torch.tensor([2, 1]).numpy(), 2, CPU).query
    assert parts.shape == (1, 2, 2, 2)
    # Sentence by sentence, head by head, position by position; the second sentence has one place of padding in each.
    assert parts.into.tolist() == [0, 2, 1, 3, 4, 0, 5, 0]
    assert parts.back.tolist() == [0, 2, 1, 3, 4, 6]


def test_keys_and_values_have_a_rectangle_each():
    parts = Layout(torch.tensor([2, 1]).numpy(), 1, CPU).key_value
    assert parts.shape == (2, 2, 1, 2)
    assert parts.into.tolist() == [0, 2, 4, 0, 1, 3, 5, 0]
    assert parts.back.tolist() == [0, 4, 1, 5, 2, 6]


def test_sinusoids_are_sines_then_cosines():
    table = sinusoids(3, 4)
    # Width 4 has two frequencies: 1 and 1/10000.
    assert table[2].tolist() == pytest.approx([math.sin(2), math.sin(2e-4), math.cos(2), math.cos(2e-4)])


def test_a_sentence_may_be_longer_than_the_first_table_of_positions():
    network = make_network()
    states = states_of(network, random_pairs((700, 2), (3, 600)))
    assert states.shape == (602, 16)
    assert states.isfinite().all()


def test_dropout_keeps_the_expectation_and_the_rounded_share():
    noise = Noise(torch.Generator().manual_seed(1), states=0.3, attention=0.0)
    dropped = noise.drop_states(torch.ones(999, 1001))
    # 0.3 * 256 = 76.8 rounds to 77; what is kept is scaled by 256 / 179.
    assert dropped.unique().tolist() == [0.0, pytest.approx(256 / 179)]
    assert float((dropped == 0).float().mean()) == pytest.approx(77 / 256, abs=0.002)
    columns = (dropped[:, :1000].reshape(-1, 8) == 0).float().mean(0)
    assert columns.tolist() == pytest.approx([77 / 256] * 8, abs=0.005)


def test_dropout_has_the_gradient_of_what_it_kept():
    noise = Noise(torch.Generator().manual_seed(1), states=0.5, attention=0.0)
    states = torch.linspace(-1, 1, 40).reshape(5, 8).requires_grad_()
    dropped = noise.drop_states(states)
    (gradient,) = torch.autograd.grad(dropped.sum(), states)
    assert gradient.tolist() == (dropped != 0).float().mul(2).tolist()


def test_the_fused_dropouts_equal_their_parts():
    residual = torch.randn(64, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)
    update = torch.randn(64, 16, generator=torch.Generator().manual_seed(2), requires_grad=True)

    def noise() -> Noise:
        return Noise(torch.Generator().manual_seed(5), states=0.3, attention=0.0)

    pairs = [
        (noise().add_dropped(residual, update), residual + noise().drop_states(update)),
        (
            noise().relu_dropped(residual * update) * noise().states_scale,
            noise().drop_states((residual * update).relu()),
        ),
    ]
    for fused, plain in pairs:
        torch.testing.assert_close(fused, plain)
        weights = torch.randn(64, 16, generator=torch.Generator().manual_seed(3))
        gradients = [torch.autograd.grad((result * weights).sum(), [residual, update]) for result in (fused, plain)]
        torch.testing.assert_close(gradients[0], gradients[1])


def test_a_width_that_the_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="width 16 with 3 heads"):
        make_network(heads=3)
