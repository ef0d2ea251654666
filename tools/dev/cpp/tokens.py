"""C++ text as tokens, and which of them are executed code. It knows neither types nor the preprocessor.

Spaces tell a comparison from a template's bracket and a product from a pointer: all sources are formatted (tools/dev/format.sh).
"""
import dataclasses
import re

TOKEN = re.compile(r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<directive>^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*)
  | (?P<text>\w*R"(?P<mark>[^()\s]*)\(.*?\)(?P=mark)"|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"\w*|'(?:\\.|[^'\\\n])+')
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<sign><=>|\.\.\.|<<=|>>=|::|->|\+\+|--|&&|\|\||[-+*/%&|^=!<>]=|<<|(?<=\s)>>(?=\s)|.)
""", re.X | re.M | re.S)
OPENS, CLOSES = {"(": ")", "[": "]", "{": "}", "<": ">"}, {")": "(", "]": "[", "}": "{", ">": "<"}
STATEMENT_WORDS = {"return", "throw", "else", "do", "case", "default", "delete", "goto", "co_return", "co_await", "co_yield", "new",
                   "if", "for", "while", "switch", "try", "catch", "break", "continue", "using", "static", "const", "auto", "typedef"}
CONSTANT_CALLS = {"static_assert", "sizeof", "alignof", "alignas", "decltype", "noexcept", "requires", "asm", "typeid"}


@dataclasses.dataclass
class Token:
    kind: str  # text, number, name or sign
    text: str
    begin: int
    end: int
    is_spaced: bool = False  # on both sides


@dataclasses.dataclass
class Body:
    """A function's body: its tokens are those from `begin` up to `end`; its head begins at `head`."""
    head: int
    begin: int
    end: int
    returns_bool: bool


