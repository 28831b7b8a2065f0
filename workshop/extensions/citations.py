"""Citations by author and year, the same words in the text and in the bibliography.

Of several entries with one author and year, as documentation without a year has them,
each gets a letter: [PyTorch, n.d.b]. The list is in the order of these words: people
and organizations in one alphabet, whose names BibTeX writes in braces.
"""

from __future__ import annotations

from pybtex.database import Entry, Person
from pybtex.plugin import register_plugin
from pybtex.style.formatting.alpha import Style as ByAuthor
from pybtex.style.labels.alpha import LabelStyle
from pybtex.style.sorting import BaseSortingStyle


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


def year(entry: Entry) -> str:
    """The year of an entry, or that it has none."""
    return entry.fields.get("year", "n.d.")


class AuthorYear(LabelStyle):
    """Labels of authors and year, none twice."""

    def format_label(self, entry: Entry) -> str:
        """What pybtex asks for; it adds the letters."""
        return f"{authors(entry)}, {year(entry)}"


class ByLabel(BaseSortingStyle):
    """The order of the labels; of those alike, of the titles."""

    def sorting_key(self, entry: Entry) -> tuple[str, str, str]:
        """What pybtex asks for; "n.d." comes after all years."""
        title = entry.fields.get("title", "")
        return authors(entry).casefold(), year(entry), title.strip("{}`").casefold()


class Style(ByAuthor):
    """Entries with these labels, in their order."""

    default_label_style = AuthorYear
    default_sorting_style = ByLabel


def setup(app) -> None:
    """Register the style; `bibtex_default_style: author-year` chooses it."""
    register_plugin("pybtex.style.formatting", "author-year", Style)
