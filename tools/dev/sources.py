"""Functions that the checks share: the project's files, and C++ text without comments and strings."""
import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def files(root, *patterns):
    """Returns the project's files below root that match one of the patterns, without those that git ignores."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode == 0:
        found = [pathlib.Path(root, line) for line in listed.stdout.splitlines()]
    else:
        found = [path for path in pathlib.Path(root).rglob("*")
                 if any(fnmatch.fnmatch(path.relative_to(root).as_posix(), pattern) for pattern in patterns)]
    return sorted(set(path for path in found if path.is_file()))


def without_comments(text):
    """Returns the text with comments and the insides of strings blanked; line numbers stay the same."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)

    def blank(match):
        found = match.group(0)
        keep = '""' if found[0] in '"R' else " "
        return keep + "\n" * found.count("\n")

    return token.sub(blank, text)


def report(name, errors, summary):
    """Prints the errors, or the summary, and ends the program with the matching status."""
    for error in errors:
        print(error, file=sys.stderr)
    print(f"{name}: {len(errors)} errors" if errors else f"{name}: {summary}, ok")
    sys.exit(1 if errors else 0)
