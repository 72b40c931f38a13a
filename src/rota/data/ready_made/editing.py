"""Changes to the content of a ``tokenizers`` file: other numbers, fewer tokens, more subwords."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer  # type: ignore[import-untyped]

from rota.data.ready_made.sentencepiece import splits
from rota.settings import ConfigError

Content = dict[str, Any]
Pair = tuple[str, str]


def normalised(text: str) -> Content:
    """The content in the form that ``tokenizers`` writes today; older files have merges as strings."""
    content: Content = json.loads(Tokenizer.from_str(text).to_str())
    return content


def tokens_of(content: Content) -> list[str]:
    """All tokens by id, added ones too; an id that nothing has is a made-up word, as in fairseq."""
    vocabulary = content["model"]["vocab"]
    ids = (
        dict(vocabulary)
        if isinstance(vocabulary, dict)
        else {token: number for number, (token, _) in enumerate(vocabulary)}
    )
    ids |= {token["content"]: int(token["id"]) for token in content["added_tokens"]}
    by_id = {number: token for token, number in ids.items()}
    return [by_id.get(number, made_up(number)) for number in range(max(by_id) + 1)]


def made_up(number: int) -> str:
    """The name of a row of the embeddings that no text uses."""
    return f"madeupword{number:04d}"


def is_made_up(token: str) -> bool:
    """Whether a token is such a name."""
    return token.startswith("madeupword") and token.removeprefix("madeupword").isdigit()


def numbered(content: Content, tokens: Sequence[str]) -> Content:
    """The same tokenizer with these tokens alone, whose ids are 0, 1, ...; merges that need others go.

    Of a unigram model the added tokens that are not pieces come last; ``tokenizers`` gives them the next numbers.
    """
    ids = {token: number for number, token in enumerate(tokens)}
    added = [{**token, "id": ids[token["content"]]} for token in content["added_tokens"] if token["content"] in ids]
    added.sort(key=lambda token: int(token["id"]))
    return {**content, "added_tokens": added, "model": _numbered_model(content["model"], ids, tokens, added)}


def _numbered_model(model: Content, ids: Mapping[str, int], tokens: Sequence[str], added: Sequence[Content]) -> Content:
    if model["type"] == "Unigram":
        scores, unknown = dict(model["vocab"]), model["vocab"][model["unk_id"] or 0][0]
        outside = {token["content"] for token in added} - scores.keys()
        assert all(token not in outside for token in tokens[: len(tokens) - len(outside)]), "added tokens come last"
        vocabulary = [[token, scores[token]] for token in tokens if token not in outside]
        return {**model, "vocab": vocabulary, "unk_id": ids.get(unknown)}
    changed = {**model, "vocab": dict(ids)}
    if model["type"] == "BPE":
        merges = ((left, right) for left, right in model["merges"])
        changed["merges"] = [
            [left, right] for left, right in merges if left in ids and right in ids and left + right in ids
        ]
    return changed


def used_tokens(content: Content, texts: Iterable[Sequence[str]]) -> set[str]:
    """The tokens that these texts are made of, and of BPE those that lead to them: nothing else is ever needed.

    A cut vocabulary divides the same texts in the same way: a unigram model finds the best path among fewer, and the
    merges inside a subword do not depend on what is around it.
    """
    tokenizer = Tokenizer.from_str(json.dumps({**content, "truncation": None, "padding": None}))
    tokenizer.encode_special_tokens = True
    found: set[int] = set()
    for batch in texts:
        for encoding in tokenizer.encode_batch_fast(list(batch), add_special_tokens=False):
            found.update(encoding.ids)
    used = {tokenizer.id_to_token(number) for number in found}
    if content["model"]["type"] != "BPE":
        return used
    ranks = {(left, right): rank for rank, (left, right) in enumerate(content["model"]["merges"])}
    return used.union(*(_steps_to(token, ranks) for token in used))


def _steps_to(token: str, ranks: Mapping[Pair, int]) -> set[str]:
    """Everything that exists while BPE puts a token together from its characters."""
    parts = list(token)
    passed = set(parts)
    while len(parts) > 1:
        pairs = [(ranks.get((parts[at], parts[at + 1]), len(ranks)), at) for at in range(len(parts) - 1)]
        rank, at = min(pairs)
        if rank == len(ranks):
            break  # a byte, or a symbol that is not put together
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        passed.add(parts[at])
    return passed


def new_subwords(content: Content, texts: Iterable[str], count: int) -> list[str]:
    """So many more BPE subwords for these texts: the most frequent pairs of what they are divided into now."""
    model = content["model"]
    if model["type"] != "BPE":
        found = f"data.subwords.add is {count}, and the tokenizer is a {model['type']} model"
        raise ConfigError(f"{found}; only BPE takes new subwords: leave it out")
    words = _divided(content, texts)
    known, found_new = set(model["vocab"]), list[str]()
    for left, right in _best_pairs(words, known):
        found_new.append(left + right)
        known.add(left + right)
        if len(found_new) == count:
            break
    return found_new


def with_subwords(content: Content, added: Sequence[str]) -> Content:
    """The BPE content with these subwords, which are put together after all others, in any way that is known."""
    model = content["model"]
    known, merges = dict(model["vocab"]), list(model["merges"])
    for text in added:
        merges += [[left, right] for left, right in splits(text, known)]
        known[text] = len(known)
    return {**content, "model": {**model, "vocab": known, "merges": merges}}


def _divided(content: Content, texts: Iterable[str]) -> list[tuple[list[str], int]]:
    """The words of the texts, as the tokenizer divides them, and how often each comes."""
    tokenizer = Tokenizer.from_str(json.dumps(content))
    counts: Counter[str] = Counter()
    for text in texts:
        normal = text if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(text)
        words = [(normal, ())] if tokenizer.pre_tokenizer is None else tokenizer.pre_tokenizer.pre_tokenize_str(normal)
        counts.update(word for word, _ in words)
    unknown = content["model"].get("unk_token")
    divided = (
        ([token.value for token in tokenizer.model.tokenize(word)], often) for word, often in sorted(counts.items())
    )
    return [(parts, often) for parts, often in divided if unknown not in parts]


def _best_pairs(words: list[tuple[list[str], int]], known: Collection[str]) -> Iterator[Pair]:
    """The most frequent pair of neighbours, again and again; words are changed as it is joined."""
    counts: Counter[Pair] = Counter()
    places: dict[Pair, set[int]] = {}
    for number, (parts, often) in enumerate(words):
        _count(parts, often, number, counts, places)
    while counts:
        best = max(counts, key=lambda pair: (counts[pair], pair))
        if counts[best] < 2:
            return
        joined = "".join(best)
        if joined not in known:
            yield best
        for number in places.pop(best):
            parts, often = words[number]
            _count(parts, -often, number, counts, places)
            parts[:] = _joined(parts, best)
            _count(parts, often, number, counts, places)
        counts.pop(best, None)


def _count(parts: Sequence[str], often: int, number: int, counts: Counter[Pair], places: dict[Pair, set[int]]) -> None:
    for pair in pairwise(parts):
        counts[pair] += often
        if often > 0:
            places.setdefault(pair, set()).add(number)
        elif counts[pair] <= 0:
            del counts[pair]


def _joined(parts: Sequence[str], pair: Pair) -> list[str]:
    found: list[str] = []
    for part in parts:
        if found and (found[-1], part) == pair:
            found[-1] = found[-1] + part
        else:
            found.append(part)
    return found
