"""python docs/use_transformers.py FOLDER az [en] < in.txt; FOLDER is from: rota export RUN --to hf --out FOLDER

The second language is that of the translation; it is needed if the model has several.
"""

import sys

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder, language, *into = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder, src_lang=f"__{language}__")
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
first = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(f"__{into[0]}__")} if into else {}
for line in sys.stdin:
    source = tokenizer(line, return_tensors="pt")
    found = model.generate(**source, max_new_tokens=2 * source.input_ids.shape[1] + 11, **first)
    print(tokenizer.decode(found[0], skip_special_tokens=True) if line.strip() else "")
