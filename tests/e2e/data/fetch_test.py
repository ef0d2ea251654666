"""Sets are fetched from a server that does as it likes."""
import contextlib
import gzip
import hashlib
import http.server
import io
import os
import signal
import subprocess
import tarfile
import threading
import time

import pytest

from harness import BUILD

pytestmark = pytest.mark.tier_all  # training does not need files of data sets

TOOL = BUILD / "bin" / "cohort-data"
CONTENT = b"".join(b"line %d of a text\n" % i for i in range(3000))


def md5(data):
    return hashlib.md5(data).hexdigest()


def tar_gz(members):
    """Members: name -> bytes, or a TarInfo that stands for itself."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = b"" if content is info else content
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Server(http.server.ThreadingHTTPServer):
    """Answers by `answer(request)`, and notes what was asked for: (path, Range)."""
    daemon_threads = True

    def __init__(self):
        self.asked = []
        self.content = CONTENT
        self.answer = Server.whole
        self.released = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, path="/file"):
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    @staticmethod
    def send(request, status, body, announced=None, headers=()):
        request.send_response(status)
        request.send_header("Content-Length", str(len(body) if announced is None else announced))
        for name, value in headers:
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)
        request.wfile.flush()

    @staticmethod
    def whole(request):
        Server.send(request, 200, request.server.content)

    @staticmethod
    def ranges(request):
        content = request.server.content
        asked = request.headers.get("Range")
        if not asked:
            return Server.send(request, 200, content)
        begin = int(asked.removeprefix("bytes=").removesuffix("-"))
        if begin >= len(content):
            return Server.send(request, 416, b"")
        Server.send(request, 206, content[begin:],
                    headers=[("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")])

    @staticmethod
    def half(request):
        Server.send(request, 200, request.server.content[:len(request.server.content) // 2], len(request.server.content))

    @staticmethod
    def half_and_wait(request):
        Server.half(request)
        request.server.released.wait(60)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Range")))
        with contextlib.suppress(ConnectionError):
            self.server.answer(self)
        self.close_connection = True

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def environment(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def start(server, programs, tmp_path, environment):
    def run(digest=None, form="plain", target="set/file", limits=(), path="/file"):
        command = [programs / "fetch_set", server.url(path), digest or md5(server.content), form, target, tmp_path, *limits]
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return run


@pytest.fixture
def fetch(start, tmp_path):
    """(exit code, output, the reason in its error)."""

    def run(*arguments, **keywords):
        out, err = (process := start(*arguments, **keywords)).communicate(timeout=300)
        if process.returncode == 0:
            return 0, out, err
        lines = err.splitlines()
        assert lines[0] == f'cannot fetch testset into "{tmp_path}"'
        assert lines[2:] == [
            "  hint: without a network here, run this elsewhere and copy the folder: cohort-data fetch testset --root DIR",
            f"  hint: for a small synthetic dataset in the same format, run: cohort-data make mnist --root {tmp_path}"]
        return process.returncode, out, lines[1].removeprefix("  caused by: ")

    return run


def names_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def mode(path):
    return os.stat(path).st_mode & 0o777


def test_plain_file(server, fetch, tmp_path):
    assert fetch() == (0, "1\n", "")
    assert (tmp_path / "set/file").read_bytes() == CONTENT
    assert mode(tmp_path / "set/file") == 0o600
    assert names_in(tmp_path) == ["set/file"]
    assert fetch() == (0, "0\n", "")
    assert server.asked == [("/file", None)]


def test_sha256(fetch):
    assert fetch(hashlib.sha256(CONTENT).hexdigest()) == (0, "1\n", "")


def test_gzip(server, fetch, tmp_path):
    server.content = gzip.compress(CONTENT)
    assert fetch(form="gz")[0] == 0
    assert (tmp_path / "set/file").read_bytes() == CONTENT
    assert names_in(tmp_path) == ["set/file"]


def test_folder_in_an_archive(server, fetch, tmp_path):
    server.content = tar_gz({"batches/one": b"1st", "batches/two": CONTENT})
    assert fetch(form="tar.gz", target="batches") == (0, "1\n", "")
    assert names_in(tmp_path) == ["batches/one", "batches/two"]
    assert (tmp_path / "batches/two").read_bytes() == CONTENT
    assert (mode(tmp_path / "batches"), mode(tmp_path / "batches/two")) == (0o700, 0o600)


def test_wrong_digest(server, fetch, tmp_path):
    code, _, reason = fetch(md5(b"other"))
    assert (code, reason) == (1, f"{server.url()} is not the file that was published: its MD5 is {md5(CONTENT)}, not "
                              f"{md5(b'other')}; the download was deleted")
    assert names_in(tmp_path) == []


def test_not_found(server, fetch, tmp_path):
    server.answer = lambda request: Server.send(request, 404, b"no such file")
    assert fetch()[::2] == (1, f"cannot download {server.url()}: the server answered 404")
    assert names_in(tmp_path) == []


def test_redirects(server, fetch, tmp_path):
    def answer(request):
        if request.path == "/moved":
            return Server.whole(request)
        Server.send(request, 302, b"", headers=[("Location", "/moved" if request.path == "/file" else request.path)])

    server.answer = answer
    assert fetch()[0] == 0
    assert fetch(path="/loop", target="set/other")[::2] == (
        1, f"cannot download {server.url('/loop')}: it redirects more than 5 times")
    server.answer = lambda request: Server.send(request, 302, b"", headers=[("Location", "file:///etc/hostname")])
    code, _, reason = fetch(target="set/third")
    assert code == 1 and reason.startswith(f"cannot download {server.url()}: ")
    assert names_in(tmp_path) == ["set/file"]


def test_cut_body_then_continued(server, fetch, tmp_path):
    server.answer = Server.half
    assert fetch()[::2] == (1, f"cannot download {server.url()}: the connection ended after {len(CONTENT) // 2} bytes, before "
                            "the end of the file")
    assert names_in(tmp_path) == ["set/.file.part"]
    assert mode(tmp_path / "set/.file.part") == 0o600
    server.answer = Server.ranges
    assert fetch()[0] == 0
    assert server.asked[-1] == ("/file", f"bytes={len(CONTENT) // 2}-")
    assert (tmp_path / "set/file").read_bytes() == CONTENT
    assert names_in(tmp_path) == ["set/file"]


def test_cut_body_and_a_server_without_ranges(server, fetch, tmp_path):
    server.answer = Server.half
    fetch()
    server.answer = Server.whole
    assert fetch()[0] == 0
    assert (tmp_path / "set/file").read_bytes() == CONTENT
    assert len(server.asked) == 2  # what was there was thrown away at once


@pytest.mark.parametrize("left", [b"other bytes", b"x" * (len(CONTENT) + 5)])
def test_what_is_left_is_of_another_file(server, fetch, tmp_path, left):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/.file.part").write_bytes(left)
    server.answer = Server.ranges
    assert fetch()[0] == 0
    assert (tmp_path / "set/file").read_bytes() == CONTENT
    assert server.asked[0] == ("/file", f"bytes={len(left)}-") and server.asked[-1] == ("/file", None)


def test_what_is_left_is_whole(server, fetch, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/.file.part").write_bytes(CONTENT)
    assert fetch()[0] == 0
    assert server.asked == []


def test_stalled_server(server, fetch, tmp_path):
    server.answer = Server.half_and_wait
    assert fetch(limits=(1 << 20, 1))[::2] == (1, f"cannot download {server.url()}: no data came for 1 s")
    assert names_in(tmp_path) == ["set/.file.part"]


@pytest.mark.parametrize("announced", [True, False])
def test_larger_than_it_may_be(server, fetch, tmp_path, announced):
    def endless(request):
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(CONTENT)

    if not announced:
        server.answer = endless
    code, _, reason = fetch(limits=(1024 * 10,))
    assert (code, reason) == (1, f"cannot download {server.url()}: it is larger than 10.0 KiB, the most that this file may have")
    assert sum((tmp_path / name).stat().st_size for name in names_in(tmp_path)) <= 1024 * 10


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("members, problem", [
    ({"batches/one": b"1", "batches/../../../evil": b"x"}, 'it holds "batches/../../../evil", which has ".." in its name'),
    ({"/tmp/evil": b"x"}, 'it holds "/tmp/evil", which is an absolute path'),
    ({"batches/link": link("batches/link", "/etc/passwd")}, 'it holds "batches/link", which is a link'),
    ({"batches/link": link("batches/link", "batches/one", tarfile.LNKTYPE)}, 'it holds "batches/link", which is a link'),
    ({"batches/large": b"0" * (2 << 20)}, "it holds more than the 1.0 MiB that it may"),
])
def test_hostile_archive(server, fetch, tmp_path, members, problem):
    server.content = tar_gz(members)
    part = tmp_path / ".file.part"
    assert fetch(form="tar.gz", target="batches")[::2] == (1, f'cannot unpack "{part}": {problem}')
    assert names_in(tmp_path) == [".file.part"]
    assert [path.name for path in tmp_path.iterdir()] == [".file.part"]


def test_archive_without_its_folder(server, fetch, tmp_path):
    server.content = tar_gz({"other/one": b"1"})
    assert fetch(form="tar.gz", target="batches")[::2] == (1, f'{server.url()} holds no folder "batches"')
    assert [path.name for path in tmp_path.iterdir()] == [".file.part"]


def test_one_of_several_processes_downloads(server, start, tmp_path):
    def slowly(request):
        time.sleep(0.3)
        Server.whole(request)

    server.answer = slowly
    processes = [start() for _ in range(4)]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, outputs
    assert sorted(out for out, _ in outputs) == ["0\n"] * 3 + ["1\n"]
    assert len(server.asked) == 1
    assert names_in(tmp_path) == ["set/file"]


def test_killed_process_locks_nobody_out(server, start, fetch, tmp_path):
    server.answer = Server.half_and_wait
    process = start()
    while not server.asked:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()
    server.answer = Server.ranges
    assert fetch()[0] == 0
    assert names_in(tmp_path) == ["set/file"]


# The tool itself, whose catalog has the digests of the real sets: what comes from here can only be refused.


def tool(*arguments, **keywords):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=300, **keywords)


def test_tool_asks_the_mirror_for_the_published_path(server, tmp_path, environment):
    done = tool("fetch", "mnist", "--root", tmp_path, "--mirror", server.url("/"))
    assert done.returncode == 1
    assert server.asked == [("/mnist/train-images-idx3-ubyte.gz", None)]
    assert f"its MD5 is {md5(CONTENT)}, not f68b3c2dcbeaaa9fbdd348bbdeb94873" in done.stderr
    assert names_in(tmp_path) == []


def test_tool_is_interrupted(server, tmp_path, environment):
    server.answer = Server.half_and_wait
    process = subprocess.Popen([TOOL, "fetch", "cifar10", "--root", tmp_path, "--mirror", server.url("")], stderr=subprocess.PIPE,
                               text=True)
    while not server.asked:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "was stopped" in err
    assert names_in(tmp_path) in ([], [".cifar-10-python.tar.gz.part"])


def test_tool_lists_and_makes(tmp_path):
    listed = tool("list").stdout
    assert "cifar100-binary" in listed and "tokens" in listed
    made = tool("make", "csv", "--root", tmp_path, "--samples", 10)
    assert (made.returncode, made.stdout) == (0, f"{tmp_path}/csv\n")
    assert len((tmp_path / "csv/train.csv").read_text().splitlines()) == 11
    again = tool("make", "csv", "--root", tmp_path)
    assert (again.returncode, again.stderr) == (
        1, f'[cohort] error: "{tmp_path}/csv" is there already\n  hint: use --force to replace it\n')
    assert tool("make", "csv", "--root", tmp_path, "--samples", 20, "--force").returncode == 0
    assert len((tmp_path / "csv/train.csv").read_text().splitlines()) == 21


def test_tool_explains_mistakes():
    hint = "\n  hint: run cohort-data --help for the commands and their flags\n"
    for words, text in {
            (): "A subcommand is required", ("mkae", "csv"): '"mkae" is not a command of cohort-data (did you mean "make"?)',
            ("make", "csv", "--sample", 3): 'unknown argument --sample (did you mean "--samples"?)'}.items():
        mistaken = tool(*words)
        assert (mistaken.returncode, mistaken.stderr) == (2, f"[cohort] error: {text}{hint}")
    assert tool("--version").stdout.startswith("cohort-data ")
    for command, flag in (("fetch", "--mirror"), ("make", "--python")):
        text = tool(command, "--help").stdout
        assert flag in text and "(default: data)" in text
