"""What is typed wrong is one line that names the help; the program says what it is."""

from importlib.metadata import version

import pytest
import typer


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("tran",), ["No such command 'tran'", "; see rota --help"]),
        (("train",), ["Missing argument 'CONFIG'; see rota train --help"]),
        (("train", "run.yaml", "--sed", "4"), ["No such option: --sed", "; see rota train --help"]),
        (("train", "run.yaml", "--until", "0"), ["Invalid value for '--until'", "; see rota train --help"]),
    ],
)
def test_what_is_typed_wrong_is_one_line_and_exit_code_2(rota, typed, words):
    code, output, error = rota(*typed)
    assert (code, output) == (2, "")
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert all(word in error for word in words), error


def test_without_a_command_the_help_is_shown(rota):
    code, output, error = rota()
    assert (code, error) == (2, "")
    assert "Usage: rota" in output
    assert "compare-scores" in output


def test_help_is_no_mistake(rota):
    code, output, error = rota("train", "--help")
    assert (code, error) == (0, "")
    assert "Usage: rota train" in output


def test_the_version_is_that_of_the_package(rota):
    assert rota("--version") == (0, f"rota {version('rota-nmt')}\n", "")


def test_a_file_that_ends_early_where_nobody_expects_it_is_one_line(rota, monkeypatch, tmp_path):
    def read(path):
        raise EOFError("the stream has no end")

    monkeypatch.setattr("rota.config.read_yaml", read)
    code, _, error = rota("prepare", tmp_path)
    assert code == 2
    assert error.strip() == "error: a file ended early: the stream has no end; ROTA_TRACEBACK=1 shows which"


def test_an_interruption_has_the_exit_code_of_its_signal(rota, monkeypatch, tmp_path):
    def read(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("rota.config.read_yaml", read)
    assert rota("prepare", tmp_path)[0] == 130


def test_ctrl_c_is_no_mistake_in_any_version_of_typer(rota, monkeypatch):
    """Older ones make an abort of it, as of a file that ended early."""

    def abort(**_):
        raise typer.Abort from KeyboardInterrupt()

    monkeypatch.setattr("rota.cli.application.app", abort)
    assert rota("teachers") == (130, "", "")
