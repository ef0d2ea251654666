"""Data members of C++ classes, counted in their text, without a compiler.

Counted: the names that a class's body declares as data, several in one declaration each by itself; those of a struct without a
name count for the class around it. Not counted: static members, what a base class has, and classes within the class, which count
by themselves.
"""
import re

from sources import without_comments

ACCESS = re.compile(r"^\s*(?:(?:public|protected|private)\s*:(?!:)\s*)+")
ATTRIBUTE = re.compile(r"\[\[.*?\]\]|\balignas\s*\([^()]*\)", re.S)
DECLTYPE = re.compile(r"\bdecltype\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
TEMPLATE = re.compile(r"^template\s*(?:requires\b.*?(?=\b(?:class|struct)\b))?", re.S)
CLASS = re.compile(r"^(?:class|struct|union)\b(?!.*\()(?:\s+[A-Z][A-Z_]*\b(?=\s+\w))*\s*([\w:]*)", re.S)
FUNCTION_POINTER = re.compile(r"\(\s*[\w:]*\*\s*\w+\s*\)\s*\(")
NO_DATA = re.compile(r"^(?:using|typedef|friend|static|inline static|template|enum|class \w+$|struct \w+$)\b|\boperator\b")


class Scope:
    def __init__(self, name=None, line=0):
        self.name, self.line, self.members, self.statement = name, line, 0, ""  # name: None unless it is a class


def without(pattern, text):
    """Returns the text without all matches, repeated until nothing matches, so that nested ones are removed, too."""
    while (shorter := re.sub(pattern, "", text)) != text:
        text = shorter
    return text


def bare(statement):
    """Returns the text without labels, attributes and text between < and >."""
    statement = DECLTYPE.sub("auto", ATTRIBUTE.sub(" ", ACCESS.sub("", statement)))
    return without(r"<[^<>;{}]*>", statement).strip()


def num_data(statement):
    """Returns how many data members a statement of a class's body declares."""
    statement = bare(statement)
    if not statement or NO_DATA.search(statement):
        return 0
    if FUNCTION_POINTER.search(statement.split("=")[0]):
        return 1
    if "(" in re.split(r"[={]", statement, maxsplit=1)[0]:  # a function
        return 0
    statement = without(r"\([^()]*\)", re.sub(r"\{\}|\[[^\]]*\]", "", statement))
    return statement.count(",") + 1 if re.match(r"[\w:][\w:\s&*]*[\s&*]\w+", statement) else 0


def classes(text):
    """Returns (name, line, number of data members) of each class that has a name."""
    text = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group(0).count("\n"), without_comments(text))
    found, outer, scope, line = [], [], Scope(), 1
    parts = re.split(r"([{};])", text)
    for i, part in enumerate(parts):
        line += part.count("\n")
        if part == "{":
            head = CLASS.match(TEMPLATE.sub("", bare(scope.statement)))
            outer.append(scope)
            scope = Scope(head and head.group(1), line)
        elif part == "}" and outer:
            inner, scope = scope, outer.pop()
            if inner.name:
                found.append((inner.name, inner.line, inner.members))
            scope.statement = after(inner, scope, parts[i + 1])
        elif part == ";":
            scope.members += num_data(scope.statement) if scope.name is not None else 0
            scope.statement = ""
        else:
            scope.statement += part
    return found


def after(inner, scope, rest):
    """Returns the beginning of the statement that continues after the braces of `inner`, if it does."""
    if inner.name is not None:
        scope.members += inner.members if not inner.name else 0
        return "auto " if inner.name else "using "  # after a named type, data members follow
    return scope.statement + "{}" if re.match(r"\s*(?:$|[,=])", rest) else ""
