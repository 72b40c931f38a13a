"""A small suite that trains in seconds, for the tests of this folder."""

SUITE = """
base:
  data:
    corpus: synthetic
    synthetic: {families: {la: {lala: 300, lato: 60}}, dev: 12, test: 6}
    low_resource: [lato]
    subwords: {size: 400}
  student: {preset: tiny, width: 32, feedforward: 64, layers: 1, lr_warmup: 20, learning_rate: {peak: 0.01}}
  training: {steps: 80, tokens: 150, checkpoint_every: 20, validate_every: 20, tensorboard: false}
  evaluation: {beam: 1}
rows:
  uniform: {teacher: uniform}
  warm: {teacher: {name: proportional, warmup: 30}, label: Proportional}
"""

BAD_ROW = "  bad: {teacher: {name: fixed, shares: {lala: 1, moon: 1}}}\n"  # known to be wrong only with the corpus


def write_suite(folder, *, more="", name="small.yaml"):
    path = folder / name
    path.write_text(SUITE + more)
    return path
