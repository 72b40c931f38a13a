"""python docs/use_transformers.py FOLDER az < in.txt; FOLDER is from: rota export RUN --to hf --out FOLDER"""

import sys

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder, language = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder, src_lang=f"__{language}__")
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
for line in sys.stdin:
    source = tokenizer(line, return_tensors="pt")
    found = model.generate(**source, max_new_tokens=2 * source.input_ids.shape[1] + 11)
    print(tokenizer.decode(found[0], skip_special_tokens=True) if line.strip() else "")
