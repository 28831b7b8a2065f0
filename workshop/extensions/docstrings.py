"""What the API pages make of signatures and docstrings: the words of the source.

Napoleon takes what is before a colon for a type, in the first line of a property and
of a section `Returns`. Here types are in annotations, so such a line is a sentence:
"Bytes of a parameter: it and its gradient are kept as they are sent."

The fields of a class are one list, from the section `Attributes` of its docstring. Of a
field that the section leaves out, a NamedTuple would say "Alias for field number 3".

A signature has the defaults as the source writes them: 1e12, and the name of a function
rather than where it is in memory. Sphinx does that for functions, but the `__init__` of
a dataclass has no source.

A quoted text without spaces is a Python string, so it is set as code, whose quotes stay
straight.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import is_dataclass
from typing import Any

from docutils import nodes
from sphinx.domains.python import PyObject, PyTypedField
from sphinx.ext import napoleon
from sphinx.ext.autodoc.preserve_defaults import DefaultValue
from sphinx.util.inspect import stringify_signature

BEFORE_NAPOLEON = 400
VALUES = ("attribute", "data", "property")
# Where a name of another library begins, which has no page: its last part will do.
LIBRARY = re.compile(r"(?<![\w.~])(?!manygpu\.)(?=(?:\w+\.)+\w)")
FIELD_OF_TUPLE = "Alias for field number"
# Code, which is left alone, or a dictionary, or a string without spaces.
STRING = re.compile(
    r"""``.+?``|`[^`]+`|(\{"[^{}]*\}|(?<![\w"'])(?:"[^"\s]*"|'[^'\s]+')(?![\w"']))"""
)


class Docstring(napoleon.GoogleDocstring):
    """Sections as Napoleon reads them, but without types before colons."""

    def _parse(self) -> None:
        if self._what in VALUES:  # of which Napoleon reads no sections either
            self._what = "method"
        super()._parse()

    def _consume_returns_section(
        self, preprocess_types: bool = False
    ) -> list[tuple[str, str, list[str]]]:
        lines = self._dedent(self._consume_to_next_section())
        return [("", "", lines)] if lines else []

    def _parse_attributes_section(self, section: str) -> list[str]:
        lines = []
        for found, kind, said in self._consume_fields():
            names = found.split(", ")
            kinds = {kind or self._lookup_annotation(name) for name in names}
            kinds = {LIBRARY.sub("~", kind) for kind in kinds}
            field = ",".join(names)  # without a space: before it would be a type
            lines += self._format_block(f":ivar {field}: ", said)
            if len(kinds) == 1 and "" not in kinds:
                lines.append(f":vartype {field}: {kinds.pop()}")
        return [*lines, ""]


class Fields(PyTypedField):
    """The list of a class's fields, whose names link to nothing."""

    def make_xrefs(
        self, rolename: str, domain: str, target: str, innernode: type, **told: Any
    ) -> list[nodes.Node]:
        """Names that are explained together, or else a type with its links."""
        if rolename:
            return super().make_xrefs(rolename, domain, target, innernode, **told)
        return [innernode("", target.replace(",", ", "))]


ATTRIBUTES = Fields(
    "variable",
    label="Attributes",
    names=("var", "ivar", "cvar"),
    typerolename="class",
    typenames=("vartype",),
    can_collapse=True,
)


def says_nothing(
    app, what: str, name: str, member: Any, skip: bool, options
) -> bool | None:
    """Leave out a field of a NamedTuple that has no words of its own."""
    made_up = (inspect.getdoc(member) or "").startswith(FIELD_OF_TUPLE)
    return True if made_up else None


def strings_as_code(
    app, what: str, name: str, obj: Any, options, lines: list[str]
) -> None:
    """Set the strings in a docstring as code; a block of code is code already."""
    block: int | None = None  # how far the line before such a block is indented
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if block is not None and (not line.strip() or indent > block):
            continue
        block = indent if line.rstrip().endswith("::") else None
        lines[i] = STRING.sub(as_code, line)


def as_code(found: re.Match) -> str:
    """A string as code; what is code already as it is."""
    return f"``{found[1]}``" if found[1] else found[0]


def as_written(
    app, what: str, name: str, obj: Any, options, signature: str, returned: str
) -> tuple[str, str] | None:
    """The signature of a class whose fields have defaults, as its source has them."""
    fields = is_dataclass(obj) or hasattr(obj, "_field_defaults")
    if what != "class" or not fields:
        return None
    written, found = defaults(obj), inspect.signature(obj)
    parameters = [
        each.replace(default=DefaultValue(written[key])) if key in written else each
        for key, each in found.parameters.items()
        if key != "_cls"
    ]
    kept = found.replace(parameters=parameters, return_annotation=found.empty)
    return stringify_signature(kept, show_annotation=False), returned


def defaults(cls: type) -> dict[str, str]:
    """The defaults of a class's fields, and of those it inherits, as text."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__[:-1]):
        try:
            source = textwrap.dedent(inspect.getsource(each))
        except (OSError, TypeError):  # of Python's own there is none
            continue
        for node in ast.parse(source).body[0].body:
            if isinstance(node, ast.AnnAssign) and node.value:
                found[node.target.id] = default(node.value, source)
    return found


def default(value: ast.expr, source: str) -> str:
    """One default; of `field(default_factory=dict)`, what it makes: dict()."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
        told = {word.arg: word.value for word in value.keywords}
        if "default_factory" in told:
            return f"{ast.unparse(told['default_factory'])}()"
        value = told["default"]
    return " ".join(ast.get_source_segment(source, value).split())


def setup(app) -> None:
    """Read docstrings and signatures so."""
    napoleon.GoogleDocstring = Docstring
    kinds = [field for field in PyObject.doc_field_types if field.name != "variable"]
    PyObject.doc_field_types = [*kinds, ATTRIBUTES]
    app.connect("autodoc-skip-member", says_nothing)
    app.connect("autodoc-process-signature", as_written)
    app.connect("autodoc-process-docstring", strings_as_code, priority=BEFORE_NAPOLEON)
