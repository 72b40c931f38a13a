"""How well a run serves its goal while it trains, and whether it is over.

At every validation ``dev_scores`` translates a few dev sentences, if the config asks for it, and ``stopping`` compares
the goal's dev loss, BLEU or chrF with the best so far. The loop writes both down and ends the run if there is no
improvement for long enough; what is trained is the same with and without them.
"""
