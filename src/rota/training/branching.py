"""A run that begins where another one, its stem, has ended: at the last step of the warm-up that both share.

The stem is an ordinary run that was stopped there. Branching makes the folder of the new run look as if that run had
trained the warm-up itself and had been stopped: the stem's records, and its checkpoints with the new run's teacher in
the place of the stem's. Then the run resumes as any other. Only a teacher that was told nothing of its warm-up can
begin like this, and the result is the same, bit for bit.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rota.files import folder_atomically, read_json, sha256_of
from rota.runs import REMEDY, Run, read_record
from rota.runs.checkpoints import MANIFEST, TREE, Checkpoint, write_manifest
from rota.teachers import Warmup
from rota.training.alarms.guard import Guarded
from rota.training.loop import Loop
from rota.training.spot_checks import SpotCheck
from rota.types import Arm, Decision, State

OWN = ("teacher", "probe", "alarms")
"""The parts of a checkpoint that a branch does not take from its stem: nothing was measured for its teacher there, or
told, and its detectors are others."""


def stem_checkpoint(stem: Run, step: int) -> Checkpoint:
    """The checkpoint of a stem from which runs branch: at its end, with everything that resuming needs.

    If the stem stopped early, so do all that begin with it.
    """
    step = stem.end_of(step)
    found = {checkpoint.step: checkpoint for checkpoint in stem.checkpoints().list()}
    if step not in found or max(found) != step:
        there = f"is at step {max(found):,}" if found else "has no checkpoint"
        raise ValueError(f"{stem} {there}, and the warm-up ends at {step:,}; run rota train with --until {step}")
    damage = found[step].damaged_file()
    if damage is not None:
        raise ValueError(f"{found[step].folder} is damaged ({damage}); delete {stem} and train it again")
    return found[step]


def about_stem(stem: Run, step: int) -> dict[str, Any]:
    """What ``run.json`` of a branch says: runs of one seed with the same checksum have begun alike."""
    checkpoint = stem_checkpoint(stem, step)
    return {"step": checkpoint.step, "checkpoint": sha256_of(checkpoint.folder / MANIFEST)}


def branch(loop: Loop, stem: Run, begun: Mapping[str, Any]) -> None:
    """Put records and checkpoints of the stem into the folder of a loop that has not begun; else nothing is done.

    ``begun`` is what :func:`about_stem` said when the run was made. The checkpoints appear all at once, and last:
    before that, a run that was killed here begins again, from the same stem.
    """
    target = loop.checkpoints.folder
    if target.is_dir():
        return
    if about_stem(stem, begun["step"]) != begun:
        raise ValueError(f"{stem} is not the stem that {target.parent} was to begin with; give that one, or delete it")
    _check_told_nothing(loop)
    loop.journal.close()
    for path in loop.journal.paths:
        source = stem.folder / path.name
        path.unlink(missing_ok=True)
        if source.exists() and path != loop.journal.alarms.path:
            shutil.copyfile(source, path)
    kept = {"teacher": loop.turns.teacher.state_dict(), "probe": loop.probe.state_dict()}
    student = set(loop.student.state_dict())
    alarms = _watch(loop, stem)
    with folder_atomically(target) as partial:
        for checkpoint in stem.checkpoints().list():
            own = kept | {"alarms": alarms[checkpoint.step]}
            lines = checkpoint.records()
            if lines is not None:
                raised = read_record(loop.journal.alarms.path)
                lines |= {"alarms": sum(alarm["step"] <= checkpoint.step for alarm in raised)}
            _rewrite(checkpoint, partial / str(checkpoint.step), own, student, lines)


def _check_told_nothing(loop: Loop) -> None:
    teacher = loop.turns.teacher
    inner = teacher.teacher if isinstance(teacher, Guarded) else teacher
    if not isinstance(inner, Warmup) or inner.inform != "none":
        kind = type(inner).__name__
        raise ValueError(f"the teacher ({kind}) decides or is told something before its warm-up ends; train it whole")


def _watch(loop: Loop, stem: Run) -> dict[int, State]:
    """The detectors see what the stem did, as if it were the loop's own; their states at its checkpoints."""
    saved = {checkpoint.step for checkpoint in stem.checkpoints().list()}
    validations = {entry["step"]: entry for entry in stem.read("validations")}
    checks = {entry["step"]: entry for entry in stem.read("spot_checks")}
    sizes = loop.probe.sets.train_tokens
    seen: Counter[Arm] = Counter()
    states: dict[int, State] = {}
    for entry in stem.read("steps"):
        step = entry["step"]
        seen.update(entry.get("tokens_by_language") or {entry["arm"]: entry["tokens"]})
        decision = Decision(entry["arm"], why=entry["why"], probability=entry.get("probability"))
        raised = loop.alarms.updated(step, decision, entry["loss"], seen)
        if step in validations:
            raised += loop.alarms.validated(step, validations[step]["dev_loss"])
        if step in checks:
            dev_loss = validations[step]["calibrated_loss"]
            raised += loop.alarms.checked(step, SpotCheck.from_entry(checks[step], dev_loss, seen, sizes))
        for alarm in raised:
            loop.journal.alarm(alarm)
        if step in saved:
            states[step] = loop.alarms.state_dict()
    loop.journal.flush()
    return states


def _rewrite(
    checkpoint: Checkpoint, target: Path, own: Mapping[str, State], student: set[str], lines: Mapping[str, int] | None
) -> None:
    """A checkpoint of the stem with the branch's own parts; the large files are links to those of the stem."""
    from rota.runs.tensors import write_arrays

    target.mkdir()
    source = checkpoint.folder
    tree = read_json(source / TREE, "teacher", "student", remedy=REMEDY)
    missing = sorted(student - set(tree["student"]))
    if missing:
        raise ValueError(
            f"{source} has no {missing[0]!r} of the student, which this run keeps from its first step on; "
            "set student.average (for align: its decay) for all runs that share a stem"
        )
    warmup = {name: tree["teacher"][name] for name in ("rng", "warming")}
    state = {**own, "teacher": own["teacher"] | warmup}
    for part in OWN:
        tree[part] = write_arrays(state[part], part, target)
    (target / TREE).write_text(json.dumps(tree), encoding="utf-8")
    checksums = read_json(source / MANIFEST, "files", remedy=REMEDY)["files"]
    for name in checksums:
        if name != TREE and name.partition(".")[0] not in OWN:
            _link(source / name, target / name)
    files = {path.name: checksums.get(path.name, "") for path in sorted(target.iterdir())}
    files |= {name: sha256_of(target / name) for name in files if name == TREE or name.partition(".")[0] in OWN}
    write_manifest(target, checkpoint.step, files, complete=checkpoint.complete, records=lines)


def _link(source: Path, target: Path) -> None:
    """Files of a checkpoint are never changed, only replaced, so that several runs can have the same one."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
