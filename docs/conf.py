"""The pages of this folder as a book with search: `make docs` builds it, without the network."""

from rsnotify import __version__

project = "rsnotify"
release = __version__
html_title = f"rsnotify {__version__}"
extensions = ["myst_parser"]
highlight_language = "none"  # of examples that name no language: commands and what they print
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = [("copy.js", {"defer": "defer"})]
myst_enable_extensions = ["tasklist"]
myst_heading_anchors = 4  # links name headings as forges do
suppress_warnings = ["misc.highlighting_failure"]  # the map of the rooms is in no language
