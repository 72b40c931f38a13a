"""``rota compare`` and ``report``. Heavy imports wait until they are needed."""
