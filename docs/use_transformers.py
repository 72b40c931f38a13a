"""python docs/use_transformers.py FOLDER az [en] < in.txt; FOLDER is from: rota export RUN --to hf --out FOLDER

The second language is that of the translation; it is needed if the model has several, or started from a checkpoint of
M2M100 or NLLB. Languages have the codes of the model: one that started from NLLB has azj_Latn and eng_Latn.
"""

import sys

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder, language, *into = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder)


def tag(language):
    for token in (f"__{language}__", language):
        if tokenizer.convert_tokens_to_ids(token) != tokenizer.unk_token_id:
            return token
    raise SystemExit(f"the model has no language {language!r}; its README.md lists them")


# The class of M2M100 wants the name of the source language, that of NLLB its tag.
tokenizer.src_lang = tag(language).strip("_") if hasattr(tokenizer, "get_lang_id") else tag(language)
first = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(tag(into[0]))} if into else {}
for line in sys.stdin:
    source = tokenizer(line, return_tensors="pt")
    found = model.generate(**source, max_new_tokens=2 * source.input_ids.shape[1] + 11, **first)
    print(tokenizer.decode(found[0], skip_special_tokens=True) if line.strip() else "")
