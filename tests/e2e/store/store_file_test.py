"""A file store that a process with our FileStore and one with PyTorch's share."""
import datetime
import subprocess
import time

import torch.distributed as dist

LIMIT = datetime.timedelta(seconds=300)


def test_a_file_shared_with_pytorch(programs, tmp_path):
    path = tmp_path / "store"
    store = dist.FileStore(str(path), 2)
    store.set_timeout(LIMIT)
    store.set("gone", "1")
    store.delete_key("gone")
    store.set("turn", "python")
    store.set("text", "python and ")
    peer = subprocess.Popen([programs / "store_file_peer", path], stdout=subprocess.PIPE, text=True)
    store.set("python", "hello")
    for _ in range(200):
        store.add("count", 1)
    assert store.get("cohort") == b"a\0b"
    store.barrier("end", 2, LIMIT)
    assert store.get("count") == b"400"
    assert store.get("turn") == b"cohort"
    assert store.get("text") == b"python and cohort"
    store.barrier("end of all", 2, LIMIT)
    output, _ = peer.communicate(timeout=300)
    assert output == "python says hello\nturn cohort\ngone 0\ncount 400\n"
    assert peer.returncode == 0
    # Both counted themselves: the last removes the file.
    assert path.exists()
    del store
    assert not path.exists()


def test_writers_that_are_killed_lose_nothing_else(programs, tmp_path):
    path = tmp_path / "store"
    store = dist.FileStore(str(path), -1)
    store.set_timeout(LIMIT)
    store.set("python", "hello")
    for _ in range(10):
        peer = subprocess.Popen([programs / "store_file_peer", path, "forever"], stdout=subprocess.PIPE, text=True)
        assert peer.stdout.readline() == "python says hello\n"
        before = store.add("count", 0)
        while store.add("count", 0) < before + 3:
            assert peer.poll() is None
            time.sleep(0.005)
        peer.kill()
        peer.communicate()
        counted = store.add("count", 1)
        assert store.add("count", 1) == counted + 1
