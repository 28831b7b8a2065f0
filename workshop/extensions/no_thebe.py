"""Leave out Thebe, which Jupyter Book always loads and this book never starts.

Live cells would need a server. Its script is also written twice on a page, and the
second one stops with an error.
"""

from __future__ import annotations


def disconnect(app, config) -> None:
    """Take Thebe's listeners and its style away once all extensions are loaded."""
    styles = app.registry.css_files
    styles[:] = [style for style in styles if style[0] != "sphinx-thebe.css"]
    for listeners in app.events.listeners.values():
        for listener in list(listeners):
            if listener.handler.__module__ == "sphinx_thebe":
                app.disconnect(listener.id)


def setup(app) -> dict:
    """Run after the configuration is read, before any page is."""
    app.connect("config-inited", disconnect)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
