"""What the benchmarks count, against numbers worked out by hand."""

import importlib
import json
import statistics
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from machine.limit import matrices, matrices_of_piece, products
from machine.spending import PRODUCTS, REST, kind_of
from machine.streams import shares_of_updates
from machine.teaching import learning_flops, teacher_config
from machine.work import forward_flops, make_student, padding, random_batch, update_flops
from rota.student.config import Shape
from rota.student.nmt import TRAINING_TOKENS
from rota.student.pieces import pieces
from rota.teachers.dqn.config import DQNConfig
from rota.types import Batch

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"
SHAPE = Shape(vocabulary=10, encoder_layers=1, decoder_layers=1, width=4, heads=1, feedforward=8)


@pytest.fixture
def peer_rows(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    return importlib.import_module("peer_rows")


def one_sentence(source, target):
    ids = [np.full(length, 5) for length in (source, target)]
    return Batch("xx", ids[0], np.array([source]), ids[1], np.array([target]), {"xx": target})


def test_operations_of_a_sentence_are_those_of_its_matrix_products():
    # A source token: 4 * 16 + 2 * 32 in the encoder and 2 * 16 for keys and values; a target token: 6 * 16 + 2 * 32 in
    # the decoder and 40 for the output. Pairs in attention: 9 in the encoder, 4 + 6 in the decoder, each 2 * 4.
    assert forward_flops(SHAPE, one_sentence(3, 2)) == 2 * (3 * 160 + 2 * 200 + 19 * 8)
    assert update_flops(SHAPE, one_sentence(3, 2)) == 3 * 2064


def test_the_limit_multiplies_what_the_model_multiplies_apart_from_attention():
    found = matrices_of_piece(SHAPE, 3, 2)
    attention = 2 * (9 + 4 + 6) * 8
    forward = forward_flops(SHAPE, one_sentence(3, 2)) - attention
    assert sum(matrix.times * matrix.flops for matrix in found) == forward
    assert sum(len(products(matrix)) * matrix.times * matrix.flops for matrix in found) == 3 * forward


def test_the_limit_has_the_rows_of_the_pieces_and_of_the_chunks_of_the_loss():
    student = make_student("tiny", 9_000)
    batch = random_batch(np.random.default_rng(0), 9_000, 4_000)
    rows = [(len(piece.source), len(piece.target)) for _, _, piece in pieces(batch, TRAINING_TOKENS)]
    assert len(rows) == 3
    found = matrices(student, batch)
    widened = [matrix.rows for matrix in found if (matrix.inner, matrix.outer) == (128, 384)]
    assert widened == [side for piece in rows for side in piece]
    output = [(matrix.rows, matrix.times) for matrix in found if matrix.outer == 9_000]
    chunk = 2**22 // 9_000  # rows whose logits the loss holds at once
    assert output == [part for _, target in rows for part in ((chunk, target // chunk), (target % chunk, 1))]


def test_the_limit_multiplies_operands_that_lie_as_in_training():
    """Every product of layers and loss in an update has its twin, as often, with the same shapes and transposes."""
    student = make_student("tiny", 300)
    batch = random_batch(np.random.default_rng(0), 300, 200)
    update, limit = seen_products(lambda: student.update([batch])), Counter()
    for matrix in matrices(student, batch):
        for product in products(matrix):
            limit.update(dict.fromkeys(seen_products(product), matrix.times))
    assert limit == update


def seen_products(work):
    """Shapes and transposes of the operands of all products of two matrices, and how often each came."""
    found = Counter()

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, called, types, args=(), kwargs=None):
            if called._schema.name in ("aten::mm", "aten::addmm", "aten::addmm_"):
                left, right = args[-2:]
                found[(*((tuple(each.shape), each.is_contiguous()) for each in (left, right)),)] += 1
            return called(*args, **(kwargs or {}))

    with Seen():
        work()
    return found


def test_padding_is_the_empty_share_of_the_rectangles():
    assert padding([np.array([2, 4]), np.array([3, 3])]) == pytest.approx(2 / 14)
    assert padding([np.array([3, 3])]) == 0


def test_a_stream_takes_its_share_of_drawing_and_training_after_the_first_update():
    batches = [one_sentence(3, 2)] * 4
    # Two tokens at two millionths of a million tokens a second take a second; updates of 1 and 3 follow the first.
    assert shares_of_updates(batches, [9.0, 1.0, 3.0], 2e-6) == pytest.approx([1 / 2, 1 / 4])


def test_random_sentences_fill_the_budget():
    batch = random_batch(np.random.default_rng(0), 100, 300)
    assert 300 <= batch.tokens < 400
    assert len(batch.source) == batch.source_lengths.sum()
    assert batch.target.max() < 100


def test_the_update_of_a_q_network_is_three_products_and_one_of_the_target_network():
    config = DQNConfig(groups=1, hidden=(3,), replay_batch=5, replay_minimum=2, warmup=None)
    assert learning_flops(config, arms=2) == 2 * (2 * 3 + 3 * 2) * 5 * 4
    assert learning_flops(teacher_config("tscl"), arms=2) == 0


def test_rotation_is_read_from_the_name_of_the_teacher():
    assert teacher_config("dqn, refresh 1/5").state_measure.refresh_every == 5
    assert teacher_config("dqn, variant paper").state_measure.refresh_every == 1
    assert teacher_config("dqn").state_measure.refresh_every == 20
    assert teacher_config("uniform, curriculum norm").curriculum.name == "norm"


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["aten::mm", "_SmoothedLoss"], PRODUCTS),
        (["aten::mul", "_AddDropped"], "dropout and residual sums"),
        (["aten::mul", "_AddDroppedBackward"], "dropout and residual sums"),
        (["aten::random_", "_ReluDropped"], "dropout"),
        (["aten::copy_", "aten::addmm", "_ScaledLinear"], PRODUCTS),
        (["aten::addmv_", "aten::mv", "_ScaledLinearBackward"], PRODUCTS),
        (["aten::baddbmm_", "_AttentionBackward"], "matrix products of attention"),
        (["aten::index_select", "_Attention"], "rows to heads and back"),
        (["aten::index_select"], "embedding and positions"),
        (["aten::copy_", "aten::to", "aten::mul_", "_AttentionBackward"], "dropout"),
        (["aten::sub_", "_SmoothedLoss"], "loss, without its products"),
        (["aten::item"], REST),
    ],
)
def test_an_event_belongs_to_the_innermost_kind_that_is_known(names, kind):
    assert kind_of(names) == kind


