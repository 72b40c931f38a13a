"""What a run starts from (``student.start``): a Hugging Face checkpoint, another run, or an export.

``points.py`` opens the folder; its sizes become those of the student, and its tokenizer divides the text unless
``data.subwords.model`` names another (:mod:`rota.data.ready_made`). ``vectors.py`` makes the first weights of it.
``extension.py`` is about a run that goes on beyond the end that it was planned for.
"""
