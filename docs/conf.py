"""How Sphinx builds the site: ``python -m sphinx -W --keep-going -n docs OUT``. Nothing is fetched."""

from importlib.metadata import version as version_of
from pathlib import Path

project = "reactor_rl"
author = "the authors of reactor_rl"
version = release = version_of("reactor-rl")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # links to headings are written as on any forge: page.md#a-heading

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_inherit_docstrings = False  # what a host documents is in the host's reference
napoleon_numpy_docstring = False
napoleon_use_ivar = True
add_module_names = False
toc_object_entries_show_parents = "hide"
highlight_language = "none"  # blocks of Python say so
python_maximum_signature_line_length = 80
# A name that a package of ours exports has to be found. Those of other projects stay plain text.
nitpick_ignore_regex = [("py:.*", r"(?!reactor_\w+\.[A-Z]).*")]

html_theme = "furo"
pygments_style = "tango"
html_title = f"reactor_rl {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_copy_source = False
html_show_copyright = False


def copy_llms_txt(app, error):
    """In the repository the links of llms.txt lead to sources, on the site to pages."""
    if error is None and app.builder.format == "html":
        text = (Path(app.srcdir) / "llms.txt").read_text()
        (Path(app.outdir) / "llms.txt").write_text(text.replace(".md):", ".html):"))


def setup(app):
    """Sphinx calls this first."""
    app.connect("build-finished", copy_llms_txt)
