#!/usr/bin/env python3
"""docs/environment_variables.md has every environment variable that the code names, and only base/env.cpp reads them."""
import pathlib
import re
import sys

from sources import ROOT, files, report

# A call, an entry of a worker's environment, or the constant for one: `kAgentVariable = "COHORT_AGENT"`.
CALL = re.compile(r'(?:\b(?:get_env|env_int|env_bool|required_env_int|set_env)\s*\(\s*|variables(?:\.emplace\(|\[)|\bk\w*Variable\s*=\s*)'
                  r'"([A-Z][A-Z0-9_]+)"')
RAW = re.compile(r"\b(?:std::)?(?:secure_)?getenv\s*\(")


def main(root=ROOT):
    documented = pathlib.Path(root, "docs/environment_variables.md").read_text()
    errors, names = [], set()
    for path in files(root, "cohort/*.cpp", "cohort/*.h", "tools/cohort/*.cpp"):
        name = path.relative_to(root).as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for match in CALL.finditer(line):
                variable = match.group(1)
                names.add(variable)
                if not re.search(rf"\b{variable}\b", documented):
                    errors.append(f"{name}:{number}: {variable} is not in docs/environment_variables.md")
            if RAW.search(line) and name != "cohort/base/system/env.cpp":
                errors.append(f"{name}:{number}: read the environment through cohort/base/system/env.h")
    report("environment", errors, f"{len(names)} variables")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