def updates():
    """Four updates that end after 1, 2, 4 and 8 seconds of the processor; the machine becomes slower meanwhile."""
    tokens, positions, seconds, machine = (10, 10, 30, 50), (20, 20, 60, 100), (1, 2, 4, 8), (4.0, 4.0, 2.0, 2.0)
    return [
        {"update": n, "tokens": a, "positions": b, "processor": c, "wall": 2 * c, "peak": c * 2**20, "machine": d}
        for n, (a, b, c, d) in enumerate(zip(tokens, positions, seconds, machine, strict=True), start=1)
    ]


def test_the_clock_of_a_peer_starts_after_two_updates(peer_rows):
    assert peer_rows.speed(updates(), "processor") == pytest.approx(80 / 6)
    assert peer_rows.speed(updates(), "wall") == pytest.approx(80 / 12)
    assert peer_rows.padded(updates()) == pytest.approx(50)


def test_the_speed_of_a_peer_is_seen_beside_that_of_the_machine(peer_rows, tmp_path):
    assert peer_rows.steady_speed(updates()) == pytest.approx(80 / (2 * 3 + 4 * 2))
    half = [each | {"processor": 2 * each["processor"], "machine": each["machine"] / 2} for each in updates()]
    assert peer_rows.steady_speed(half) == pytest.approx(peer_rows.steady_speed(updates()))
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "rota.jsonl").write_text("".join(json.dumps(line) + "\n" for line in updates()))
    first, second = peer_rows.rows_of(tmp_path, 1, "small")[:2]
    assert (first.what, first.value, first.ratio) == (peer_rows.MEASURED, pytest.approx(80 / 6), None)
    assert (second.what, second.value, second.ratio) == (peer_rows.AT_USUAL_SPEED, pytest.approx(3 * 80 / 14), None)


