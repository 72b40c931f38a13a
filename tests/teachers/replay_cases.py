"""Run folders made by hand, with nothing in them but what a replay reads."""

import gzip
import json


def make_run(
    folder, arms, *, languages=("az", "be", "tr", "ru"), steps=None, decide_every=1, compressed=False, warmup=0
):
    """A run that trained on ``arms``, one for each update, and was to train for ``steps`` (that many by default).

    The first ``warmup`` updates were of its warm-up.
    """
    folder.mkdir(parents=True)
    config = {"training": {"steps": len(arms) if steps is None else steps}, "teacher": {"decide_every": decide_every}}
    about = {"config": config, "data": {"sizes": dict.fromkeys(languages, 10)}}
    (folder / "run.json").write_text(json.dumps(about))
    update = {"loss": 1.0, "tokens": 9}
    lines = [
        json.dumps(update | {"step": step, "arm": arm, "why": "warmup" if step <= warmup else "greedy"}) + "\n"
        for step, arm in enumerate(arms, start=1)
    ]
    content = "".join(lines).encode()
    name = "steps.jsonl.gz" if compressed else "steps.jsonl"
    (folder / name).write_bytes(gzip.compress(content) if compressed else content)
    return folder
