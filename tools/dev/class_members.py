"""Data members of C++ classes, read in their text, without a compiler.

They are the names that a class's body declares as data, several in one declaration each by itself; those of a struct without a
name belong to the class around it. They exclude static members, what a base class has, and classes within the class, which have
their own.
"""
import re
from typing import NamedTuple

from sources import without_comments

ACCESS = re.compile(r"^\s*(?:(?:public|protected|private)\s*:(?!:)\s*)+")
ATTRIBUTE = re.compile(r"\[\[.*?\]\]|\balignas\s*\([^()]*\)", re.S)
DECLTYPE = re.compile(r"\bdecltype\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
DECLARED = re.compile(r"[\w:][\w:\s&*]*[\s&*](\w+)")
BIT_FIELD = re.compile(r"(?<!:):(?!:)\s*\w+")
TEMPLATE = re.compile(r"^template\s*(?:requires\b.*?(?=\b(?:class|struct)\b))?", re.S)
CLASS = re.compile(r"^(class|struct|union)\b(?!.*\()(?:\s+[A-Z][A-Z_]*\b(?=\s+\w))*\s*([\w:]*)", re.S)
FUNCTION_POINTER = re.compile(r"\(\s*[\w:]*\*\s*(\w+)\s*\)\s*\(")
NO_DATA = re.compile(r"^(?:using|typedef|friend|static|inline static|template|enum|class \w+$|struct \w+$)\b|\boperator\b")


class Class(NamedTuple):
    keyword: str  # class, struct or union
    name: str
    line: int
    members: list  # names, in the order of their declarations


class Scope:
    def __init__(self, head=None, line=0):
        self.keyword, self.name = head.groups() if head else (None, None)  # None unless it is a class
        self.line, self.members, self.statement = line, [], ""


def without(pattern, text):
    """Returns the text without all matches, repeated until nothing matches, so that nested ones are removed, too."""
    while (shorter := re.sub(pattern, "", text)) != text:
        text = shorter
    return text


def bare(statement):
    """Returns the text without labels, attributes and text between < and >."""
    statement = DECLTYPE.sub("auto", ATTRIBUTE.sub(" ", ACCESS.sub("", statement)))
    return without(r"<[^<>;{}]*>", statement).strip()


def data_of(statement):
    """Returns the names of the data members that a statement of a class's body declares."""
    statement = bare(statement)
    if not statement or NO_DATA.search(statement):
        return []
    if pointer := FUNCTION_POINTER.search(statement.split("=")[0]):
        return [pointer.group(1)]
    if "(" in re.split(r"[={]", statement, maxsplit=1)[0]:  # a function
        return []
    statement = without(r"\([^()]*\)", re.sub(r"\{\}|\[[^\]]*\]", "", statement))
    first, *others = [BIT_FIELD.sub("", each.split("=")[0]).strip(" \n&*") for each in statement.split(",")]
    declared = DECLARED.fullmatch(first)
    return [declared.group(1), *others] if declared else []


def classes(text):
    """Returns each Class that has a name."""
    text = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group(0).count("\n"), without_comments(text))
    found, outer, scope, line = [], [], Scope(), 1
    parts = re.split(r"([{};])", text)
    for i, part in enumerate(parts):
        line += part.count("\n")
        if part == "{":
            head = CLASS.match(TEMPLATE.sub("", bare(scope.statement)))
            outer.append(scope)
            scope = Scope(head, line)
        elif part == "}" and outer:
            inner, scope = scope, outer.pop()
            if inner.name:
                found.append(Class(inner.keyword, inner.name, inner.line, inner.members))
            scope.statement = after(inner, scope, parts[i + 1])
        elif part == ";":
            scope.members += data_of(scope.statement) if scope.name is not None else []
            scope.statement = ""
        else:
            scope.statement += part
    return found


def after(inner, scope, rest):
    """Returns the beginning of the statement that continues after the braces of `inner`, if it does."""
    if inner.name is not None:
        scope.members += inner.members if not inner.name else []
        return "auto " if inner.name else "using "  # after a named type, data members follow
    return scope.statement + "{}" if re.match(r"\s*(?:$|[,=<>|+*/.-])", rest) else ""
