"Sphinx settings of the site. Nothing on its pages comes from another server."

from configparser import ConfigParser
from pathlib import Path

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

settings = ConfigParser(delimiters=["="])
settings.read(
    Path(__file__).parents[1] / "settings.ini", encoding="utf-8"
)  # a copy of this file is in _sphinx
cfg = settings["DEFAULT"]

project = html_title = cfg["title"]
author = cfg["author"]
copyright = cfg["copyright"]
version = release = cfg["version"]
extensions = ["myst_nb", "sphinx_copybutton"]
suppress_warnings = ["myst.header"]  # a long remark is an H4 under its H2

nb_execution_mode = "off"  # the outputs that the notebooks keep are shown
nb_render_markdown_format = "gfm"
nb_code_prompt_show, nb_code_prompt_hide = "Source", "Hide source"
nb_ipywidgets_js = {}  # its default is a CDN
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "attrs_block"]
myst_heading_anchors = 4
copybutton_selector = "div.highlight:not(.signature) pre"

html_theme = "furo"
html_static_path, html_css_files = ["_static"], ["style.css"]
html_favicon = "_static/logo.svg"
html_show_sourcelink, html_copy_source = False, False
pygments_style, pygments_dark_style = "friendly", "github-dark"
html_theme_options = {
    "light_logo": "logo.svg",
    "dark_logo": "logo.svg",
    "light_css_variables": {
        "color-brand-primary": "#17666e",
        "color-brand-content": "#17666e",
        "color-brand-visited": "#17666e",
        "color-background-secondary": "#f7f8f7",
        "color-code-background": "#f5f7f6",
        "color-inline-code-background": "#eff3f2",
        "color-accent": "#b0712a",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6fc3c6",
        "color-brand-content": "#7fcccf",
        "color-brand-visited": "#7fcccf",
        "color-background-primary": "#14181a",
        "color-background-secondary": "#191f21",
        "color-code-background": "#1c2325",
        "color-inline-code-background": "#222b2d",
        "color-accent": "#dfa35c",
    },
}


def write_math(display):
    "MathML straight into the page: browsers set it themselves."

    def visit(self, node):
        self.body.append(convert(node.astext(), display=display))
        raise SkipNode

    return visit, None


def setup(app):
    app.add_html_math_renderer("mathml", write_math("inline"), write_math("block"))


html_math_renderer = "mathml"
