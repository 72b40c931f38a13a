"""python docs/use_ctranslate2.py FOLDER az [en] < in.txt; FOLDER is from: rota export RUN --to ctranslate2 --out FOLDER

The second language is that of the translation; it is needed if the model has several.
"""

import sys

import ctranslate2
import tokenizers

folder, language, *into = sys.argv[1:]
model = ctranslate2.Translator(folder)
subwords = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
subwords.encode_special_tokens = True  # "</s>" in a text is text
first = {"target_prefix": [[f"__{into[0]}__"]]} if into else {}
for line in sys.stdin:
    source = [f"__{language}__", *subwords.encode(line).tokens, "</s>"]
    limit = {"max_decoding_length": 2 * len(source) + 11, "min_decoding_length": 0}
    (found,) = model.translate_batch([source], beam_size=5, return_end_token=True, **limit, **first)
    ids = [subwords.token_to_id(token) for token in found.hypotheses[0]]
    print(subwords.decode(ids) if line.strip() else "")
