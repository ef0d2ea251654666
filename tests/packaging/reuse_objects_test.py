"""The compiler launcher of the outside project that contains Cohort: what it takes, what it compiles, what it refuses."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

LAUNCHER = pathlib.Path(__file__).resolve().with_name("reuse_objects.py")


@pytest.fixture
def compile_inside(tmp_path):
    """Compiles a.cpp with these flags in a project that contains it; by itself it was compiled with -O2 -Werror."""
    source, other, build = tmp_path / "a.cpp", tmp_path / "other", tmp_path / "user/cohort"
    other.mkdir()
    build.mkdir(parents=True)
    source.write_text("int f() { return 1; }\n")
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; echo compiled > "$2"\n')
    compiler.chmod(0o755)
    command = f"ccache {compiler} -I{other}/made -O2 -Werror -MD -MT a.o -MF a.o.d -o a.o -c {source}"
    (other / "compile_commands.json").write_text(json.dumps([{"directory": str(other), "file": str(source), "command": command}]))
    (other / "a.o").write_text("the tested object")

    def run(*flags, file=source, prepare=None):
        if prepare:
            prepare(other, source)
        words = [compiler, f"-I{build}/made", *flags, "-MD", "-MT", "x/a.o", "-MF", "x/a.o.d", "-o", "x/a.o", "-c", file]
        (build.parent / "x").mkdir()
        done = subprocess.run([sys.executable, LAUNCHER, build, other, *words], capture_output=True, text=True, cwd=build.parent)
        made = build.parent / "x/a.o"
        return done.returncode, made.read_text() if made.exists() else "", done.stderr.replace(str(tmp_path), "FOLDER")
    return run


def test_an_object_of_the_same_command_is_taken(compile_inside):
    assert compile_inside("-O2") == (0, "the tested object", "")


def test_other_flags_message(compile_inside):
    code, made, error = compile_inside("-O2", "-DNDEBUG")
    assert (code, made) == (1, "")
    assert error == ("FOLDER/a.cpp: Cohort inside another project is compiled with other flags than by itself\n"
                     "  only inside: -DNDEBUG\n  only by itself: \n")


def test_what_the_other_build_lacks_is_compiled(compile_inside, tmp_path):
    assert compile_inside("-O0", file=tmp_path / "main.cpp") == (0, "compiled\n", "")


def test_an_old_object_is_not_taken(compile_inside):
    assert compile_inside("-O2", prepare=lambda other, source: os.utime(other / "a.o", (1, 1))) == (0, "compiled\n", "")


def test_what_the_compiler_cache_needs_may_differ(compile_inside):
    assert compile_inside("-O2", "-Xclang", "-fno-pch-timestamp") == (0, "the tested object", "")
