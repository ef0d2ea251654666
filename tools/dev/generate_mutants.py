#!/usr/bin/env python3
"""Finds the places where a source can be broken: all changes of a few kinds that its tokens allow.

    tools/dev/generate_mutants.py FILE ...     prints them: line, kind, old -> new

sample_mutants.py draws from them. Each change is of a whole expression or statement, as it becomes a choice at run time. The
script does not know types: the compiler finds changes that do not compile, and they are left out.
"""
import dataclasses
import functools
import pathlib
import re
import sys

from cpp.tokens import CLOSES, OPENS, STATEMENT_WORDS, Source
from mutants import is_declaration, layer_of
from sources import ROOT, files

# How tightly operators bind. An operand ends at an operator that binds less.
TIGHTNESS = {"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<=>": 8, "<<": 9, ">>": 9,
             "+": 10, "-": 10, "*": 11, "/": 11, "%": 11}
ASSIGNS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
ENDS_EXPRESSION = {",", ";", "?", ":", "...", *ASSIGNS}
BOUNDS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
SIGNS = {"+": "-", "-": "+"}
CONNECTIVES = {"&&": "||", "||": "&&"}
PAIRS = [("rank", "size"), ("next", "previous"), ("first", "last"), ("front", "back"), ("left", "right"), ("source", "destination"),
         ("row", "column"), ("rows", "columns"), ("width", "height"), ("local", "global"), ("before", "after")]
TEXTS = {"string", "to_string", "format", "str", "text", "name", "path", "substr"}  # + joins them, and they have no -
OTHER_WORD = {**dict(PAIRS), **{second: first for first, second in PAIRS}}
# Calls whose removal has no effect that a test must see, or that never return.
NOT_DROPPED = re.compile(r"log|log_.*|(v?f|vs?n)?print\w*|debug|info|warn(ing)?|reserve|shrink_to_fit|prefetch\w*|abort|_?_?_?[eE]xit|quick_exit|terminate|"
                         r"fail|throw_.*|rethrow.*|unreachable|yield|pause")


@dataclasses.dataclass(frozen=True)
class Change:
    file: str
    kind: str
    begin: int  # characters of the file
    end: int
    line: int
    old: str
    new: str
    line_text: str

    @property
    def layer(self):
        return layer_of(self.file)

    def shown(self):
        return f"{' '.join(self.old.split())} -> {' '.join(self.new.split()) or '(nothing)'}"

    def choice(self, switch):
        """Returns the replacement in the source: the new text if `switch` is true."""
        if self.kind == "call":
            return f"{{ if ({switch}) {{ }} else {{ {self.old} }} }}"
        old = f"static_cast<bool>({self.old})" if self.kind in ("condition", "result") else f"({self.old})"
        return f"({switch} ? ({self.new}) : {old})"


