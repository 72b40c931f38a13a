"""Run folders made by hand: the records of runs that never were, so that every number of a report is known."""

import gzip
import json

SIZES = {"az": 100, "be": 100, "tr": 400, "ru": 400}
LOW_RESOURCE = ["az", "be"]
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"  # without a space, as long as they are


def make_run(
    folder, *, seed=1, teacher="uniform", warmup="10%", steps=20, done=None, arms=None, data="corpus", **records
):
    """A run of ``done`` (all by default) steps of 100 tokens that takes the ``arms`` in turn.

    ``records``: ``dev_losses``, step to language to loss; ``scores``, metric to language to score; ``chosen``, extra
    fields of the scores such as ``select``; ``selected``, the step of the best model; ``observations`` and
    ``decisions``, entries as training writes them, the latter by step; ``alarms`` and ``spot_checks`` likewise;
    ``goal``, as in the config; ``dev_scores``, step to metric to language to score; ``stops``, entries; ``epochs``, of
    each language at the validations, which earlier versions did not write.
    """
    folder.mkdir(parents=True)
    done = steps if done is None else done
    about = about_run(seed, teacher, warmup, steps, data)
    if "goal" in records:
        about["config"]["goal"] = records["goal"]
    write_json(folder / "run.json", about)
    arms = list(arms or SIZES)
    taken = [arms[step % len(arms)] for step in range(done)]
    decisions = records.get("decisions", {})
    entries = [step_entry(step, arm) | decisions.get(step, {}) for step, arm in enumerate(taken, start=1)]
    write_lines(folder / "steps.jsonl", entries)
    losses = records.get("dev_losses", {})
    dev_scores = records.get("dev_scores", {})
    if dev_scores:
        about["config"]["training"]["dev_sentences"] = 8
        write_json(folder / "run.json", about)
    seen = {"epochs": records["epochs"]} if "epochs" in records else {}
    validated = [{"step": step, "dev_loss": loss, **seen, **dev_scores.get(step, {})} for step, loss in losses.items()]
    write_lines(folder / "validations.jsonl", validated)
    if "stops" in records:
        write_lines(folder / "stops.jsonl", records["stops"])
    write_lines(folder / "observations.jsonl", records.get("observations", []))
    if "spot_checks" in records:
        empty = {key: {} for key in ("source_gain", "train_loss", "dev_source_gain", "epochs")}
        write_lines(folder / "spot_checks.jsonl", [empty | entry for entry in records["spot_checks"]])
    if "alarms" in records:
        write_lines(folder / "alarms.jsonl", records["alarms"])
    write_lines(folder / "timings.jsonl", [timing(step, **records.get("time", {})) for step in (done // 2, done)])
    write_lines(folder / "evals.jsonl", evals(records.get("scores", {}), steps, records.get("chosen", {})))
    if "selected" in records:
        write_json(folder / "selection.json", {"select": "low-resource", "best": {"step": records["selected"]}})
    return folder


def about_run(seed, teacher, warmup, steps, data):
    training = {"steps": steps, "tokens": 100, "checkpoint_every": "10%"}
    chooses = {"name": teacher, "warmup": warmup and {"until": warmup}}
    config = {"name": "made", "seed": seed, "data": {"corpus": "synthetic"}, "student": {"preset": "tiny"}}
    return {
        "config": config | {"teacher": chooses, "training": training},
        "seed": seed,
        "data": {"fingerprint": data, "low_resource": LOW_RESOURCE, "sizes": SIZES},
        "measured": {"teacher_sentences": dict.fromkeys(SIZES, 7), "selection_sentences": dict.fromkeys(SIZES, 8)},
        "versions": {"rota-nmt": "0.1.0"},
        "hardware": {"machine": "x86_64", "cores": 2, "threads": 1},
    }


def step_entry(step, arm):
    return {"step": step, "arm": arm, "why": "sampled", "loss": 1.0, "tokens": 100}


def timing(step, wall=60.0, cpu=30.0, updates=40.0):
    return {"step": step, "wall": wall, "cpu": cpu, "phases": {"updates": updates, "validations": 5.0}}


def evals(scores, step, chosen):
    head = {"step": step, "split": "test", "search": {"beam": 5, "length_penalty": 1.0}, **chosen}
    return [
        {**head, "language": arm, "metric": metric, "score": score, "signature": f"{SIGNATURE}|{metric}"}
        for metric, by_language in scores.items()
        for arm, score in by_language.items()
    ]


def everywhere(value):
    """The same value for every language."""
    return dict.fromkeys(SIZES, value)


def make_suite(folder, rows, seeds):
    """``suite.json`` alone; ``rows``: name to the fields that differ from the usual."""
    described = [
        {"name": name, "label": name, "warmup": "10%", "table": "main", "paper": None, **about}
        for name, about in rows.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "suite.json", {"name": "made", "seeds": seeds, "rows": described})


def write_json(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")


def write_lines(path, entries):
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")


def pack(path):
    """Gzip a record and remove the plain one."""
    with gzip.open(f"{path}.gz", "wb") as file:
        file.write(path.read_bytes())
    path.unlink()
