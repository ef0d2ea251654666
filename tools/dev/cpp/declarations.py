"""The names that C++ text declares in namespaces, found without a compiler: types, functions, variables and aliases, without macros.

Members of classes and what functions declare are not among them, nor names with `::`, such as that of a specialization or of a
member that is defined outside its class, which declare nothing new.
"""
import dataclasses

from cpp.tokens import Source

TYPES = {"class", "struct", "union", "enum"}
HOLDERS = {"TORCH_MODULE", "TORCH_MODULE_IMPL"}  # macros of LibTorch
BEFORE_NAMES = {"typedef", "extern", "inline", "static", "constexpr", "friend"}


@dataclasses.dataclass
class Declaration:
    namespace: str  # "cohort::comm", or "" outside all; an unnamed namespace is "(unnamed)"
    kind: str  # namespace, type, alias, using, directive (`using namespace`), or value: a function or a variable
    name: str  # of a namespace, a using-declaration and a directive with its qualifiers
    begin: int  # where the name stands in the text
    is_forward: bool = False  # a type without its body
    is_deprecated: bool = False


def declarations(text):
    """Returns the Declarations in the order of the text."""
    source = Source(text)
    return list(_declared(source, 0, len(source.tokens), ""))


def _declared(source, begin, end, namespace):
    while begin < end:
        name = _after_prefix(source, begin, end)
        if source.word(name) == "namespace" or source.word(name) == "" and source.word(begin) == "extern" and source.is_sign(begin + 2, "{"):
            begin = yield from _namespace(source, begin, name, namespace)
            continue
        stop = _end_of_statement(source, begin, name, end)
        found = _statement(source, begin, name, min(stop, end), namespace)
        if found:
            found.is_deprecated = "deprecated" in _head(source, begin, min(stop, end), found)
            yield found
        begin = stop + 1


def _head(source, begin, end, found):
    """Returns what stands before the name, and before the `=` of an alias, where attributes stand."""
    text = source.text_of(begin, end)
    return text.split("=")[0] if found.kind == "alias" else text[:found.begin - source.tokens[begin].begin]


def _namespace(source, begin, word, around):
    """Yields what the namespace that begins here declares; returns the index after it."""
    brace = next(i for i in range(begin, len(source.tokens)) if source.is_sign(i, "{", ";"))
    if source.is_sign(brace, ";") or any(source.is_sign(i, "=") for i in range(begin, brace)):  # an alias of a namespace
        yield Declaration(around, "alias", source.word(word + 1), source.tokens[word + 1].begin)
        return source.next_sign(begin, len(source.tokens), ";") + 1
    inside = around
    if source.word(word) == "namespace":
        name = source.text_of(word + 1, brace) if brace > word + 1 else "(unnamed)"
        inside = f"{around}::{name}" if around else name
        yield Declaration(around, "namespace", name, source.tokens[word].begin)
    yield from _declared(source, brace + 1, source.match[brace], inside)
    return source.match[brace] + 1


def _after_prefix(source, i, end):
    """Returns the index after `template <...>`, attributes, `inline` and the like."""
    while i < end:
        if source.word(i) == "template" and i + 1 in source.match:
            i = source.match[i + 1] + 1
        elif source.is_sign(i, "[") and i in source.match:
            i = source.match[i] + 1
        elif source.word(i) in BEFORE_NAMES or source.word(i) == "" and source.word(i - 1) == "extern":
            i += 1
        elif source.word(i) == "requires":
            i = source.match[i + 1] + 1 if i + 1 in source.match else i + 1
        else:
            return i
    return i


def _end_of_statement(source, begin, name, end):
    """Returns the index of the `;`, or of the `}` of a function's body, that ends the statement."""
    for i in source.top(begin, end):
        if source.is_sign(i, ";"):
            return i
        if source.is_sign(i, "{") and i in source.match and source.word(name) not in TYPES | {"concept"} and \
                source.kind_of_block(begin, i) != "initializer":
            return source.match[i]
    return end


def _statement(source, begin, name, end, namespace):
    word = source.word(name)
    if begin == end or word in ("static_assert", "friend") or not word and not source.is_sign(name, "::"):
        return None
    if word == "using":
        return _using(source, name, end, namespace)
    if word in TYPES:
        return _type(source, name, end, namespace)
    if word in HOLDERS:
        return Declaration(namespace, "type", source.word(name + 2), source.tokens[name + 2].begin)
    at = _name_of_value(source, name, end)
    if at is None or source.is_sign(at - 1, "::"):
        return None
    return Declaration(namespace, "value", source.tokens[at].text, source.tokens[at].begin)


def _using(source, begin, end, namespace):
    first = source.tokens[begin + 1]
    if first.text == "namespace":
        return Declaration(namespace, "directive", source.text_of(begin + 2, end), source.tokens[begin + 2].begin)
    if any(source.is_sign(i, "=") for i in source.top(begin, end)):
        return Declaration(namespace, "alias", first.text, first.begin)
    return Declaration(namespace, "using", source.text_of(begin + 1, end), first.begin)


def _type(source, begin, end, namespace):
    """Returns the type's Declaration; null for a specialization and a class within another one."""
    stop = next((i for i in source.top(begin, end) if source.is_sign(i, "{", ":", "=") or source.word(i) == "final"), end)
    if any(source.is_sign(i, "(") and source.word(i - 1) != "alignas" and not source.word(i - 1).isupper() for i in range(begin, stop)):
        at = _name_of_value(source, begin, end)  # struct Options options();
        return Declaration(namespace, "value", source.tokens[at].text, source.tokens[at].begin)
    last = stop - 1
    if not source.word(last) or source.word(last) in TYPES or source.is_sign(last - 1, "::"):
        return None
    is_forward = not any(source.is_sign(i, "{") for i in source.top(begin, end))
    return Declaration(namespace, "type", source.word(last), source.tokens[last].begin, is_forward)


def _name_of_value(source, begin, end):
    """Returns the index of the name of a function or variable."""
    for i in source.top(begin, end):
        if source.word(i) == "operator":
            return i
        if source.word(i) == "concept":
            return i + 1
        if source.is_sign(i, "=", "{") or source.is_sign(i, "[") and source.word(i - 1):
            return i - 1
        if source.is_sign(i, "(") and source.word(i - 1) and not source.word(i - 1).isupper() and \
                source.word(i - 1) not in ("alignas", "decltype", "noexcept", "requires"):
            return i - 1
    return end - 1 if source.word(end - 1) else None
