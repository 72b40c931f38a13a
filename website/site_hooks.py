"""What turns the pages of docs/, written for a plain repository browser, into those of the site (MkDocs hooks).

- CONTRIBUTING.md and CHANGELOG.md of the repository, and the notebooks, become pages.
- Links to files outside docs/ lead to those pages or to the repository, if ``repo_url`` is set; else they are text.
- A comment ``<!-- api: rota.train -->`` becomes the reference of that object, from its docstring.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages of the repository's top folder, and where the site has them."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
_API = re.compile(r"^<!-- api: (\S+) -->$", re.MULTILINE)
_ROLE = re.compile(r":(?:class|meth|func|mod|attr|data):(?=<code>)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for name, place in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=moved(text, "", "")))
    for path in sorted(Path(config.docs_dir).rglob("*.ipynb")):
        place = path.relative_to(config.docs_dir).with_suffix(".md").as_posix()
        folder = posixpath.dirname(place)
        files.append(File.generated(config, place, content=moved(notebook_page(path), f"docs/{folder}", folder)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    if page.file.generated_by is None:
        folder = posixpath.dirname(page.file.src_uri)
        markdown = moved(markdown, posixpath.join("docs", folder), folder, config.repo_url)
    return _API.sub(r"::: \1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Sphinx's roles mean nothing here; the name after them is enough."""
    return _ROLE.sub("", html)


def moved(markdown: str, at: str, folder: str, repository: str | None = None) -> str:
    """The text with its links as the site needs them.

    ``at`` is the folder of the page in the repository, ``folder`` that of its page on the site, inside docs/.
    """
    parts = _CODE.split(markdown)
    for index in range(0, len(parts), 2):
        parts[index] = _LINK.sub(lambda found: _link(found, at, folder, repository), parts[index])
    return "".join(parts)


def _link(found: re.Match[str], at: str, folder: str, repository: str | None) -> str:
    picture, text, target = found.groups()
    if "://" in target or target.startswith("#"):
        return found[0]
    path, mark, heading = target.partition("#")
    there = posixpath.normpath(posixpath.join(at, path))
    if (ROOT / there / "README.md").is_file():
        there += "/README.md"
    inside = there.startswith("docs/") and not (ROOT / there).is_dir()
    if there in PAGES:
        place = PAGES[there]
    elif inside:
        place = re.sub(r"\.ipynb$", ".md", there.removeprefix("docs/"))
    elif repository:
        return f"{picture}[{text}]({repository.rstrip('/')}/blob/main/{there}{mark}{heading})"
    else:
        return text
    return f"{picture}[{text}]({posixpath.relpath(place, folder or '.')}{mark}{heading})"


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: text, code, and of its outputs printed text and pictures."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += filter(None, map(_output, cell.get("outputs", [])))
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        # Wrapped lines of base64 are allowed in notebooks, not in an address.
        picture = base64.b64encode(base64.b64decode("".join(data["image/png"]))).decode()
        return f'<img alt="{"".join(data.get("text/plain", "figure"))}" src="data:image/png;base64,{picture}">'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```" if text else ""
