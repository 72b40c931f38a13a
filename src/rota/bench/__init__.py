"""How fast and how lean this machine trains, as ratios from one run: ``rota bench``."""
