"""What every run of pytest here has, `pytest --nbmake book` among them."""

pytest_plugins = ["workshop.notebook_runs"]
