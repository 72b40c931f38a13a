"""The wheel and the source archive: what is in them, and the demo from an environment that holds nothing else."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def call(*command, cwd):
    """Standard output of a program that must succeed."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source, out):
    pytest.importorskip("hatchling")
    call(sys.executable, "-m", "hatchling", "build", "-d", out, cwd=source)
    [wheel], [archive] = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, archive


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def test_the_classifiers_name_no_python_that_is_refused():
    named = [name.rpartition(" :: ")[2] for name in PROJECT["classifiers"] if name.startswith("Programming Language")]
    assert PROJECT["requires-python"] == ">=3.11"
    assert all(tuple(map(int, name.split("."))) >= (3, 11) for name in named if "." in name)


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(packages):
    found = set(zipfile.ZipFile(packages[0]).namelist())
    expected = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "rota").rglob("*.py")}
    assert expected <= found
    assert "rota/py.typed" in found
    assert {name.split("/")[0] for name in found} == {"rota", f"rota_nmt-{PROJECT['version']}.dist-info"}


@pytest.mark.slow
def test_the_source_archive_builds_the_same_wheel_and_leaves_the_records_of_studies_out(packages, tmp_path):
    with tarfile.open(packages[1]) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    [folder] = tmp_path.iterdir()
    assert not [name for name in names if "/docs/results/" in name]
    assert {f"{folder.name}/{name}" for name in ("README.md", "LICENSE", "Makefile", "constraints.txt")} <= set(names)
    again, _ = build(folder, tmp_path / "dist")
    with zipfile.ZipFile(packages[0]) as ours, zipfile.ZipFile(again) as theirs:
        assert sorted(ours.namelist()) == sorted(theirs.namelist())
        assert all(ours.read(name) == theirs.read(name) for name in ours.namelist())


@pytest.mark.slow
def test_the_demo_works_in_an_environment_with_the_wheel_alone(packages, tmp_path):
    """Downloads and installs torch: minutes. The source archive is installed over the wheel afterwards."""
    wheel, archive = packages
    call(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python, rota = tmp_path / "venv" / "bin" / "python", tmp_path / "venv" / "bin" / "rota"
    install = (python, "-I", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt")
    call(*install, wheel, cwd=tmp_path)
    there = call(python, "-I", "-c", "import rota; print(rota.__file__)", cwd=tmp_path)
    assert str(tmp_path / "venv") in there
    said = call(python, "-I", rota, "demo", "--corpus", "synthetic", "--steps", 20, cwd=tmp_path)
    assert "macro" in said
    runs = tmp_path / "demo" / "synthetic" / "align-beside-uniform"
    assert (runs / "align" / "seed-1" / "shares.png").is_file()
    assert (runs / "report" / "index.html").is_file()
    call(*install, "--no-deps", "--force-reinstall", archive, cwd=tmp_path)
    assert PROJECT["version"] in call(python, "-I", rota, "--version", cwd=tmp_path)
