"""Where text comes from: every corpus is a mapping from language and split to pairs that can be read repeatedly.

``sources`` has the settings of a corpus and opens it by name. ``parallel`` reads aligned files and tables and defines
the shared types; ``language_files`` finds those of each language. The named corpora: ``ted`` (the TED talks of Qi et
al. 2018, by way of ``download``), ``gettext`` (translations of programs that Python packages ship), ``debian``
(translated package descriptions, from the package mirror that ``mirrors`` finds, kept from leaking by
``near_duplicates``) and ``synthetic`` (generated languages). What is fetched or extracted is kept in a cache folder.
Nothing is cleaned or encoded here.
"""
