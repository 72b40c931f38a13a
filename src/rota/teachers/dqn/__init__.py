"""The DQN teacher: a Q network over the losses of small groups of sentences (Algorithm 2 of the paper).

``config.py`` has its settings and needs no torch; ``agent.py`` the teacher, its network and its replay memory. An
observation is a joint loss, of which the reward is made, and the group losses, which are the state. Transitions go
into the memory; minibatches of it train the online network; the target network follows it and chooses. ``policy.py``
asks a saved network what it would do.
"""
