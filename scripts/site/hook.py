"""Makes a site of pages that are written to be read in the repository.

README.md becomes the first page. Links to files outside docs/ lead to the repository.
"""

import os
import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

LINK = re.compile(r"(\]\(|(?:src|srcset)=\")(?!\w+:|#|/)([^)\s\"#]+)(#[^)\s\"]*)?")
FENCE = re.compile(r"^(```.*?^```\s*?$)", re.M | re.S)


def on_files(files, config):
    with open("README.md", encoding="utf-8") as readme:
        files.append(File.generated(config, "index.md", content=readme.read()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns each link into one of the site, or of the repository."""
    source = page.file.src_uri
    here = "" if source == "index.md" else posixpath.join("docs", posixpath.dirname(source))

    def turned(match):
        before, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(here, target))
        if path == "README.md":
            path = "docs/index.md"
        if path.startswith("docs/") and not os.path.isdir(path):  # a page that is missing is found by the generator
            site = path.removeprefix("docs/")
            return before + posixpath.relpath(site, posixpath.dirname(source) or ".") + anchor
        if not os.path.exists(path):
            raise PluginError(f"{source}: the link to {target} leads to no file")
        return f"{before}{config['repo_url']}/blob/main/{path}{anchor}"

    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(turned, part) for part in parts[::2]]
    return "".join(parts)
