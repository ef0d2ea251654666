"""_C.pyi says what the compiled module has: the same names, parameters, defaults and result types."""
import ast
import inspect
import re

from ranks import SOURCE

import torchcohort
from torchcohort import _C

STUB = ast.parse((SOURCE / "python/torchcohort/_C.pyi").read_text())


def stub_functions():
    return {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}


def without_modules(annotation):
    """pybind11 spells modules out, and takes more than it says: "collections.abc.Sequence[typing.SupportsInt | ...]"."""
    text = annotation.replace("typing.SupportsInt | typing.SupportsIndex", "int").replace("collections.abc.Sequence", "list")
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def parameters_of(node):
    """"name: type = default" of each."""
    defaults = [None] * (len(node.args.args) - len(node.args.defaults)) + node.args.defaults
    for argument, default in zip(node.args.args, defaults, strict=True):
        yield f"{argument.arg}: {ast.unparse(argument.annotation)}" + (f" = {ast.unparse(default)}" if default else "")


def signature_of(function):
    """("name(parameter: type = default, ...) -> type"), as pybind11 writes it at the top of the documentation."""
    return without_modules(function.__doc__.splitlines()[0])


def test_same_names():
    compiled = {name for name in dir(_C) if not name.startswith("_")}
    named = set(stub_functions()) | {node.name for node in STUB.body if isinstance(node, ast.ClassDef)}
    assert compiled == named


def test_same_signatures():
    for name, node in stub_functions().items():
        result = f" -> {ast.unparse(node.returns)}"
        arguments = ", ".join(parameters_of(node))
        assert signature_of(getattr(_C, name)) == without_modules(f"{name}({arguments}){result}")


def test_same_classes():
    for node in STUB.body:
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            compiled = getattr(_C, node.name)
            assert {each.name for each in methods} - {"__init__"} == {name for name in vars(compiled) if not name.startswith("_")}
            for each in methods:
                if not any(ast.unparse(mark) == "property" for mark in each.decorator_list):
                    text = getattr(compiled, each.name).__doc__.splitlines()[0]
                    assert [argument.arg for argument in each.args.args] == re.findall(r"(\w+): ", text), text


def test_package_exports_exist_and_are_typed():
    for name in torchcohort.__all__:
        function = getattr(torchcohort, name)
        assert callable(function) or torchcohort.__annotations__[name] is type(function)
        if inspect.isfunction(function):
            signature = inspect.signature(function)
            assert signature.return_annotation is not inspect.Signature.empty
            assert all(each.annotation is not inspect.Parameter.empty for each in signature.parameters.values())
