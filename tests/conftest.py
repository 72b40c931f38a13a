import io
import logging
import runpy
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Examples are quick, but a busy machine is not: a time limit for each would only fail at random.
settings.register_profile("rota", deadline=None)
settings.load_profile("rota")


@pytest.fixture(autouse=True)
def same_log_level():
    """A command sets the level of all messages; the next test has that of the one before."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


@pytest.fixture
def rota(monkeypatch, capsys):
    """Runs a command as the shell would; gives exit code, standard output and standard error."""
    from rota.cli import main

    def run(*arguments, stdin=None):
        monkeypatch.setattr(sys, "argv", ["rota", *map(str, arguments)])
        if stdin is not None:
            monkeypatch.setattr(
                sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin if isinstance(stdin, bytes) else stdin.encode()))
            )
        try:
            main()
            code = 0
        except SystemExit as end:
            code = 0 if end.code is None else end.code
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


@pytest.fixture
def docs_script(monkeypatch, capsys):
    """Runs a script of docs/ in this process; gives the lines that it prints for these lines."""

    def run(name, *arguments, lines):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        capsys.readouterr()
        runpy.run_path(str(Path(__file__).parents[1] / "docs" / name), run_name="__main__")
        return capsys.readouterr().out.split("\n")[:-1]

    return run