def test_measuring_the_machine_is_not_in_the_time_of_a_peer(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(PEERS / "drivers"))
    counting = importlib.import_module("counting")
    monkeypatch.setattr(counting, "register_optimizer_step_post_hook", lambda _: None)
    now = iter(range(1_000))  # every look at a clock takes a second
    monkeypatch.setattr(counting.time, "process_time", lambda: next(now))
    monkeypatch.setattr(counting, "clocks", lambda: {"wall": 0.0, "processor": float(next(now))})
    out = tmp_path / "out.jsonl"
    counter = counting.Counter(SimpleNamespace(turn=None, updates=9, threads=torch.get_num_threads(), seed=1, out=out))
    for _ in range(3):
        counter._stepped()
    counter.file.close()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    # An update ends at second 0; the product is looked at in seconds 1 to 4; the next update ends at second 5.
    assert [line["processor"] for line in lines] == [0, 5 - 3, 10 - 6]
    operations = 2.0 * counting.ROWS * counting.INNER * counting.OUTER * counting.REPEATED
    assert [line["machine"] for line in lines] == [operations] * 3


def test_the_ratio_to_a_peer_is_of_all_turns_together(peer_rows):
    ratio_row = importlib.import_module("ratios").ratio_row
    slower = [each | {"processor": 2 * each["processor"]} for each in updates()]
    same = ratio_row({1: updates(), 2: updates()}, {1: slower, 3: slower}, "one", "rota, small", 2)
    assert (same.value, same.low, same.high) == pytest.approx((2, 2, 2)), (
        "one round in common, every turn twice as long"
    )
    # 30 tokens in 2 s and 50 in 4 s beside 30 in 2 s and 50 in 8 s.
    late = [*updates()[:3], updates()[3] | {"processor": 12}]
    mixed = ratio_row({1: updates()}, {1: late}, "one", "rota, small", 2)
    assert mixed.value == pytest.approx((80 / 6) / (80 / 10))
    assert (mixed.low, mixed.high) == pytest.approx((1, 2)), "turns drawn anew: the same one twice at the ends"
    assert ratio_row({1: updates()}, {1: late[:3]}, "one", "rota, small", 2).value == pytest.approx(1), "ended early"


def test_no_peer_that_trained_gives_no_rows(peer_rows, tmp_path):
    assert peer_rows.rows_of(tmp_path, 1, "small") == []


def test_ours_is_compared_with_the_fastest_and_with_the_leanest_peer(peer_rows, tmp_path):
    faster = [each | {"processor": each["processor"] / 3, "positions": each["tokens"]} for each in updates()]
    slow = [each | {"peak": 2 * 2**20} for each in updates()]
    runs = (("1/rota", faster), ("1/one", updates()), ("1/two", slow), ("1/begun", slow[:1]), ("2/rota", slow))
    for name, lines in runs:
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = {(each.setting, each.what): each for each in peer_rows.rows_of(tmp_path, 1, "small")}
    for what in (peer_rows.MEASURED, peer_rows.AT_USUAL_SPEED):
        assert rows["rota, small", what].ratio == pytest.approx(3)
    assert rows["rota, small", "peak memory"].ratio == pytest.approx(8 / 2)
    assert rows["rota, small", "padded target positions"].value == 0
    assert rows["one, small", "real target tokens in an update"].value == statistics.mean([10, 10, 30, 50])
    assert not any(setting.startswith("begun") for setting, _ in rows)
