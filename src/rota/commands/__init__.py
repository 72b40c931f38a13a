"""The commands, a few lines each over :mod:`rota.api`; they register when they are imported, in this order."""
