"""Generated languages: for tests, benchmarks and demonstrations that need no network.

``english`` composes sentences of a small English grammar as numbers and says them in English. ``families`` makes
related languages: an ancestor's words and affixes, changed by regular sound shifts, in a word order of their own.
``corpus`` says the same sentences in every language and yields the pairs as a corpus like any other.
"""
