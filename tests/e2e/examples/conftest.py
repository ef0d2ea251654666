"""What trainings of train_gpt need, and one to compare with."""
import pytest

from example_runs import train_gpt


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory):
    """40 small files of made-up code, one of them twice."""
    folder = tmp_path_factory.mktemp("text")
    for i in range(40):
        body = "".join(f"int value_{i}_{j} = {i * j % 97};\nvoid set_{j}(int v) {{ value_{i}_{j} = v; }}\n" for j in range(40))
        (folder / f"file_{i:02}.h").write_text(f"#pragma once\n// file {i}\n{body}")
    (folder / "copy.h").write_text((folder / "file_07.h").read_text())
    (folder / "binary.o").write_bytes(b"\x7fELF\0\0\0")
    return folder


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory, text_folder):
    folder = tmp_path_factory.mktemp("whole")
    out = train_gpt(folder, text_folder, "--steps", 24)[1]
    return folder, out
