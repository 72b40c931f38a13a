"""Any Hugging Face trainer with a teacher: ``taught(Seq2SeqTrainer)(..., lessons=lessons)``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from rota.hf.lessons import Lessons, make_probe
from rota.measures import Alignment, SourceGain
from rota.settings import ConfigError
from rota.types import Arm

T = TypeVar("T")


def taught(kind: type[T]) -> type[T]:
    """A subclass of ``transformers.Trainer``, ``Seq2SeqTrainer`` or TRL's ``SFTTrainer`` that takes ``lessons``.

    Every update is made of examples of one arm, the one that the teacher has chosen; with several processes and
    accumulated batches too. ``evaluate`` adds the goal's loss as ``eval_macro_loss`` where ``eval_dataset`` has an
    entry for each arm. Checkpoints hold the state of the teacher, so that a run resumes exactly.
    """
    from transformers import TrainerCallback

    base = cast(Any, kind)

    class Taught(base):  # type: ignore[misc,valid-type]
        control: Any

        def __init__(self, *args: Any, lessons: Lessons, **settings: Any) -> None:
            super().__init__(*args, **settings)
            _check(self, lessons)
            self.lessons = lessons
            self.args.ignore_data_skip = True  # the sampler itself goes on where it was
            self._resumed: str | None = None
            self.add_callback(Following(self))

        def train(self, *args: Any, **settings: Any) -> Any:
            try:
                return super().train(*args, **settings)
            finally:
                self.lessons.close()  # also after an interruption; resuming opens the records again

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:  # noqa: ARG002 - that of the lessons
            return _begin(self)

        def training_step(self, model: Any, inputs: Any, *args: Any, **settings: Any) -> Any:
            loss = super().training_step(model, inputs, *args, **settings)
            scaler = getattr(self.accelerator, "scaler", None)
            scale = 1.0 if scaler is None else float(scaler.get_scale())
            self.lessons.trained(loss, last=bool(self.accelerator.sync_gradients), scale=scale)
            return loss

        def evaluate(
            self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval", **more: Any
        ) -> dict[str, float]:
            metrics: dict[str, float] = super().evaluate(
                eval_dataset=eval_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix, **more
            )
            evaluated = self.eval_dataset if eval_dataset is None else eval_dataset
            if not isinstance(evaluated, Mapping):
                return metrics
            found = {arm: metrics.get(f"{metric_key_prefix}_{arm}_loss") for arm in evaluated}
            losses: dict[Arm, float] = {arm: loss for arm, loss in found.items() if loss is not None}
            self.lessons.validated(self.state.global_step, losses)
            macro = self.lessons.macro_loss(losses)
            if macro is not None:
                metrics[f"{metric_key_prefix}_macro_loss"] = macro
                self.log({f"{metric_key_prefix}_macro_loss": macro})
                # Early stopping listens to this; until now it was told of single data sets.
                self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

        def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
            super()._load_optimizer_and_scheduler(checkpoint)
            if checkpoint is not None:
                self.lessons.load(Path(checkpoint))
                self._resumed = checkpoint

    class Following(TrainerCallback):
        """Follows the loop: updates that were really made, and checkpoints."""

        def __init__(self, trainer: Taught) -> None:
            self.trainer = trainer

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            self.trainer.lessons.start_records(state.global_step)

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if self.trainer._resumed is not None:
                # Making the data loader has drawn from the generators that were just restored: once more.
                self.trainer._load_rng_state(self.trainer._resumed)
                self.trainer._resumed = None

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            self.trainer.lessons.played(state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            if state.is_world_process_zero:
                self.trainer.lessons.save(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    Taught.__name__ = Taught.__qualname__ = f"Taught{base.__name__}"
    return cast("type[T]", Taught)


def _check(trainer: Any, lessons: Lessons) -> None:
    """What cannot work is refused before anything is trained, in one line each."""
    args, dataset = trainer.args, trainer.train_dataset
    total, name = sum(lessons.sizes.values()), lessons.config.name
    if dataset is None or not hasattr(dataset, "__len__"):
        raise ConfigError("train_dataset has no length, so nothing can be chosen from it; give lessons.dataset")
    if len(dataset) != total:
        raise ConfigError(
            f"train_dataset has {len(dataset):,} examples and the lessons {total:,}; give lessons.dataset, unfiltered"
        )
    sampling = getattr(args, "train_sampling_strategy", "random")
    if getattr(args, "group_by_length", False) or sampling not in ("random", None):
        raise ConfigError("sorting examples by length would undo what the teacher chooses; set group_by_length=False")
    if getattr(args, "packing", False):
        raise ConfigError("packing puts examples of several arms into one; set packing=False")
    if getattr(args, "auto_find_batch_size", False):
        raise ConfigError("auto_find_batch_size changes what an update is during the run; set it to False")
    accelerator = trainer.accelerator
    if accelerator.split_batches or accelerator.dispatch_batches:
        raise ConfigError("split_batches and dispatch_batches cut updates differently; leave them out")
    if lessons.config.listens and args.dataloader_num_workers > 0:
        ahead = f"{args.dataloader_num_workers} workers draw examples long before the teacher {name} is told"
        raise ConfigError(f"{ahead}; set dataloader_num_workers=0")


def _begin(trainer: Any) -> Any:
    args, lessons = trainer.args, trainer.lessons
    update = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    of_epoch = math.ceil(sum(lessons.sizes.values()) / update)
    steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * of_epoch)
    return lessons.begin(
        update=update,
        steps=steps,
        lr_warmup=args.get_warmup_steps(steps),
        probe=lambda sampler: _probe(trainer, sampler),
        folder=Path(args.output_dir) / "lessons" if trainer.is_world_process_zero() else None,
        sources=_has_sources(trainer),
    )


def _has_sources(trainer: Any) -> bool:
    """Whether the source of an example is apart from its target, as for an encoder and a decoder."""
    return bool(getattr(trainer.accelerator.unwrap_model(trainer.model).config, "is_encoder_decoder", False))


def _probe(trainer: Any, sampler: Any) -> Any:
    lessons = trainer.lessons
    aligned = any(isinstance(measure, Alignment) for measure in sampler.turns.watches)
    if aligned and trainer.is_deepspeed_enabled and _shards_weights(trainer):
        raise ConfigError("ZeRO-3 shards the weights, so gradients cannot be compared; use ZeRO-2, or another teacher")
    dev = lessons.dev if lessons.dev is not None else trainer.eval_dataset
    if not isinstance(dev, Mapping) or not set(lessons.sizes) <= dev.keys():
        missing = ", ".join(arm for arm in lessons.sizes if not isinstance(dev, Mapping) or arm not in dev)
        raise ConfigError(f"no dev examples for {missing}; give eval_dataset (or Lessons dev=) an entry for each arm")
    loaders = {arm: trainer.get_eval_dataloader(dev[arm]) for arm in lessons.sizes}
    rows = {arm: (loader.dataset, loader.collate_fn) for arm, loader in loaders.items()}
    training = None
    if any(isinstance(measure, SourceGain) for measure in sampler.turns.watches):
        examples = {arm: trainer.get_eval_dataloader(lessons.training_examples(arm)).dataset for arm in lessons.sizes}
        training = {arm: [some[index] for index in range(len(some))] for arm, some in examples.items()}
    model = trainer.accelerator.unwrap_model(trainer.model)
    return make_probe(
        sampler,
        model,
        rows,
        lambda: getattr(trainer.optimizer, "optimizer", trainer.optimizer),
        causal=not _has_sources(trainer),
        precision=trainer.compute_loss_context_manager,
        training=training,
    )


def _shards_weights(trainer: Any) -> bool:
    plugin = trainer.accelerator.state.deepspeed_plugin
    return plugin is not None and plugin.zero_stage == 3
