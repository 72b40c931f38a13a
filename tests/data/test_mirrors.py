"""The mirror and the proxy of apt's configuration, in both of its formats; near-duplicates against brute force."""

import itertools
import subprocess
import types

import numpy as np
import pytest

from rota.data.corpora import mirrors
from rota.data.corpora.mirrors import MirrorUnavailable, Source, apt_proxy, configured_mirror, sources
from rota.data.corpora.near_duplicates import NearDuplicates, words_of


def apt(tmp_path, **files):
    (tmp_path / "sources.list.d").mkdir()
    for name, content in files.items():
        name = name.replace("_", ".")
        (tmp_path / name if name == "sources.list" else tmp_path / "sources.list.d" / name).write_text(content)
    return tmp_path


def test_one_line_sources(tmp_path):
    content = """\
# deb http://commented.example.invalid/debian bookworm main
deb-src http://source.example.invalid/debian bookworm main
deb [arch=amd64 signed-by=/a.gpg] http://one.example.invalid/debian/ bookworm main contrib # the usual
deb cdrom:[Debian 12]/ bookworm main
"""
    folder = apt(tmp_path, sources_list=content)
    assert next(iter(sources(folder))) == Source("http://one.example.invalid/debian/", "bookworm", ("main", "contrib"))
    assert configured_mirror("bookworm", folder) == "http://one.example.invalid/debian"


def test_deb822_sources(tmp_path):
    content = """\
Types: deb
URIs: http://off.example.invalid/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb deb-src
# a remark inside
URIs: http://two.example.invalid/security
Suites: bookworm-security
Components: main

types: deb
uris: http://three.example.invalid/debian
Suites: bookworm
  bookworm-updates
Components: main
"""
    folder = apt(tmp_path, debian_sources=content)
    assert configured_mirror("bookworm", folder) == "http://three.example.invalid/debian"
    assert configured_mirror("trixie", folder) == "http://three.example.invalid/debian"  # not the security mirror


def test_a_list_of_mirrors_and_a_local_mirror(tmp_path):
    (tmp_path / "mirrors.list").write_text("# first\nhttp://four.example.invalid/debian\tpriority:1\n")
    content = f"deb mirror+file:{tmp_path}/mirrors.list bookworm main\ndeb copy:/srv/debian trixie main\n"
    folder = apt(tmp_path, a_list=content, b_disabled="deb http://five.example.invalid/debian sid main\n")
    assert configured_mirror("bookworm", folder) == "http://four.example.invalid/debian"
    assert configured_mirror("trixie", folder) == "file:/srv/debian"
    assert len(list(sources(folder))) == 2


def test_no_mirror_is_an_error_with_the_remedy(tmp_path):
    folder = apt(tmp_path, sources_list="deb http://six.example.invalid/other stable contrib\n")
    with pytest.raises(MirrorUnavailable, match=r"set data\.mirror"):
        configured_mirror("bookworm", folder)


@pytest.mark.parametrize(
    ("printed", "proxy"),
    [
        ("proxy1='http://proxy.example.invalid:3128'\n", "http://proxy.example.invalid:3128"),
        ("proxy0='http://own.example.invalid'\nproxy1='http://all.example.invalid'\n", "http://own.example.invalid"),
        ("proxy0='DIRECT'\n", None),
        ("", None),
    ],
)
def test_the_proxy_is_that_of_apt(monkeypatch, printed, proxy):
    asked = []

    def run(command, **options):
        asked.extend(command)
        return types.SimpleNamespace(stdout=printed)

    monkeypatch.setattr(mirrors.shutil, "which", lambda name: name)
    monkeypatch.setattr(subprocess, "run", run)
    assert apt_proxy("http://mirror.example.invalid/debian/InRelease") == proxy
    assert asked[2:4] == ["proxy0", "Acquire::http::Proxy::mirror.example.invalid"]


def test_without_apt_there_is_no_proxy_of_apt(monkeypatch):
    monkeypatch.setattr(mirrors.shutil, "which", lambda name: None)
    assert apt_proxy("http://mirror.example.invalid/debian/InRelease") is None


@pytest.mark.parametrize("threshold", [0.5, 0.7, 1.0])
def test_near_duplicates_are_those_of_brute_force(threshold):
    rng = np.random.default_rng(3)
    vocabulary = [f"w{number}" for number in range(12)]
    texts = [rng.choice(vocabulary, rng.integers(1, 11)).tolist() for _ in range(400)]
    held_out, others = texts[:60], texts[60:]
    near = NearDuplicates(held_out, threshold)

    def jaccard(one, other):
        return len(set(one) & set(other)) / len(set(one) | set(other))

    expected = [max(jaccard(text, known) for known in held_out) >= threshold for text in others]
    assert [text in near for text in others] == expected
    assert 0 < sum(expected) < len(others)


def test_a_similarity_of_exactly_the_threshold_counts():
    words = [f"w{number}" for number in range(10)]
    near = NearDuplicates([words], 0.7)
    assert words[:7] in near
    assert words[:6] not in near
    for extra in itertools.islice(itertools.count(1), 4):  # 10 / 14 is above, 10 / 15 below
        assert [*words, *map(str, range(extra))] in near
    assert [*words, *map(str, range(5))] not in near


def test_case_and_punctuation_do_not_matter():
    assert words_of("Lamps: on, OFF!") == ["lamps", "on", "off"]
    assert [] not in NearDuplicates([["a"], []])
