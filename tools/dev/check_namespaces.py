#!/usr/bin/env python3
"""Compares the namespaces of cohort's headers with the rule in CONTRIBUTING.md: `cohort` holds PyTorch's names, which
tools/dev/pytorch_names.txt lists, and everything else is in the namespace of its folder."""
import pathlib
import re
import sys

from cpp.declarations import declarations
from sources import ROOT, files, report

LIST = "tools/dev/pytorch_names.txt"
OLD_NAMES = "// Old names, until the next release."  # a header's last block
INNER = {"detail", "(unnamed)"}
CONSTANTS = {"cohort::base::pickle_opcode", "cohort::files::zip"}  # numbers of a format


def listed(root):
    """Returns ({name: PyTorch's name, or the listed name that it is an argument of}, namespaces of PyTorch's modules, errors)."""
    names, modules, errors = {}, {}, []
    for number, line in enumerate(pathlib.Path(root, LIST).read_text().splitlines(), 1):
        match = re.fullmatch(r"(\w+(?:::)?) (?:argument of )?([\w.]+)", line)
        if match and match[1].endswith("::"):
            modules[match[1][:-2]] = match[2]
        elif match:
            names[match[1]] = match[2]
        elif line and not line.startswith("#"):
            errors.append(f'{LIST}:{number}: a line is "NAME torch.NAME", "NAME argument of OTHER" or "NAME:: torch.MODULE"')
    errors += [f"{LIST}:1: {name} is an argument of {other}, which is not listed" for name, other in names.items()
               if not other.startswith("torch.") and other not in names]
    return names, modules, errors


def own_namespaces(header):
    """Returns the namespaces below cohort that a header's folder allows: that of its layer, and in parallel/ also of its subfolder."""
    folders = [folder for folder in pathlib.Path(header).parts[1:-1] if folder != "extras"]
    return folders[:2] if folders[:1] == ["parallel"] else folders[:1]


def error_of(found, header, names, modules):
    """Returns what is wrong with a Declaration, or ""."""
    parts = found.namespace.split("::")
    if found.kind in ("namespace", "alias") and not found.namespace or found.is_forward and found.namespace != "cohort":
        return ""
    if parts[0] != "cohort":
        return f"{found.name} is outside namespace cohort"
    if len(parts) == 1:
        if found.kind == "namespace" or found.name == "operator" or found.is_deprecated or found.name.removesuffix("Impl") in names:
            return ""
        allowed = own_namespaces(header)
        return f"{found.name} is in namespace cohort, but {LIST} does not list it: " + (
            "move it into cohort::" + " or cohort::".join(allowed) if allowed else "list it")
    if parts[1] not in own_namespaces(header) and parts[1] not in modules:
        return f"{found.name} is in {found.namespace}, but its folder's namespace is cohort::" + \
            " or cohort::".join(own_namespaces(header))
    is_deep = parts[1] not in modules and set(parts[2:]) - INNER and "::".join(parts[:3]) not in CONSTANTS
    return f"{found.name} is in {found.namespace}, which is more than one level below cohort" if is_deep else ""


def header_errors(header, text, names, modules):
    """Returns (errors, names that the header declares in namespace cohort)."""
    found = declarations(text.split(OLD_NAMES)[0])
    errors = []
    for each in found:
        error = each.kind != "namespace" and error_of(each, header, names, modules)
        if error:
            errors.append(f"{header}:{text.count(chr(10), 0, each.begin) + 1}: {error}")
    return errors, {each.name.removesuffix("Impl") for each in found if each.namespace == "cohort"}


def main(root=ROOT):
    names, modules, errors = listed(root)
    headers = [path for path in files(root, "cohort/*.h") if "forward_declarations" not in path.parts]
    declared = set()
    for path in headers:
        more, in_cohort = header_errors(path.relative_to(root).as_posix(), path.read_text(), names, modules)
        errors += more
        declared |= in_cohort
    errors += [f"{LIST}:1: no header declares {name} in namespace cohort; remove its line" for name in sorted(set(names) - declared)]
    report("namespaces", errors, f"{len(headers)} headers, {len(names)} names of PyTorch")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
