"""Citations by author and year, the same words in the text and in the bibliography.

Of several entries with one author and year, as documentation without a year has them,
each gets a letter: [PyTorch, n.d.b].
"""

from __future__ import annotations

from pybtex.database import Entry, Person
from pybtex.plugin import register_plugin
from pybtex.style.formatting.alpha import Style as ByAuthor
from pybtex.style.labels.alpha import LabelStyle


def last_name(person: Person) -> str:
    """A name without first names, and without the marks of LaTeX."""
    names = [*person.rich_prelast_names, *person.rich_last_names]
    return " ".join(map(str, names))


def authors(entry: Entry) -> str:
    """One or two authors by name; of more, the first."""
    first, *more = map(last_name, entry.persons["author"])
    if len(more) > 1 or more == ["others"]:
        return f"{first} et al."
    return " and ".join([first, *more])


class AuthorYear(LabelStyle):
    """Labels of authors and year, none twice."""

    def format_label(self, entry: Entry) -> str:
        """What pybtex asks for; it adds the letters."""
        return f"{authors(entry)}, {entry.fields.get('year', 'n.d.')}"


class Style(ByAuthor):
    """Entries in the order of their authors, with these labels."""

    default_label_style = AuthorYear


def setup(app) -> None:
    """Register the style; `bibtex_default_style: author-year` chooses it."""
    register_plugin("pybtex.style.formatting", "author-year", Style)
