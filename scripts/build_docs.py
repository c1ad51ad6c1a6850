"""Render the notebooks as a site, and the front page as README.md: nbdev, then Sphinx, no Quarto.

python scripts/build_docs.py            # nbs -> _proc (nbdev) -> _sphinx (MyST) -> _docs (html); README.md
python scripts/build_docs.py --check    # the same, but README.md is compared, not written
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from html import escape
from pathlib import Path

import yaml
from nbdev.config import get_config
from nbdev.serve import proc_nbs

CFG = get_config()
ROOT = CFG.config_path
SITE_URL = CFG.doc_host + CFG.doc_baseurl
SITE_FILES = Path(__file__).parent / "site"
CAPTIONS = {"0": "Games", "1": "Learner", "2": "Together"}  # notebooks by their first digit
REMARKS = {
    "Games": "OpenSpiel and words, no torch",
    "Learner": "tensors and tokens, no games",
    "Together": "where they meet",
}
MAP_MARK = "<!-- module map -->"
TAGS = {
    ("echo", "false"): "remove-input",
    ("output", "false"): "remove-output",
    ("code-fold", "true"): "hide-input",
    ("code-fold", "show"): "hide-input",
}


# Pages and links


def page_name(path: str | Path) -> str:
    "The path of a page in the site: `04_ppo` is `ppo`, as in nbdev's own links."
    path = Path(path)
    return (path.parent / re.sub(r"^\d+[a-zA-Z]?_", "", path.stem)).as_posix()


def page_source(name: str) -> Path:
    "The notebook of a page, relative to the repository."
    books = CFG.nbs_path.rglob("*.ipynb")
    found = next(p for p in books if page_name(p.relative_to(CFG.nbs_path)) == name)
    return found.relative_to(ROOT)


def page_link(path: str, anchor: str | None, up: str = "") -> str:
    "A link that Sphinx can check: to a page, and to a heading by its slug."
    return f"{up}{page_name(path)}.ipynb" + (f"#{anchor.replace('.', '')}" if anchor else "")


@cache
def documented(page: str) -> set[str]:
    "The symbols that have a section of their own on a page, in the small letters of its anchors."
    path = ROOT / "_proc" / page_source(page).relative_to(CFG.nbs_path.name)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return {name.lower() for name in re.findall(r"show_doc\(([\w.]+)", text)}


def symbol_link(page: str, symbol: str | None, up: str) -> str:
    "A link to a symbol; a method without a section of its own is found under its class."
    known = symbol is None or symbol in documented(page)
    return page_link(page, symbol if known else symbol.split(".")[0], up)


def fix_markdown(text: str, depth: int) -> str:
    "Quarto markdown as MyST markdown, with links relative to a page `depth` folders down."
    text = re.sub(r"^::: ?\{\.callout-(\w+)[^}]*\}", r":::{\1}", text, flags=re.M)
    files = rf"]({CFG.git_url}/blob/{CFG.branch}/"
    text = re.sub(r"\]\((?:\.\./)+(?=[A-Z]+[\w.]*\))", files, text)
    local = r"\]\((?!https?:)([^)\s]+)\.ipynb(?:#([^)]*))?\)"
    text = re.sub(local, lambda m: f"]({page_link(m[1], m[2])})", text)
    remote = rf"\]\({re.escape(SITE_URL)}/?([\w./-]*)\.html(?:#([^)]*))?\)"
    return re.sub(remote, lambda m: f"]({symbol_link(m[1], m[2], '../' * depth)})", text)


def front_matter(nb: dict) -> dict:
    "Title and subtitle of a notebook of `_proc`."
    raw = next(cell for cell in nb["cells"] if cell["cell_type"] == "raw")
    return yaml.safe_load("".join(raw["source"]).strip().strip("-"))


# Documented symbols


def head_of(node: ast.FunctionDef | ast.ClassDef, lines: list[str]) -> list[str]:
    "The lines of a definition before its docstring and body, decorators included."
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return lines[first - 1 : node.body[0].lineno - 1] or [lines[node.lineno - 1]]


def signature(name: str, source: str) -> str | None:
    "How `name` (a function, a class, a method) is called, in the words of its source; None if not there."
    lines, node = source.split("\n"), ast.parse(source)
    for part in name.split("."):
        kinds = (ast.FunctionDef, ast.ClassDef)
        node = next((n for n in node.body if isinstance(n, kinds) and n.name == part), None)
        if node is None:
            return None
    head = head_of(node, lines)
    for part in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(part, ast.AnnAssign):
            head += lines[part.lineno - 1 : part.end_lineno]
        elif isinstance(part, ast.FunctionDef) and part.name == "__init__":
            head += head_of(part, lines)
    indent = len(head[0]) - len(head[0].lstrip())
    return "\n".join(line[indent:].rstrip() for line in head)


def show_doc_markdown(text: str, page: str, depth: int) -> str:
    "What `show_doc` rendered, as a section of the page."
    text = re.sub(r"^---\n+", "", text)
    place = re.search(r"^\[source\]\((\S+?)\)\{[^}]*\}\n+", text)
    text = text[place.end() :] if place else text
    name = re.search(r"^### (.+)$", text, flags=re.M)[1]
    link = f'\n\n<a class="source-link" href="{place[1]}">source</a>' if place else ""
    text = re.sub(r"^### .+$", f"### `{name}`{link}", text, count=1, flags=re.M)
    text = re.sub(r"^def ([A-Z])", r"class \1", text, flags=re.M)
    module = CFG.lib_path / f"{page}.py"
    if module.exists() and (head := signature(name, module.read_text(encoding="utf-8"))):
        text = re.sub(r"```python\n.*?```", lambda _: f"```python\n{head}\n```", text, count=1, flags=re.S)
    return fix_markdown(text, depth)


# Cells


def markdown_cell(text: str, cell_id: str) -> dict:
    return dict(cell_type="markdown", id=cell_id, metadata={}, source=text)


def pop_directives(source: str) -> tuple[dict[str, str], str]:
    "Split the leading `#| key: value` lines from the code below them."
    lines, found = source.split("\n"), {}
    while lines and (m := re.match(r"#\|\s*([\w-]+):?\s*(.*)$", lines[0])):
        found[m[1]] = m[2] or "true"
        lines.pop(0)
    return found, "\n".join(lines)


def heading(nb: dict, page: str) -> str:
    "Title, subtitle, and where the page comes from."
    front, source = front_matter(nb), page_source(page)
    link = f'<a href="{CFG.git_url}/blob/{CFG.branch}/{source}">{source}</a>'
    origin = f"written in {link}"
    if source.stem != page and "/" not in page:
        origin = f"module <code>{CFG.lib_name}.{page}</code>, {origin}"
    lead = f"\n\n{{.lead}}\n{front['description']}" if "description" in front else ""
    return f"# {front['title']}{lead}" + ("" if page == "index" else f'\n\n<p class="module">{origin}</p>')


def inline_drawings(text: str) -> str:
    "Our own drawings become part of the page, so that they follow its light or dark mode."

    def drawing(m: re.Match) -> str:
        path = CFG.nbs_path / m[1]
        svg = path.read_text(encoding="utf-8").replace("<svg ", '<svg class="themed" ', 1)
        return "```{raw} html\n" + re.sub(r"\n\s*\n", "\n", svg).strip() + "\n```"

    return re.sub(r"^!\[[^\]]*\]\((images/[\w-]+\.svg)\)$", drawing, text, flags=re.M)


def convert(nb: dict, page: str, rooms: dict[str, list[dict]]) -> dict:
    "One notebook of `_proc`, in the form myst-nb reads."
    cells, depth = [], page.count("/")
    for n, cell in enumerate(nb["cells"]):
        text, cell_id = "".join(cell["source"]), cell.get("id", f"cell-{n}")
        if cell["cell_type"] == "raw":
            cells.append(markdown_cell(heading(nb, page), cell_id))
        elif cell["cell_type"] == "markdown":
            text = inline_drawings(text).replace(MAP_MARK, map_html(rooms))
            cells.append(markdown_cell(fix_markdown(text, depth), cell_id))
        else:
            cells += convert_code(cell, text, cell_id, page)
    return {**nb, "cells": cells}


def convert_code(cell: dict, text: str, cell_id: str, page: str) -> list[dict]:
    "A code cell: what `show_doc` says as markdown, all else as code with myst-nb's tags."
    found, code = pop_directives(text)
    if code.startswith("show_doc("):
        shown = ("".join(out["data"]["text/markdown"]) for out in cell["outputs"])
        docs = [show_doc_markdown(text, page, page.count("/")) for text in shown]
        return [markdown_cell(text, f"{cell_id}-{n}") for n, text in enumerate(docs)]
    tags = [TAGS[item] for item in found.items() if item in TAGS]
    return [{**cell, "source": code, "id": cell_id, "metadata": {"tags": tags}}]


# The front page


def house(folder: Path) -> dict[str, list[dict]]:
    "The reference notebooks under `folder`, by the half they belong to: number, page, file and subtitle."
    rooms = {caption: [] for caption in CAPTIONS.values()}
    for path in sorted(folder.glob("[0-9]*.ipynb")):
        front = front_matter(json.loads(path.read_text(encoding="utf-8")))
        number = path.name.split("_")[0]
        room = dict(
            number=number, page=page_name(path.name), file=path.name, job=front.get("description", "")
        )
        rooms[CAPTIONS[number[0]]].append(room)
    return rooms


def map_html(rooms: dict[str, list[dict]]) -> str:
    "The map of the house as a block of its own on the page."

    def item(room: dict) -> str:
        job = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(room["job"], quote=False))
        link = f'<a href="{room["page"]}.html">{room["page"]}</a>'
        return f'<li><span class="number">{room["number"]}</span>{link}<br>{job}</li>'

    def part(caption: str) -> str:
        items = "\n".join(item(room) for room in rooms[caption])
        return f"<section><h3>{caption}</h3><p>{REMARKS[caption]}</p><ul>\n{items}\n</ul></section>"

    body = "\n".join(part(caption) for caption in rooms)
    return f'```{{raw}} html\n<div class="house">\n{body}\n</div>\n```'


def map_tables(rooms: dict[str, list[dict]]) -> str:
    "The map of the house for README.md."

    def table(caption: str) -> str:
        link = f"[`{{page}}`]({CFG.nbs_path.name}/{{file}})"
        rows = "\n".join(f"| {{number}} | {link} | {{job}} |".format(**room) for room in rooms[caption])
        return f"**{caption}**: {REMARKS[caption]}\n\n| | module | its one job |\n|---|---|---|\n{rows}"

    return "\n\n".join(table(caption) for caption in rooms)


def toctree(pages: list[str]) -> str:
    "The sidebar: tutorials, the notebooks by the first digit of their number, the project's own pages."
    groups = {"Tutorials": [p for p in pages if "/" in p]}
    for page in sorted((p for p in pages if "/" not in p), key=lambda p: page_source(p).name):
        groups.setdefault(CAPTIONS.get(page_source(page).name[0], "More"), []).append(page)
    groups["Project"] = ["changelog", "contributing"]
    block = "```{{toctree}}\n:hidden:\n:caption: {}\n\n{}\n```\n\n"
    return "".join(block.format(caption, "\n".join(names)) for caption, names in groups.items() if names)


def readme_markdown(text: str) -> str:
    "Markdown of the front page, its links turned to files of the repository."
    text = re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", rf"]({CFG.nbs_path.name}/\1)", text)
    text = text.replace(f"]({CFG.nbs_path.name}/../", "](")
    remote = rf"\]\({re.escape(SITE_URL)}/([\w/-]+)\.html(?:#[^)]*)?\)"
    return re.sub(remote, lambda m: f"]({page_source(m[1])})", text)


def output_markdown(out: dict) -> str:
    "One output of a code cell as GitHub markdown; pictures are left to the site."
    data = out.get("data", {"text/plain": out.get("text", "")})
    if "text/markdown" in data:
        return "".join(data["text/markdown"])
    return "```\n" + "".join(data["text/plain"]).rstrip() + "\n```" if "text/plain" in data else ""


def readme(nb: dict, rooms: dict[str, list[dict]]) -> str:
    "The front page as GitHub markdown: prose, code and text outputs."
    front, parts = front_matter(nb), []
    parts += [f"# {front['title']}", f"> {front['description']}" if "description" in front else ""]
    for cell in nb["cells"]:
        text = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown" and not text.startswith("<!-- WARNING"):
            parts.append(readme_markdown(text).replace(MAP_MARK, map_tables(rooms)))
        elif cell["cell_type"] == "code":
            found, code = pop_directives(text)
            parts += [] if found.get("echo") == "false" else [f"```python\n{code}\n```"]
            parts += [output_markdown(out) for out in cell["outputs"]]
    return "\n\n".join(filter(None, parts)) + "\n"


# The build


def process() -> Path:
    "nbdev's own rendering, in `_proc`."
    os.environ["PYTHONWARNINGS"] = "ignore:Found cells containing imports"
    return proc_nbs(force=True)


def write_sources(processed: Path, source: Path) -> list[str]:
    "Everything that Sphinx reads, in the folder `source`; the names of the pages."
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(processed, source, ignore=shutil.ignore_patterns("*.ipynb", "*.yml"))
    shutil.copytree(SITE_FILES, source, dirs_exist_ok=True)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, source / name.lower())
    pages, rooms = {}, house(processed)
    for path in sorted(processed.rglob("*.ipynb")):
        page = page_name(path.relative_to(processed))
        pages[page] = convert(json.loads(path.read_text(encoding="utf-8")), page, rooms)
    names = [page for page in pages if page != "index"]
    pages["index"]["cells"].append(markdown_cell(toctree(names), "toctree"))
    for page, nb in pages.items():
        (source / f"{page}.ipynb").write_text(json.dumps(nb), encoding="utf-8")
    return list(pages)


def outside_requests(site: Path) -> list[str]:
    "What the pages would fetch from another server: there should be nothing."
    tag = r"<(?:script|link|img|iframe|source|video|audio|object|embed)\b[^>]*?\b(?:src|href|data|srcset)="
    fetch = re.compile(rf"(?:{tag}[\"']?|url\([\"']?|@import\s+[\"'])((?:https?:)?//[^\"')\s>]+)", re.I)
    texts = {p: p.read_text(encoding="utf-8") for p in site.rglob("*") if p.suffix in (".html", ".css")}
    return [f"{p.relative_to(site)}: {url}" for p, text in texts.items() for url in fetch.findall(text)]


def main(check: bool) -> str | None:
    "Build everything; the message of a failure, else None."
    processed, source, site = process(), ROOT / "_sphinx", CFG.doc_path
    pages = write_sources(processed, source)
    shutil.rmtree(site, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", source, site]
    status = subprocess.run(command).returncode
    shutil.rmtree(ROOT / "jupyter_execute", ignore_errors=True)
    if status:
        return "the site has warnings, see above"
    if found := outside_requests(site):
        return "pages fetch from other servers:\n" + "\n".join(found)
    print(f"{len(pages)} pages in {site}")
    text = readme(json.loads((processed / CFG.readme_nb).read_text(encoding="utf-8")), house(processed))
    path = ROOT / "README.md"
    if check and path.read_text(encoding="utf-8") != text:
        return "README.md is not what nbs/index.ipynb says; run `make docs`"
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
