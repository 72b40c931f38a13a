"""The README.md of an exported model: what it was trained on, how, how well it translates, how it is used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rota.evaluation.metrics import DIGITS, LABELS, averages
from rota.export.hugging_face import ExportedTokenizer
from rota.runs import Entry, Run
from rota.runs.standing import Asked, Model, evaluated
from rota.types import Arm, Route

USE = {
    "hf": """```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER, src_lang="__{language}__")
model = AutoModelForSeq2SeqLM.from_pretrained(FOLDER)
inputs = tokenizer(TEXT, return_tensors="pt")
found = model.generate(**inputs, max_new_tokens=2 * inputs.input_ids.shape[1] + 11)
print(tokenizer.decode(found[0], skip_special_tokens=True))
```

The tokenizer is the NLLB class of `transformers` with this model's subwords. There is no target tag: leave `tgt_lang`
and `forced_bos_token_id` alone (so the `translation` pipeline, which asks for a target language, cannot be used).""",
    "ctranslate2": """```python
import ctranslate2, tokenizers

model = ctranslate2.Translator(FOLDER)
subwords = tokenizers.Tokenizer.from_file(FOLDER + "/tokenizer.json")
subwords.encode_special_tokens = True
source = ["__{language}__", *subwords.encode(TEXT, add_special_tokens=False).tokens, "</s>"]
(found,) = model.translate_batch([source], beam_size=5, return_end_token=True, max_decoding_length=2 * len(source) + 11)
print(subwords.decode([subwords.token_to_id(token) for token in found.hypotheses[0]]))
```

Or, with Rota: `rota translate FOLDER --from {language} < in.txt > out.txt`.""",
}

USE_INTO = {
    "hf": """```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER, src_lang="__{language}__")
model = AutoModelForSeq2SeqLM.from_pretrained(FOLDER)
inputs = tokenizer(TEXT, return_tensors="pt")
into = tokenizer.convert_tokens_to_ids("__{target}__")
found = model.generate(**inputs, forced_bos_token_id=into, max_new_tokens=2 * inputs.input_ids.shape[1] + 11)
print(tokenizer.decode(found[0], skip_special_tokens=True))
```

The tokenizer is the NLLB class of `transformers` with this model's subwords. The tag of the target language must be
forced as the first token, as above.""",
    "ctranslate2": """```python
import ctranslate2, tokenizers

model = ctranslate2.Translator(FOLDER)
subwords = tokenizers.Tokenizer.from_file(FOLDER + "/tokenizer.json")
subwords.encode_special_tokens = True
source = ["__{language}__", *subwords.encode(TEXT, add_special_tokens=False).tokens, "</s>"]
settings = dict(beam_size=5, return_end_token=True, max_decoding_length=2 * len(source) + 11)
into = dict(target_prefix=[["__{target}__"]], prefix_bias_beta=1 - 2**-24)
(found,) = model.translate_batch([source], **into, **settings)
print(subwords.decode([subwords.token_to_id(token) for token in found.hypotheses[0]]))
```

The bias of nearly 1 forces the tag of the target language, and `translate_batch` then finds what Rota finds. Without it
one hypothesis is lost when the end symbol is among the likeliest first tokens.

Or, with Rota: `rota translate FOLDER --from {language} --to {target} < in.txt > out.txt`.""",
}
"""The same of a model that translates into several languages: the tag of the target comes first."""


MANY: Final = 16
"""Languages or directions; the title counts more of them, and the table names them."""


def _title(names: Sequence[str], target: str | None) -> str:
    """The languages into ``target``, or the directions; of many, how many there are."""
    if target is None:
        return f"{len(names)} directions" if len(names) > MANY else ", ".join(names)
    return f"{f'{len(names)} languages' if len(names) > MANY else ', '.join(names)} to {target}"


def model_card(
    run: Run, model: Model, *, to: str, quantization: str, tokenizer: ExportedTokenizer | None = None
) -> str:
    """Markdown with the header of the Hugging Face hub; scores are those recorded for exactly these weights.

    ``tokenizer``: where the run started from a model, how that one writes languages.
    """
    sizes, config = run.sizes, run.about["config"]
    targets, first = run.targets, run.route(next(iter(sizes)))
    scores = _scores(run, model)
    several, sources = len(targets) > 1, list(dict.fromkeys(run.route(name).source for name in sizes))
    tagged = several or (tokenizer is not None and tokenizer.subwords.tags_targets)
    use = (USE_INTO if tagged else USE)[to]
    if tokenizer is not None and tokenizer.subwords.about:
        use = _with_codes(use, tokenizer, first)
    use = use.replace("{language}", first.source).replace("{target}", first.target)
    parts = [
        _header(dict.fromkeys((*sources, *targets)), to),
        f"# {config['name']}: {_title(list(sizes) if several else sources, None if several else targets[0])}\n",
        _model(config, model, quantization),
        "## Languages and data\n",
        _languages(run, scores),
        _signatures(scores),
        "## Schedule\n",
        _schedule(config),
        "## Use\n",
        use + "\n",
        "## Limits\n",
        _limits("in the directions above" if several else f"into {targets[0]}, from the languages above", quantization),
    ]
    return "\n".join(parts)


def _with_codes(use: str, tokenizer: ExportedTokenizer, route: Route) -> str:
    """The example with the tokens that stand for languages; where the source is set, M2M100 wants its name."""
    subwords = tokenizer.subwords
    source = subwords.tokens[subwords.tag(route.source)] or ""
    if "{target}" in use:
        use = use.replace("__{target}__", subwords.tokens[subwords.tag(route.target)] or "")
    if tokenizer.is_m2m100:
        use = use.replace('src_lang="__{language}__"', f'src_lang="{source[2:-2]}"').replace(
            "NLLB class", "M2M100 class"
        )
    return use.replace("__{language}__", source)


def _header(languages: Iterable[str], to: str) -> str:
    """YAML; codes are in quotes, because ``no`` alone would be false."""
    library = {"hf": "transformers", "ctranslate2": "ctranslate2"}[to]
    return f"""---
