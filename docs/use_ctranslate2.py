"""python docs/use_ctranslate2.py FOLDER az < in.txt; FOLDER is from: rota export RUN --to ctranslate2 --out FOLDER"""

import sys

import ctranslate2
import tokenizers

folder, language = sys.argv[1:]
model = ctranslate2.Translator(folder)
subwords = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
subwords.encode_special_tokens = True  # "</s>" in a text is text
for line in sys.stdin:
    source = [f"__{language}__", *subwords.encode(line).tokens, "</s>"]
    limit = {"max_decoding_length": 2 * len(source) + 11, "min_decoding_length": 0}
    (found,) = model.translate_batch([source], beam_size=5, return_end_token=True, **limit)
    ids = [subwords.token_to_id(token) for token in found.hypotheses[0]]
    print(subwords.decode(ids) if line.strip() else "")
