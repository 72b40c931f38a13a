"""The student: a Transformer, how it learns, how it is measured, and how it translates.

Data flow: ``nmt`` cuts batches into ``pieces`` that fit into memory, puts them on the device that ``hardware`` found,
and runs them, two in ``parallel``, through ``transformer``, whose costly parts are ``kernels``; with the gradients
``optimiser`` changes the weights as ``config`` says, and ``average`` follows. Probes get losses and opaque
``gradients``; ``search`` translates, and ``likelihood`` judges given translations. No module here knows of teachers;
this one imports nothing, so that settings can be read without torch.
"""