language: {json.dumps(list(languages))}
license: unknown
library_name: {library}
tags: [translation, m2m_100, rota]
---
"""


def _model(config: Mapping[str, Any], model: Model, quantization: str) -> str:
    if model.combine == "average":
        which = f"the mean over the checkpoints at steps {', '.join(f'{step:,}' for step in model.steps)}"
    else:
        moving = "the moving average of " if model.combine == "moving-average" else ""
        which = f"{moving}those of step {model.step:,}"
    student = config["student"]
    changed = [f"{key} {student[key]}" for key in ("layers", "width", "heads", "feedforward") if student[key]]
    size = ", ".join([f"preset `{student['preset']}`", *changed])
    if student.get("start"):
        size = f"{', '.join(changed)}, started from {Path(student['start']).name}"
    return f"""A multilingual translation model made with Rota, in which a teacher chooses the language of each training
batch. It is an encoder-decoder Transformer ({size}) of the M2M100 architecture. The weights are {which}
of {config["training"]["steps"]:,}, in {quantization}.

The licence of the weights depends on the text they were trained on: put it into the header before you publish them.
"""


def _languages(run: Run, scores: Mapping[str, Mapping[Arm, Entry]]) -> str:
    sizes, low_resource = run.sizes, run.low_resource
    titles = "".join(f" {LABELS.get(metric, metric)} |" for metric in scores)
    lines = [f"| language | training pairs |{titles}", f"|---|---:|{'---:|' * len(scores)}"]
    for arm, size in sizes.items():
        low = " (low-resource)" if arm in low_resource else ""
        cells = "".join(
            f" {_cell(found[arm]['score'] if arm in found else None, metric)} |" for metric, found in scores.items()
        )
        lines.append(f"| {arm}{low} | {size:,} |{cells}")
    means = {
        metric: averages({arm: found["score"] for arm, found in each.items()}, low_resource, run.goal, run.routes)
        for metric, each in scores.items()
    }
    for group in next(iter(means.values()), {}):
        lines += [f"| {group} | |{''.join(f' {_cell(mean.get(group), metric)} |' for metric, mean in means.items())}"]
    return "\n".join(lines) + "\n"


def _cell(score: float | None, metric: str) -> str:
    return "" if score is None else f"{score:.{DIGITS.get(metric, 1)}f}"


def _signatures(scores: Mapping[str, Mapping[Arm, Entry]]) -> str:
    if not scores:
        return "No test scores were recorded for these weights when they were exported.\n"
    first = [next(iter(found.values())) for found in scores.values()]
    search = first[0]["search"]
    lines = [f"- {LABELS.get(entry['metric'], entry['metric'])}: `{entry['signature']}`" for entry in first]
    how = f"beam {search['beam']}, length penalty {search['length_penalty']:g}"
    how += f", {search['engine']}" if "engine" in search else ""
    loss = "; loss: cross-entropy of the references, less is better" if "loss" in scores else ""
    return f"Scores on the test sets, 0 to 100 ({how}){loss}:\n\n" + "\n".join(lines) + "\n"


def _scores(run: Run, model: Model) -> dict[str, dict[Arm, Entry]]:
    """By metric and language: test scores of exactly these weights, by the run's own search if there are any."""
    asked = Asked.of(run.setting("config.evaluation"))
    found = [scores for scores in evaluated(run) if scores.model.name == model.name]
    own = [scores for scores in found if asked.has_search(scores)]
    by_metric: dict[str, dict[Arm, Entry]] = {}
    for scores in own or [each for each in found if each.search == found[-1].search]:
        for (arm, metric), entry in scores.entries.items():
            by_metric.setdefault(metric, {})[arm] = entry
    return by_metric


def _schedule(config: Mapping[str, Any]) -> str:
    """The teacher with the parameters that are set, and the budget."""
    teacher = config["teacher"]
    parameters = {key: value for key, value in teacher.items() if key != "name" and value is not None}
    training = config["training"]
    batch = training["tokens"] * training["accumulate"]
    settings = "\n".join(f"- `{key}`: `{json.dumps(value)}`" for key, value in parameters.items())
    budget = f"{training['steps']:,} steps of {batch:,} target tokens"
    return f"Teacher `{teacher['name']}`, {budget}, seed {config['seed']}.\n\n{settings}\n"


def _limits(what: str, quantization: str) -> str:
    rounded = " Weights are rounded to 8 bits; the scores above are those of float32." if quantization == "int8" else ""
    return f"""The model translates single sentences {what} and no others, in text like
that which it was trained on. Text in another language, or with a wrong tag, gives fluent nonsense. Names and numbers
may be changed, and the biases of the training text are the model's. Sources end at 1,024 subwords.{rounded}
"""
