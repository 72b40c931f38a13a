"""Forward and backward passes written by hand, because autograd's are slower or use hidden random numbers.

Data flow of one pass: sentences lie one after the other in flat rows, without padding. ``linear`` projects rows;
``attention`` turns them into rectangles, the only place where padding exists, and back into rows, or uses one CUDA
kernel that needs no rectangles; ``dropout`` draws its masks from a generator that is passed in; ``loss`` projects the
decoder's rows onto the vocabulary in chunks, so that all logits are never in memory at once.
"""
