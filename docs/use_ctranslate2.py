"""python docs/use_ctranslate2.py FOLDER az [en] < in.txt; FOLDER is from: rota export RUN --to ctranslate2 --out FOLDER

The second language is that of the translation; it is needed if the model has several, or started from a checkpoint of
M2M100 or NLLB. Languages have the codes of the model: one that started from NLLB has azj_Latn and eng_Latn.
"""

import sys

import ctranslate2
import tokenizers

folder, language, *into = sys.argv[1:]
model = ctranslate2.Translator(folder)
subwords = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
subwords.encode_special_tokens = True  # "</s>" in a text is text


def tag(language):
    for token in (f"__{language}__", language):
        if subwords.token_to_id(token) is not None:
            return token
    raise SystemExit(f"the model has no language {language!r}; its README.md lists them")


options = {"min_decoding_length": 0}
if into:  # such a bias forces the tag; docs/export.md says why it is there, and the length with it
    options = {"target_prefix": [[tag(into[0])]], "prefix_bias_beta": 1 - 2**-24, "min_decoding_length": 1}
for line in sys.stdin:
    source = [tag(language), *subwords.encode(line, add_special_tokens=False).tokens, "</s>"]
    options["max_decoding_length"] = 2 * len(source) + 11
    (found,) = model.translate_batch([source], beam_size=5, return_end_token=True, **options)
    ids = [subwords.token_to_id(token) for token in found.hypotheses[0]]
    print(subwords.decode(ids) if line.strip() else "")