class Source:
    def __init__(self, text):
        self.text = text
        self.tokens = [Token(m.lastgroup if m.lastgroup != "mark" else "text", m.group(), m.start(), m.end())
                       for m in TOKEN.finditer(text) if m.lastgroup not in ("space", "directive")]
        for token in self.tokens:
            token.is_spaced = text[token.begin - 1:token.begin].isspace() and text[token.end:token.end + 1].isspace()
        self.match = self._matches()
        self.around = self._brackets_around()

    def is_sign(self, i, *texts):
        return 0 <= i < len(self.tokens) and self.tokens[i].kind == "sign" and self.tokens[i].text in texts

    def word(self, i):
        """Returns the name at `i`, or ""."""
        return self.tokens[i].text if 0 <= i < len(self.tokens) and self.tokens[i].kind == "name" else ""

    def text_of(self, begin, end):
        """Returns the text of the tokens from `begin` up to `end`."""
        return self.text[self.tokens[begin].begin:self.tokens[end - 1].end]

    def one_line(self, begin, end):
        """Returns the same without line breaks and comments."""
        tokens = self.tokens[begin:end]
        gaps = [" " if before.end < after.begin else "" for before, after in zip(tokens, tokens[1:])]
        return "".join(token.text + gap for token, gap in zip(tokens, [*gaps, ""]))

    def _matches(self):
        match, stack = {}, []
        for i, token in enumerate(self.tokens):
            if token.kind != "sign":
                continue
            if token.text in "([{" or token.text == "<" and self._opens_template(i):
                stack.append(i)
            elif token.text in ")]}":
                while stack and self.tokens[stack[-1]].text != CLOSES[token.text]:
                    stack.pop()
                if stack:
                    match[i] = stack.pop()
                    match[match[i]] = i
            elif token.text == ">" and not token.is_spaced and stack and self.tokens[stack[-1]].text == "<":
                match[i] = stack.pop()
                match[match[i]] = i
        return match

    def _brackets_around(self):
        """Returns for each token the index of the bracket it is in, or -1."""
        around, stack = [], [-1]
        for i in range(len(self.tokens)):
            if self.match.get(i, i) < i:
                stack.pop()
            around.append(stack[-1])
            if self.match.get(i, i) > i:
                stack.append(i)
        return around

    def _opens_template(self, i):
        before = self.tokens[i - 1] if i else None
        if before is None or self.tokens[i].is_spaced:
            return False
        return before.text == "template" or before.end == self.tokens[i].begin and (before.kind == "name" or before.text == "]")

    def bodies(self):
        """Returns bodies of functions that run: without constexpr functions, and without initializers outside functions."""
        found, head, i = [], 0, 0
        while i < len(self.tokens):
            if self.is_sign(i, "(", "[", "<") and i in self.match:
                i = self.match[i]
            elif self.is_sign(i, ";", "}"):
                head = i + 1
            elif self.is_sign(i, "{") and i in self.match:
                kind = self.kind_of_block(head, i)
                if kind == "scope":
                    head = i + 1
                else:
                    if kind == "body":
                        found.append(Body(head, i + 1, self.match[i], self._returns_bool(head, i)))
                    i = self.match[i]
                    head = head if kind == "initializer" else i + 1
            i += 1
        return found

    def top(self, begin, end):
        """Returns indices from `begin` up to `end` that are not in a bracket of their own."""
        i = begin
        while i < end:
            yield i
            if self.is_sign(i, *OPENS) and i in self.match:
                i = self.match[i]
            i += 1

    def kind_of_block(self, head, brace):
        """Returns the kind of a block outside functions: scope (of a namespace or class), body, initializer, or constant."""
        top = list(self.top(head, brace))
        words = {self.word(i) for i in top}
        if "enum" in words:
            return "constant"
        if words & {"namespace", "class", "struct", "union"} or "extern" in words and self.tokens[brace - 1].kind == "text":
            return "scope"
        parameters = next((i for i in top if self.is_sign(i, "(")), None)
        if parameters is None or "operator" not in words and any(self.is_sign(i, "=") and i < parameters for i in top):
            return "initializer"
        has_members = any(self.is_sign(i, ":") and i > parameters for i in top)
        if has_members and (self.word(brace - 1) or self.is_sign(brace - 1, ">")):
            return "initializer"
        return "constant" if words & {"constexpr", "consteval"} else "body"

    def _returns_bool(self, head, brace):
        for i in self.top(head, brace):
            if self.is_sign(i, "("):
                return False
            if self.word(i) == "bool":
                return True
        return False

    def constants(self, body):
        """Returns indices of a body's tokens that need a constant or a declaration: template arguments, labels, sizes of
        arrays."""
        found, i = set(), body.begin
        while i < body.end:
            end = self._end_of_constant(i, body)
            found.update(range(i, end))
            i = max(i + 1, end)
        return found

    def _end_of_constant(self, i, body):
        """Returns the index after a constant that begins at `i`, or `i` if none does."""
        after = self.match.get(i, i - 1) + 1
        if self.is_sign(i, "<") and i in self.match:
            return after
        if self.word(i) in CONSTANT_CALLS and i + 1 in self.match:
            return self.match[i + 1] + 1
        if self.word(i) == "constexpr" and self.word(i - 1) == "if":
            return self.match.get(i + 1, i) + 1
        if self.word(i) in ("constexpr", "using", "typedef", "enum", "goto"):
            return self.next_sign(i, body.end, ";")
        if self.word(i) in ("case", "default"):
            return self.next_sign(i, body.end, ":")
        if self.word(i) in ("struct", "class", "union"):
            return self.next_sign(i, body.end, ";")
        if self.is_sign(i, "[") and i in self.match and (self._is_lambda(i) or self._is_declared(i - 1)):
            return self.match[after] + 1 if self._is_lambda(i) and self.is_sign(after, "(") and after in self.match else after
        return i

    def next_sign(self, i, end, sign):
        """Returns the first `sign` from `i` on that is not in a bracket of its own, or `end`."""
        return next((j for j in self.top(i, end) if self.is_sign(j, sign)), end)

    def _is_lambda(self, bracket):
        before = self.tokens[bracket - 1]
        return not (before.kind == "name" and before.text not in STATEMENT_WORDS or before.text in (")", "]"))

    def _is_declared(self, i):
        """Whether the name at `i` follows a type."""
        before = self.tokens[i - 1]
        return bool(self.word(i)) and (before.kind == "name" and before.text not in STATEMENT_WORDS - {"const", "auto", "static"}
                                       or before.text in ("*", "&") and not before.is_spaced or self.is_sign(i - 1, ">") and i - 1 in self.match)
