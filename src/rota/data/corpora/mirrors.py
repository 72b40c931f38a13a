"""Package mirrors: which one the machine's apt configuration names, and fetching files from one the way apt would."""

from __future__ import annotations

import logging
import re
import shlex
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rota.data.corpora.download import DownloadError, download

logger = logging.getLogger(__name__)

APT: Final = Path("/etc/apt")
SCHEMES: Final = ("http", "https", "file")
COMPONENT: Final = "main"

_ONE_LINE = re.compile(r"deb\s+(?:\[[^\]]*\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)")


class MirrorUnavailable(ValueError):  # noqa: N818 (a state of the world, not a bug)
    """There is no mirror, or it does not have what was asked for."""


@dataclass(frozen=True)
class Source:
    """A mirror that apt installs packages from, and one of the suites it takes from there."""

    uri: str
    suite: str
    components: tuple[str, ...]


def configured_mirror(release: str, apt: Path = APT) -> str:
    """The mirror from which apt takes ``release``; if it takes another one only, that mirror, which has others too."""
    usable = [source for source in sources(apt) if _scheme(source.uri) in SCHEMES and COMPONENT in source.components]
    own = [source for source in usable if source.suite == release]
    others = [source for source in usable if "security" not in f"{source.uri} {source.suite}"]
    for source in (*own, *others):
        return source.uri.rstrip("/")
    raise MirrorUnavailable(
        f"{apt} names no package mirror; set data.mirror to the address of a Debian mirror (its folder with dists/)"
    )


def sources(apt: Path = APT) -> Iterator[Source]:
    """The enabled package sources, in apt's order: sources.list, then its folder by name."""
    for path in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))):
        if not path.is_file() or path.suffix not in (".list", ".sources"):
            continue
        try:
            content = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            logger.warning("%s cannot be read (%s)", path, error.strerror)
            continue
        for source in _deb822(content) if path.suffix == ".sources" else _one_line(content):
            yield Source(_resolved(source.uri), source.suite, source.components)


def _one_line(content: str) -> Iterator[Source]:
    for line in content.splitlines():
        if match := _ONE_LINE.fullmatch(line.partition("#")[0].strip()):
            yield Source(match["uri"], match["suite"], tuple(match["components"].split()))


def _deb822(content: str) -> Iterator[Source]:
    lines = (line for line in content.splitlines() if not line.startswith("#"))
    for stanza in "\n".join(lines).split("\n\n"):
        fields: dict[str, list[str]] = {}
        name = ""
        for line in stanza.splitlines():
            if not line[:1].isspace():
                name, _, line = line.partition(":")
            fields.setdefault(name.strip().casefold(), []).extend(line.split())
        if "deb" in fields.get("types", ()) and fields.get("enabled", ["yes"])[:1] != ["no"]:
            for uri in fields.get("uris", ()):
                for suite in fields.get("suites", ()):
                    yield Source(uri, suite, tuple(fields.get("components", ())))


def _resolved(uri: str) -> str:
    """``mirror+file:`` names a file with a mirror a line, of which the first is taken; ``copy:`` is ``file:``."""
    if uri.startswith("copy:"):
        return "file:" + uri.removeprefix("copy:")
    if uri.startswith("mirror+file:"):
        path = local_path(uri.removeprefix("mirror+"))
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
        return next((line.split()[0] for line in lines if line.strip() and not line.startswith("#")), uri)
    return uri


def _scheme(uri: str) -> str:
    return uri.partition(":")[0].lower()


def local_path(uri: str) -> Path:
    """The path of a ``file:`` address."""
    return Path(urllib.request.url2pathname(urllib.parse.urlsplit(uri).path))


def fetch(uri: str, path: Path) -> None:
    """A file of a mirror; through the proxy that apt would use."""
    if _scheme(uri) != "file":
        download(uri, path, proxy=apt_proxy(uri))
        return
    if not local_path(uri).is_file():
        raise DownloadError(f"no file {local_path(uri)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    shutil.copyfile(local_path(uri), part)
    part.replace(path)


def apt_proxy(uri: str) -> str | None:
    """The proxy of apt's configuration for an address; ``None`` leaves it to the environment (``http_proxy``)."""
    parts = urllib.parse.urlsplit(uri)
    if shutil.which("apt-config") is None:
        return None
    keys = [f"Acquire::{scheme}::Proxy" for scheme in dict.fromkeys((parts.scheme, "http"))]
    asked = [key for name in keys for key in (f"{name}::{parts.hostname}", name)]
    command = ["apt-config", "shell", *(word for number, key in enumerate(asked) for word in (f"proxy{number}", key))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    found = dict(word.split("=", 1) for word in shlex.split(done.stdout) if "=" in word)
    proxy = next((found[name] for number in range(len(asked)) if found.get(name := f"proxy{number}")), "")
    return proxy if _scheme(proxy) in ("http", "https") else None
