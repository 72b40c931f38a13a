"""fairseq as a translator: our weights in its own model, its own beam search; ids to ids.

Started with a file of weights and sizes, which ``write_weights`` in benchmarks/fairseq_search.py makes. Each line of
standard input is a JSON object with sources, the beam, padded source tokens in a batch and the tokens that a
translation may be longer than its source; the answer is a line with the translations and the seconds that they took.
"""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace

import torch


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever fairseq prints
    torch.set_num_threads(1)
    content = torch.load(sys.argv[1])
    model, dictionary = build(content)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        wall, processor = time.perf_counter(), time.process_time()
        found = translate(model, dictionary, wanted)
        spent = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
        print(json.dumps({"found": found, **spent}), file=answers, flush=True)


def build(content):
    """The model that `fairseq-train` would have made with these sizes, and a dictionary with our numbers."""
    from fairseq.data import Dictionary
    from fairseq.models.transformer import TransformerModel, base_architecture

    sizes = content["sizes"]
    dictionary = Dictionary()
    for number in range(len(dictionary), sizes["vocabulary"]):
        dictionary.add_symbol(f"t{number}")
    options = Namespace(share_all_embeddings=True, no_scale_embedding=False, adaptive_input=False)
    for side in ("encoder", "decoder"):
        setattr(options, f"{side}_layers", sizes["layers"])
        setattr(options, f"{side}_embed_dim", sizes["width"])
        setattr(options, f"{side}_attention_heads", sizes["heads"])
        setattr(options, f"{side}_ffn_embed_dim", sizes["feedforward"])
        setattr(options, f"{side}_normalize_before", True)
    base_architecture(options)
    model = TransformerModel.build_model(options, Namespace(source_dictionary=dictionary, target_dictionary=dictionary))
    missing, unexpected = model.load_state_dict(content["weights"], strict=False)[:2]
    left = [name for name in missing if "version" not in name and "_float_tensor" not in name]
    assert not left, left
    assert model.encoder.layer_norm is not None
    assert model.decoder.layer_norm is not None
    assert not unexpected, unexpected
    model.eval()
    model.prepare_for_inference_(Namespace(generation=Namespace(no_beamable_mm=True, print_alignment=None)))
    return model, dictionary


def translate(model, dictionary, wanted):
    from fairseq.data import data_utils
    from fairseq.sequence_generator import SequenceGenerator

    generator = SequenceGenerator(
        [model], dictionary, beam_size=wanted["beam"], max_len_a=1.0, max_len_b=wanted["extra"], len_penalty=1.0
    )
    sources = wanted["sources"]
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    found, done = {}, 0
    while done < len(order):
        numbers = order[done : done + max(1, wanted["tokens"] // len(sources[order[done]]))]
        done += len(numbers)
        rows = [torch.tensor(sources[number]) for number in numbers]
        padded = data_utils.collate_tokens(rows, dictionary.pad(), dictionary.eos(), left_pad=True)
        lengths = torch.tensor([len(row) for row in rows])
        sample = {"net_input": {"src_tokens": padded, "src_lengths": lengths}}
        with torch.inference_mode():
            hypotheses = generator.generate([model], sample)
        for number, best in zip(numbers, hypotheses, strict=True):
            found[number] = best[0]["tokens"].tolist()[:-1]
    return [found[number] for number in range(len(sources))]


if __name__ == "__main__":
    main()
