"""A trained run for other programs.

``model.py`` chooses the checkpoints, by default the model that stands for the run, and loads them as one network. It
writes a folder that appears when it is complete: ``tokenizer.json``, the network by ``hugging_face.py`` (for
transformers) or ``evaluation/ctranslate.py`` (for CTranslate2, which can also translate here), and a README.md by
``model_card.py`` with the scores of exactly these weights. ``schedule.py`` writes what the run was trained on, for
toolkits that train by a schedule made beforehand.
"""