class Generator:
    def __init__(self, file, text, never_return=frozenset()):
        self.file, self.source, self.never_return = file, Source(text), never_return
        self.lines = text.split("\n")
        self.names = {token.text for token in self.source.tokens if token.kind == "name"}
        self.changes = []

    def all(self):
        for body in self.source.bodies():
            constants = self.source.constants(body)
            for i in range(body.begin, body.end):
                if i not in constants:
                    self._conditions(i)
                    self._operators(i, body)
                    self._names(i, body)
                    self._calls(i)
                    self._results(i, body)
        return sorted(set(self.changes), key=lambda change: (change.begin, change.end, change.kind, change.new))

    def _add(self, kind, begin, end, new):
        """Replaces the tokens from `begin` up to `end` by `new`."""
        tokens = self.source.tokens
        first, old = tokens[begin].begin, self.source.text_of(begin, end)
        if re.search(r"^\s*#", old, re.M):  # preprocessor directives make it several expressions
            return
        line = self.source.text.count("\n", 0, first) + 1
        self.changes.append(Change(self.file, kind, first, tokens[end - 1].end, line, old, new,
                                   self.lines[line - 1].strip()))

    # ---- expressions

    def _is_operator(self, i, *texts):
        token = self.source.tokens[i]
        return token.kind == "sign" and token.is_spaced and token.text in TIGHTNESS and i not in self.source.match and (not texts or token.text in texts)

    def _begin_of_operand(self, i, tightness):
        """Returns where the expression begins that ends before `i`."""
        source = self.source
        while i > 0:
            before = i - 1
            if source.is_sign(before, *CLOSES) and before in source.match:
                opened = source.match[before]
                if source.is_sign(before, "}") and not (source.word(opened - 1) and source.word(opened - 1) not in STATEMENT_WORDS):
                    return i
                i = opened
            elif (source.is_sign(before, *OPENS, *ENDS_EXPRESSION) and not self._is_operator(before) or source.word(before) in STATEMENT_WORDS
                  or self._is_operator(before) and TIGHTNESS[source.tokens[before].text] < tightness):
                return i
            else:
                i = before
        return i

    def _end_of_operand(self, i, tightness):
        """Returns where the expression ends that begins at `i`: the index after it."""
        source = self.source
        while i < len(source.tokens):
            if source.is_sign(i, *OPENS) and i in source.match:
                i = source.match[i] + 1
            elif (source.is_sign(i, *ENDS_EXPRESSION) or source.is_sign(i, *CLOSES) and i in source.match
                  or self._is_operator(i) and TIGHTNESS[source.tokens[i].text] <= tightness):
                return i
            else:
                i += 1
        return i

    def _operators_of(self, begin, end):
        """Returns the operators of an expression that are not in a bracket of it."""
        return [self.source.tokens[i].text for i in self.source.top(begin, end) if self._is_operator(i)]

    def _operators(self, i, body):
        if not self._is_operator(i):
            return
        sign = self.source.tokens[i].text
        begin, end = self._begin_of_operand(i, TIGHTNESS[sign]), self._end_of_operand(i + 1, TIGHTNESS[sign])
        if begin >= i or end <= i + 1 or begin < body.begin or end > body.end:
            return
        left, right = self.source.one_line(begin, i), self.source.one_line(i + 1, end)
        if sign in BOUNDS:
            self._add("bound", begin, end, f"{left} {BOUNDS[sign]} {right}")
        elif sign in CONNECTIVES:
            self._add("connective", begin, end, f"({left}) {CONNECTIVES[sign]} ({right})")
        elif sign in SIGNS and not self._is_about_text(begin, end) and not (sign == "-" and "now()" in (left[-5:], right[-5:])):
            self._add("sign", begin, end, f"{left} {SIGNS[sign]} {right}")
            if right == "1":
                self._add("off by one", begin, end, left)

    def _is_about_text(self, begin, end):
        source = self.source
        return any(source.tokens[i].kind == "text" or source.word(i) in TEXTS and not source.is_sign(i + 1, ".", "->") for i in range(begin, end))

    # ---- conditions

    def _conditions(self, i):
        source = self.source
        if source.word(i) in ("if", "while", "for") and source.is_sign(i + 1, "(") and i + 1 in source.match:
            begin, end = i + 2, source.match[i + 1]
            ends = [j for j in source.top(begin, end) if source.is_sign(j, ";")]
            if source.word(i) == "for":
                if len(ends) != 2:
                    return
                begin, end = ends[0] + 1, ends[1]
            elif ends:
                begin = ends[-1] + 1
            self._condition(begin, end, is_loop=source.word(i) != "if")
        elif source.is_sign(i, "?"):
            self._condition(self._begin_of_operand(i, 0), i, is_loop=False)

    def _condition(self, begin, end, is_loop):
        """Replaces a condition by false, true, and its negation; a loop without an end would prove little."""
        source = self.source
        if begin >= end or source.text_of(begin, end) in ("true", "false") or any(source.is_sign(j, *ASSIGNS) for j in source.top(begin, end)):
            return
        self._add("condition", begin, end, "false")
        if not is_loop:
            self._add("condition", begin, end, "true")
        if not set(self._operators_of(begin, end)) & {"==", "!="}:  # their bounds are negations
            self._add("condition", begin, end, f"!({source.one_line(begin, end)})")

    # ---- names, calls, results

    def _names(self, i, body):
        word, source = self.source.word(i), self.source
        if not word:
            return
        begin, end = self._chain(i)
        if word in ("min", "max") and source.text_of(begin, i) == "std::" and source.is_sign(end - 1, ")"):
            self._exchange("extreme", begin, i, end, "max" if word == "min" else "min")
            return
        parts = word.split("_")
        for k, part in enumerate(parts):
            other = "_".join([*parts[:k], OTHER_WORD.get(part, part), *parts[k + 1:]])
            if other != word and self._is_known(other, begin, i, body) and self._is_value(begin, end):
                self._exchange("name", begin, i, end, other)

    def _is_known(self, word, begin, i, body):
        """Whether the word can replace the word at `i`: of the same object, a member, or a variable declared before."""
        source = self.source
        if begin != i:
            return word in ("front", "back") or source.text_of(begin, i) + word in source.text
        if word.endswith("_"):
            return word in self.names
        if source.is_sign(i + 1, "("):
            return bool(re.search(rf"(?<![.>:\w]){word}\(", source.text))
        return any(source.word(j) == word and not source.is_sign(j - 1, ".", "->", "::") and not source.is_sign(j + 1, "(", "::") for j in range(body.head, i))

    def _exchange(self, kind, begin, i, end, word):
        before, after = self.source.one_line(begin, i) if i > begin else "", self.source.one_line(i + 1, end) if end > i + 1 else ""
        self._add(kind, begin, end, before + word + after)

    def _chain(self, i):
        """Returns the expression around the name at `i` that ends with it or with its arguments: a::b(c).d[e]->name(f)."""
        source, begin, end = self.source, i, i + 1
        while source.is_sign(begin - 1, "::", ".", "->"):
            begin -= 2
            while source.is_sign(begin, ")", "]", ">") and begin in source.match:
                begin = source.match[begin] - 1
            if not source.word(begin):
                return i, i + 1
        while source.is_sign(end, "(", "<") and end in source.match:
            end = source.match[end] + 1
        return begin, end

    def _is_value(self, begin, end):
        """Whether the name there is read, neither declared nor assigned."""
        source = self.source
        before = (source.is_sign(begin - 1, "(", ",", "[", "{", "!", "-", "?", ":", "=") or source.word(begin - 1) == "return" or self._is_operator(begin - 1))
        return before and (source.is_sign(end, ")", ",", "]", "}", ";", ".", "->", "?", ":", "[") or self._is_operator(end))

    def _calls(self, i):
        """Removes a statement that is a call."""
        source = self.source
        begins = source.is_sign(i - 1, ";", "{", "}") or source.word(i - 1) in ("else", "do") or self._ends_condition(i - 1) or self._ends_label(i - 1)
        if not begins or not source.is_sign(source.around[i], "{") or not source.word(i) or source.word(i) in STATEMENT_WORDS:
            return
        end = source.next_sign(i, len(source.tokens), ";")
        if end - 1 not in source.match or not source.is_sign(end - 1, ")") or any(source.is_sign(j, "{", "}", *ASSIGNS) for j in source.top(i, end)):
            return
        callee = source.match[end - 1] - 1
        callee = source.match[callee] - 1 if source.is_sign(callee, ">") and callee in source.match else callee
        name, text = source.word(callee), source.text_of(i, end + 1)
        is_macro = re.fullmatch(r"[A-Z][A-Z0-9_]+", source.word(i)) and not source.word(i).startswith("TORCH_CHECK")
        if name and not is_macro and not name.endswith("_cast") and not NOT_DROPPED.fullmatch(name) and name not in self.never_return and not is_declaration(text):
            self._add("call", i, end + 1, "")

    def _ends_condition(self, i):
        source = self.source
        return source.is_sign(i, ")") and i in source.match and source.word(source.match[i] - 1) in ("if", "for", "while", "constexpr")

    def _ends_label(self, i):
        source = self.source
        begin = next((j for j in range(i - 1, 0, -1) if source.is_sign(j, ";", "{", "}", ":")), 0)
        return source.is_sign(i, ":") and source.word(begin + 1) in ("case", "default")

    def _results(self, i, body):
        source = self.source
        if source.word(i) != "return":
            return
        end = source.next_sign(i, body.end, ";")
        if end == i + 2 and source.word(i + 1) in ("true", "false"):
            self._add("result", i + 1, end, "false" if source.word(i + 1) == "true" else "true")
        elif body.returns_bool and end > i + 1 and not source.is_sign(i + 1, "{") and not self._is_in_lambda(i, body):
            if not set(self._operators_of(i + 1, end)) & {"==", "!="}:
                self._add("result", i + 1, end, f"!({source.one_line(i + 1, end)})")

    def _is_in_lambda(self, i, body):
        source = self.source
        while (i := source.around[i]) >= body.begin:
            head = next((j for j in range(i - 1, body.begin, -1) if source.is_sign(j, "{", "}", ";", "]")), body.begin)
            if source.is_sign(i, "{") and source.is_sign(head, "]"):
                return True
        return False


@functools.lru_cache
def never_return(root):
    """Returns the names of functions that never return, as headers and sources mark them."""
    marked = re.compile(r"\[\[noreturn\]\][^;{}(]*?(\w+)\(")
    return frozenset(name for path in files(root, "cohort/*.h", "cohort/*.cpp") for name in marked.findall(path.read_text()))


def changes_of(root, file):
    return Generator(file, (root / file).read_text(), never_return(root)).all()


def main(paths):
    for path in paths:
        for change in changes_of(ROOT, pathlib.Path(path).resolve().relative_to(ROOT).as_posix()):
            print(f"{change.file}:{change.line}: {change.kind}: {change.shown()}")


if __name__ == "__main__":
    if not sys.argv[1:] or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1:])
