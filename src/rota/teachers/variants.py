"""``variant: paper | released``: all options of a reading at once, except those that the user sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rota.teachers.base import Inform, short_warmup

Variant = Literal["paper", "released"]


def fill_in(values: Any, released: Mapping[str, Any], inform: Mapping[Variant, Inform]) -> Any:
    """What the user wrote, completed by what the variant says; the paper's reading is the defaults.

    ``inform`` is what a warm-up tells the teacher unless the config says otherwise.
    """
    if not isinstance(values, Mapping) or values.get("variant", "paper") not in inform:
        return values  # the field's own check explains it better
    variant: Variant = values.get("variant", "paper")
    filled = {**(released if variant == "released" else {}), **values}
    if "warmup" in filled:
        warmup = short_warmup(filled["warmup"])
        filled["warmup"] = {"inform": inform[variant], **warmup} if isinstance(warmup, Mapping) else warmup
    return filled
