#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets, tests/fuzz/corpus/TARGET/*: real messages of each protocol, so that what is made
from them comes deep. Inputs that once found a fault lie beside them under names that begin with fault_; this leaves them alone.

    .venv/bin/python tests/fuzz/make_corpus.py
"""
import argparse
import base64
import collections
import gzip
import io
import json
import pathlib
import pickle
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import torch
from PIL import Image

CORPUS = pathlib.Path(__file__).parent / "corpus"


def number(value, width=8):
    return value.to_bytes(width, "little", signed=value < 0)


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return number(len(value)) + value


def texts(*values):
    return number(len(values)) + b"".join(map(text, values))


def store_requests():
    hello = b"\0" + number(0x3C85F7CE, 4) + b"\x0d" + number(4711, 4)
    value_set, get, add = b"\1" + text("/k") + text("v"), b"\3" + text("/k"), b"\4" + text("/n") + number(3)
    wait, check = b"\6" + texts("/k", "/later"), b"\5" + texts("/k", "/n")
    queue = b"\x0e" + text("/q") + text("entry") + b"\x10" + text("/q") + b"\x0f" + text("/q")
    return {
        "greeting": hello,
        "values": hello + value_set + get + add + add + b"\2" + text("/k") + text("v") + text("w") + b"\x08" + text("/k"),
        "waiting": hello + wait + b"\x0c" + wait + value_set + check + b"\1" + text("/later") + text("x"),
        "lists": hello + b"\x0b" + number(2) + text("/a") + text("1") + text("/b") + text("22") + b"\x0a" + texts("/a", "/b")
        + b"\7" + b"\x11",
        "queue": hello + queue + b"\6" + texts("/q") + b"\x0e" + text("/q") + text(""),
        "append": hello + (b"\x09" + text("/k") + text("more")) * 3 + b"\4" + text("/k") + number(-1),
        "barrier": hello + (b"\x12" + text("/bar") + number(3)) * 3 + b"\x12" + text("/bar") + number(1),
        "token": hello + b"\x40" + b"\x41" + text(bytes(range(64))),
        "unknown": hello + b"\x13" + text("/k"),
        "too_long": hello + b"\1" + text("/k") + number((8 << 20) + 1),
    }


def store_answers():
    return {
        "values": b"gcm\n" + b"\0" + text("value") + text("desired") + b"\0" + text("1") + text("22") + text(""),
        "numbers": b"ankdq\n" + number(4) + number(2) + b"\0" + number(1) + number(5),
        "keys": b"l\n" + texts("/a", "/long/key", "without slash"),
        "queue": b"pp\n" + number(1) + text("entry") + number(0),
        "waiting": b"wb\n\0\0",
        "endless": b"g\n\0" + number(256 << 20) + b"x",
        "many": b"l\n" + number(1 << 62) + text("/a"),
    }


def http():
    return {
        "get": b"QGET /health HTTP/1.1\r\nHost: node:8080\r\nUser-Agent: kube-probe/1.29\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        "query": b"QGET /handler/dump?json=true&rank=%31+2&x HTTP/1.1\r\nHost: a\r\n\r\n",
        # Long enough to lie in memory of their own, so that a byte beyond the end is seen.
        "open_escapes": b"QGET /x?" + b"k" * 40 + b"%&" + b"v" * 40 + b"%4&name=" + b"w" * 40 + b"% HTTP/1.1\r\nHost: a\r\n\r\n",
        "post": b"QPOST /handler/ping HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nhello",
        "head": b"QHEAD / HTTP/1.0\r\n\r\n",
        "request_chunks": b"QPOST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "answer": b"AHTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: application/json\r\n"
        b"Date: Sun, 22 Nov 2026 14:00:00 GMT\r\nContent-Length: 13\r\n\r\n{\"count\":\"1\"}",
        "answer_chunks": b"AHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\n{\"a\"\r\nA\r\n:1,\"b\":22}\r\n0\r\nX: y\r\n\r\n",
        "answer_close": b"AHTTP/1.0 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbusy",
        "answer_endless": b"AHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;" + b"a=b;" * 20,
        "answer_empty": b"AHTTP/1.1 204 No Content\r\n\r\n",
    }


def etcd():
    def line(answer, status=200):
        return f"{status} {json.dumps(answer, separators=(',', ':'))}\n".encode()

    def b64(value):
        return base64.b64encode(value.encode()).decode()

    header = {"revision": "12"}

    def range_of(*pairs):
        return {"header": header, "kvs": [{"key": b64(key), "create_revision": "9", "mod_revision": "12", "version": "1",
                                           "value": b64(value), "lease": "7587862094455"} for key, value in pairs],
                "count": str(len(pairs))}

    granted = line({"header": header, "ID": "7587862094455", "TTL": "60"})
    done = line({"header": header, "succeeded": True, "responses": [{"response_put": {"header": header}}]})
    lease = line(range_of(("cohort/job/lease", "7587862094455")))
    alive = line({"result": {"header": header, "ID": "7587862094455", "TTL": "60"}})
    first = line({"header": header}) + granted + done + lease + alive
    keys = range_of(("cohort/job/values/a", "1"), ("cohort/job/values/bb", "22"))
    found = {"header": header, "succeeded": True, "responses": [{"response_range": keys}, {"response_range": range_of()}] * 2}
    lost = {"error": "etcdserver: requested lease not found", "code": 5, "message": "etcdserver: requested lease not found"}
    return {
        "first": b"s\n" + first + done,
        "list": b"ln\n" + lease + alive + line(keys) + line(keys),
        "get": b"gkm\n" + lease + alive + line(found) * 6,
        "update": b"ac\n" + lease + alive + line(range_of(("cohort/job/values/key", "41"))) + done + line(range_of()) + done,
        "race": b"+\n" + lease + alive + (line(range_of(("cohort/job/values/key", "x"))) + line(
            {"header": header, "responses": [{"response_range": range_of(("cohort/job/changes/c", "1"))}]})) * 2,
        "queue": b"upq\n" + lease + alive + done + line(range_of(("cohort/job/queues/5:queue/0a", "entry"))) + done + line(range_of()),
        "lost_lease": b"s\n" + lease + alive + line(lost, 400) + lease + alive + done,
        "busy": b"s\n" + line({"error": "etcdserver: no leader", "code": 14, "message": "etcdserver: no leader"}, 503) + b"500 busy\n",
        "no_json": b"s\n404 page not found\n",
        "other_keys": b"l\n" + lease + alive + line(range_of(("", "x"), ("x", ""))),
    }


def hostlist():
    return {
        "ranges": b"node[01-03,7],gpu5", "product": b"r[1-2]n[1-2]-ib", "plain": b"node-a,node-b.example",
        "counts": b"2(x3),1", "backwards": b"n[3-1]", "open": b"n[1-3",
        "many_ranges": b"n[" + b",".join([b"0-20000"] * 4) + b"]", "most_ranges": b"n[" + b",".join([b"0-65535"] * 99) + b"]",
        "long_name": b"a" * 300 + b"[0-9]",
    }


def flags():
    return {
        "plain": b"a--nproc-per-node=4\n--nnodes\n1:2\n--rdzv-backend=c10d\n--rdzv-endpoint=host:29400\ntrain.py\n--lr\n3",
        "short": b"a-t3\n-r=0:1,1:3\n-m\nmodule",
        "logs": b"a--log_dir=/tmp/x\n--redirects=0:1,1:2\n--tee=3\n--local-ranks-filter=0,2\n--nproc-per-node=auto\n--no-python\n./train",
        "devices": b"a--gpus=0,1\n--virtual-local-rank\n--nproc-per-node=2\n--cpu-bind=cores\n./train",
        "failures": b"a--max-restarts=3\n--restart-backoff=0.5\n--signals-to-handle=SIGTERM,SIGINT\n--shutdown-timeout=1e3\n./train",
        "prefix": b"a--nproc=2\n--stand\n--\n./train",
        "unknown": b"a--nproc-per-nod=2\n./train",
        "help": b"a--help",
        "config": b"c# a job\nnproc_per_node = 2\nrdzv-conf = \"a=1,b=2\"\nstandalone = true\n",
        "config_lists": b"crdzv-conf = [\"a=1\", 'b']\n[run]\nt = 3\n\"quoted\" = \"\\u00e9\"\nlong = \"\"\"\nx\n\"\"\"\n",
        "slurm": b"ennodes=1:1\nSLURM_JOB_ID=12\nSLURM_STEP_ID=0\nSLURM_STEP_NUM_TASKS=4\nSLURM_PROCID=1\nSLURM_NTASKS=4\nSLURM_NODEID=0\n"
        b"SLURM_STEP_NUM_NODES=2\nSLURM_STEP_TASKS_PER_NODE=2(x2)\nSLURM_STEP_NODELIST=n[01-02]\nSLURM_GTIDS=0,1\nbackend=c10d",
        "openmpi": b"eOMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_LOCAL_SIZE=2\nPMIX_NAMESPACE=prte-1@1\n"
        b"SLURM_JOB_NODELIST=a[1-2]\nMASTER_ADDR=a1\nMASTER_PORT=12000",
        "pmi": b"ePMI_RANK=0\nPMI_SIZE=2\nMPI_LOCALRANKID=0\nMPI_LOCALNRANKS=2\nSLURM_JOB_ID=3",
        "kubernetes": b"eJOB_COMPLETION_INDEX=1\nnnodes=2\nMASTER_ADDR=job-0.svc\nbackend=c10d",
        "rdzv": b"r1:4\nc10d\n[::1]:29400\njoin_timeout=5,last_call_timeout=0.5,keep_alive_max_attempt=3,is_host=true,ip_family=6\njob",
        "rdzv_etcd": b"r2\netcd-v2\nhttps://etcd.example:2379/\n'protocol=https,cacert=/ca.pem,cert=\"/c.pem\",key=/k.pem,timeout=9'\njob",
        "rdzv_static": b"r2\nstatic\nhost\nrank=0,store_type=file,bind=0.0.0.0,token_file=/t,unknown=1\nnone",
    }


def safetensors():
    def header(data, entries, metadata=None):
        table = {"__metadata__": metadata} if metadata else {}
        for name, dtype, shape, begin, end in entries:
            table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        return struct.pack("<Q", data) + json.dumps(table, separators=(",", ":")).encode()

    return {
        "empty": header(0, []),
        "two": header(32, [("a", "F32", [2, 3], 8, 32), ("b", "I64", [], 0, 8)], {"format": "pt", "step": "7"}) + b"   ",
        "dtypes": header(30, [("h", "BF16", [2], 0, 4), ("u", "U8", [3], 4, 7), ("z", "C64", [1, 2], 7, 23), ("q", "F8_E4M3", [7], 23, 30)]),
        "nothing": header(0, [("none", "F64", [0, 5], 0, 0), ("more", "BOOL", [4, 0], 0, 0)]),
        "escapes": struct.pack("<Q", 1) + b'{ "\\u00e9\\n\\ud83d\\ude00" : {"shape":[1],"dtype":"I8","data_offsets":[0,1]} }',
        "twice": struct.pack("<Q", 1) + b'{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"a":{}}',
        "nested": struct.pack("<Q", 1) + b'{"a":{"dtype":"I8","shape":[[[1]]],"data_offsets":[0,1]}}',
        "overflow": header(8, [("a", "F32", [1 << 62, 4], 0, 0)]),
    }


def manifests():
    def manifest(files, metadata=None, **more):
        content = {"format": "cohort checkpoint", "version": 1, "step": 1200, "saved_at": 1700000000, "num_ranks": 2, **more,
                   "metadata": metadata or {}, "files": [dict(zip(["name", "size", "crc32"], file)) for file in files]}
        compact = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
        return json.dumps(content | {"crc32": zlib.crc32(compact)}, indent=1, ensure_ascii=False).encode()

    return {
        "empty": manifest([]), "two": manifest([("a", 3, 891568578), ("more/b", 0, 0)], {"run": "é \"x\""}, metric=0.25),
        "up": manifest([("../a", 3, 1)]), "absolute": manifest([("/etc/passwd", 3, 1)]), "twice": manifest([("a", 3, 1), ("a", 3, 1)]),
        "large": manifest([("a", 1 << 64, 1)]), "negative": manifest([("a", -1, 1)]), "nested": manifest([], {"a": [[[[1]]]]}),
        "future": manifest([]).replace(b'"version": 1', b'"version": 2'),
    }


def checkpoint_indices():
    """As ours, after a byte that says whether the checksum is made right, and as Hugging Face's libraries write them."""
    own = {"version": 1, "files": {"a.safetensors": {"bytes": 100, "header_crc32": 7}},
           "pieces": {"w": [{"crc32": 5, "region": [[[0, 2]], [[0, 1], [2, 4]]]}, {"crc32": 6, "region": []}]},
           "values": {"step": 3, "lr": 0.1, "betas": {"tuple": [0.9, {"float": "inf"}]}, "x": {"dict": [[1, {"bytes": "00ff"}]]},
                      "z": {"complex": [0.5, -2.0]}, "none": None}, "metadata": {"note": "x"}, "crc32": 1}
    index = {"metadata": {"total_size": 24, "cohort": own}, "weight_map": {"w": "a.safetensors"}}
    others = {"metadata": {"total_size": 1e3}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "../b"}}
    return {"ours": b"\1" + json.dumps(index).encode(), "damaged": b"\0" + json.dumps(index).encode(),
            "others": b"\0" + json.dumps(others).encode(), "empty": b'\0{"weight_map":{}}',
            "future": b"\1" + json.dumps({**index, "metadata": {"cohort": {**own, "version": 9}}}).encode()}


def dcp_metadata():
    import tempfile

    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import metadata as md
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    with tempfile.TemporaryDirectory() as folder:
        dcp.save({"w": torch.ones(2, 3), "step": 3, "l": [torch.ones(1)]}, checkpoint_id=folder + "/x", no_dist=True)
        whole = pathlib.Path(folder + "/x/.metadata").read_bytes()
    chunks = [md.ChunkStorageMetadata(torch.Size([i, 0]), torch.Size([1, 3])) for i in range(2)]
    tensor = md.TensorStorageMetadata(md.TensorProperties(torch.bfloat16), torch.Size([2, 3]), chunks)
    places = {md.MetadataIndex("w", [i, 0], i): _StorageInfo(f"__{i}_0.distcp", 10 * i, 9) for i in range(2)}
    return {"whole": whole, "chunks": pickle.dumps(md.Metadata({"w": tensor}, {"w": ("w",)}, places, None, "1.0.0")),
            "old": pickle.dumps(md.Metadata({"w": tensor}, None, places), 2), "none": pickle.dumps(md.Metadata({})),
            "away": pickle.dumps(md.Metadata({"v": md.BytesStorageMetadata()}, None, {md.MetadataIndex("v"): _StorageInfo("../v", 0, 9)})),
            "system": b"cos\nsystem\n(S'true'\ntR."}


def pickles():
    plain = {"a": [1, -2, 300, 70000, 2**40], "b": (1.5, None, True), "c": b"x\xff", "d": "\u00e9", "e": complex(1, -2)}
    found = {f"plain_{protocol}": pickle.dumps(plain, protocol) for protocol in range(6)}
    shared = [1, 2]
    ordered = collections.OrderedDict([("w", 1), ("v", [])])
    found |= {
        "shared": pickle.dumps([shared, shared, (shared, {})], 4),
        "nested": pickle.dumps([[[[[()]]]]], 2),
        "ordered": pickle.dumps(ordered, 2),
        "bytearray": pickle.dumps(bytearray(b"abc"), 5),
        "keys": pickle.dumps({1: 2, "x": 3, 0.5: 4, True: 5}, 4),
        "set": pickle.dumps({1, 2}, 4),
        "object": pickle.dumps(pathlib.PurePosixPath("x"), 4),
        "tensor": pickle.dumps(torch.arange(6.0).view(2, 3), 4),
        "tensor_2": pickle.dumps({"t": torch.ones(2, dtype=torch.int64), "h": torch.zeros(1, dtype=torch.bfloat16)}, 2),
        "parameter": pickle.dumps(torch.nn.Parameter(torch.ones(2)), 4),
        "nan_keys": b"\x80\x04}(" + (b"G" + struct.pack(">d", float("nan")) + b"N") * 40 + b"u.",
    }
    return found


def cifar_records():
    def record(*labels):
        return bytes(labels) + bytes(range(256)) * 12

    return {"one": b"\0" + record(3), "two": b"\0" + record(9) + record(0), "fine": b"\1" + record(7, 9) + record(0, 3),
            "large_label": b"\0" + record(10), "cut": b"\0" + record(1)[:-5], "names": b"\0cat\ndog\r\n\nship\n"}


def unpack():
    def tar(*members):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, kind, content in members:
                info = tarfile.TarInfo(name)
                info.type, info.size = kind, len(content)
                if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                    info.linkname, info.size, content = content.decode(), 0, b""
                archive.addfile(info, io.BytesIO(content))
        return gzip.compress(out.getvalue(), mtime=0)

    files = [("set/", tarfile.DIRTYPE, b""), ("set/one", tarfile.REGTYPE, b"1st"), ("set/two", tarfile.REGTYPE, b"2" * 600)]
    return {
        "gz": b"g" + gzip.compress(b"digits" * 50, mtime=0), "gz_empty": b"g" + gzip.compress(b"", mtime=0),
        "gz_twice": b"g" + gzip.compress(gzip.compress(b"digits", mtime=0), mtime=0),
        "bomb": b"g" + gzip.compress(bytes(4 << 20), mtime=0),
        "tar": b"t" + tar(*files), "up": b"t" + tar(("set/../../up", tarfile.REGTYPE, b"x")),
        "absolute": b"t" + tar(("/etc/x", tarfile.REGTYPE, b"x")), "link": b"t" + tar(("l", tarfile.SYMTYPE, b"/etc")),
        "hard": b"t" + tar(files[1], ("h", tarfile.LNKTYPE, b"set/one")), "pipe": b"t" + tar(("p", tarfile.FIFOTYPE, b"")),
    }


def cifar_pickles():
    data = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
    batch = {"labels": [3, 9], "data": data}
    found = {f"batch_{protocol}": pickle.dumps(batch, protocol) for protocol in range(2, 6)}

    def string(value):
        return (b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<I", len(value))) + value

    # As Python 2 and NumPy wrote it in 2009.
    python2 = (b"\x80\x02}q\x01(" + string(b"labels") + b"](K\x03K\x09e" + string(b"data")
               + b"cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\0\x85" + string(b"b") + b"\x87Rq\x04(K\x01K\x02M\0\x0c\x86"
               + b"cnumpy\ndtype\n" + string(b"u1") + b"K\0K\x01\x87R(K\x03" + string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"
               + string(data.tobytes()) + b"tbu.")
    return found | {
        "python2": python2, "names": pickle.dumps({"label_names": ["cat", "dog"]}, 2),
        "fortran": pickle.dumps(dict(batch, data=np.asfortranarray(data)), 5), "int16": pickle.dumps(dict(batch, data=data.astype(np.int16)), 4),
        "scalar": pickle.dumps(dict(batch, data=np.float64(1)), 4), "large_label": pickle.dumps(dict(batch, labels=[3, 10]), 4),
        "object": pickle.dumps(pathlib.PurePosixPath("x"), 4), "strings": b"(S'labels'\nS\"x\"\nd.",
    }


def pattern(mode, width=17, height=11):
    channels = len(Image.new(mode, (1, 1)).getbands())
    return Image.frombytes(mode, (width, height), bytes(i * 7 % 256 for i in range(width * height * channels)))


def image_file(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


# The first byte of these chooses mode and layout.
def jpegs():
    colors, exif = pattern("RGB"), Image.Exif()
    exif[0x0112] = 6
    baseline = image_file(colors, "JPEG", subsampling=2)
    size_at = baseline.index(b"\xff\xc0") + 5
    return {
        "colors": b"\x03" + baseline,
        "interleaved": b"\x23" + image_file(colors, "JPEG", subsampling=0),
        "small": b"\x43" + image_file(pattern("RGB", 64, 48), "JPEG", subsampling=1, quality=20),
        "gray": b"\x01" + image_file(pattern("L"), "JPEG"),
        "cmyk": b"\x00" + image_file(pattern("CMYK"), "JPEG"),
        "progressive": b"\x03" + image_file(colors, "JPEG", progressive=True),
        "restarts": b"\x03" + image_file(colors, "JPEG", restart_marker_blocks=1),
        "turned": b"\x83" + image_file(colors, "JPEG", exif=exif),
        "huge": b"\x03" + baseline[:size_at] + b"\x02\x00\x02\x00" + baseline[size_at + 4:],
        "cut": b"\x03" + baseline[:-30],
    }


def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, depth, color, rows, *chunks, interlaced=0):
    return (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced))
            + b"".join(png_chunk(*chunk) for chunk in chunks) + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b""))


def pngs():
    exif = Image.Exif()
    exif[0x0112] = 8
    gray16 = b"".join(b"\0" + struct.pack(">5H", *range(y * 999, y * 999 + 5)) for y in range(4))
    # A 5 x 4 image in passes of 1, 1, 0, 2 (of 2 rows), 1 and 2 rows.
    passes = b"\0a" + b"\0b" + b"\0cd" + b"\0efg" + b"\0hi\0jk" + b"\0lmnop\0qrstu"
    palette = bytes(range(48))
    return {
        "rgb": b"\x03" + image_file(pattern("RGB"), "PNG"),
        "rgba": b"\x20" + image_file(pattern("RGBA"), "PNG"),
        "gray": b"\x01" + image_file(pattern("L"), "PNG"),
        "gray_alpha": b"\x02" + image_file(pattern("LA"), "PNG"),
        "one_bit": b"\x03" + image_file(pattern("L").convert("1"), "PNG"),
        "turned": b"\x84" + image_file(pattern("RGB"), "PNG", exif=exif),
        "palette": b"\x04" + png(4, 2, 4, 3, b"\0\x12\x34\0\xfe\xdc", (b"PLTE", palette), (b"tRNS", bytes(range(0, 160, 10)))),
        "sixteen": b"\x00" + png(5, 4, 16, 0, gray16, (b"tRNS", b"\x03\xe8"), (b"gAMA", b"\0\0\xb1\x8f")),
        "interlaced": b"\x03" + png(5, 4, 8, 0, passes, interlaced=1),
        "texts": b"\x03" + png(1, 1, 8, 0, b"\0x", (b"tEXt", b"a\0b"), (b"zTXt", b"a\0\0" + zlib.compress(b"b" * 1000)),
                               (b"iCCP", b"p\0\0" + zlib.compress(b"profile"))),
        "huge": b"\x03" + png(400, 400, 8, 2, bytes(1201 * 400)),
    }


def idx():
    def array(code, lengths, elements):
        return bytes([0, 0, code, len(lengths)]) + b"".join(struct.pack(">I", length) for length in lengths) + elements

    images = array(8, [2, 3, 4], bytes(range(24)))
    return {
        "images": images, "labels": array(8, [5], bytes(range(5))), "doubles": array(0x0E, [1, 2], struct.pack(">2d", 0.5, -3)),
        "shorts": array(0x0B, [2], b"\x01\x02\xff\xfe"), "nothing": array(9, [0, 28], b""), "scalar": array(0x0C, [], b"1234"),
        "overflow": array(8, [2**32 - 1] * 3, b""), "many_dims": array(8, [1] * 255, b"x"),
        "packed": gzip.compress(images, 9, mtime=0), "parts": gzip.compress(images[:9], mtime=0) + gzip.compress(images[9:], mtime=0),
        "bomb": gzip.compress(array(8, [1 << 16, 1 << 14], bytes(100_000)), 9, mtime=0),
    }


def npy_bytes(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version, allow_pickle=True)
    return file.getvalue()


def npy():
    rows = np.arange(6).reshape(2, 3)
    found = {f"type_{name}": npy_bytes(rows.astype(name)) for name in ("bool", "int8", "uint16", "float16", "complex128")}
    return found | {
        "big": npy_bytes(rows.astype(">i4")), "fortran": npy_bytes(np.asfortranarray(rows)), "scalar": npy_bytes(np.float32(3)),
        "version_2": npy_bytes(rows, (2, 0)), "version_3": npy_bytes(rows, (3, 0)), "nothing": npy_bytes(np.zeros((0, 4))),
        "object": npy_bytes(np.array([{}, None], dtype=object)), "structured": npy_bytes(np.zeros(2, [("a", "i4"), ("b", "f8")])),
        "text": npy_bytes(np.array(["abc"])), "python_2": b"\x93NUMPY\1\0\x38\0"
        + b"{'descr': '|u1', 'fortran_order': True, 'shape': (2L,)} \nab",
    }


def npz():
    def archive(save, **arrays):
        file = io.BytesIO()
        save(file, **arrays)
        return file.getvalue()

    rows = np.arange(6).reshape(2, 3)
    return {
        "stored": archive(np.savez, a=rows, b=np.ones(3, ">f4")),
        "deflated": archive(np.savez_compressed, a=rows, zeros=np.zeros((20, 30))),
        "object": archive(np.savez_compressed, a=np.array([None, 1], dtype=object)), "nothing": archive(np.savez),
    }


def csv():
    return {
        "plain": b"\1a,b,c\n1,2.5,x\n-3,1e-3,y\n", "no_header": b"\0" b"1,2\r\n3,4", "semicolons": b"\7a;b\n'x;y';'it''s'\n",
        "quotes": b"\1\"a\",\"b \"\"c\"\"\"\n\"two\nlines\",\n", "mark": b"\1\xef\xbb\xbfx\n\n7\n\r\n8\n", "ragged": b"\1a,b\n1\n",
        "open": b"\1a\n\"x", "inside": b"\1a\n5\" disk\n", "return": b"\1a\rb\n", "numbers": b"\1n\n+1\n 2 \nnan\n1e999\n9223372036854775808\n",
    }


def tokens():
    def llm_c(magic, version, count, content):
        return struct.pack("<256i", magic, version, count, *[0] * 253) + content

    return {
        "shorts": b"\1\1\0\2\0\xff\xff", "longs": b"\2\1\0\0\0\xff\xff\1\0", "gpt2": b"\0" + llm_c(20240520, 1, 3, b"\1\0\2\0\3\0"),
        "llama3": b"\3" + llm_c(20240801, 7, 2, b"\1\0\0\0\2\0\1\0"), "half": b"\1\1\0\2", "wrong_count": b"\0" + llm_c(20240520, 1, 4, b""),
        "short_header": b"\0" + struct.pack("<3i", 20240520, 1, 0),
    }


def torch_files(is_zip):
    """Small values as files of torch.save, and for zip files the pickles in them, with storages of 64 bytes."""
    base = torch.arange(16.0)
    values = {"views": {"a": base, "b": base.view(4, 4).t(), "c": base[2:9:3]}, "plain": [1, 2.5, None, "x", b"\xff", (True, {})],
              "state": torch.nn.Linear(3, 4, dtype=torch.float32).state_dict(), "new": torch.zeros(32, dtype=torch.uint16),
              "parameter": torch.nn.Parameter(base), "conj": torch.zeros(8, dtype=torch.complex64).conj(), "size": base.shape,
              "numpy": np.float64(1.5), "sparse": torch.eye(2).to_sparse(), "object": pathlib.PurePosixPath("x"),
              "namespace": argparse.Namespace(lr=0.1, sizes=[1, 2], at=base)}
    found = {}
    for name, value in values.items():
        out = io.BytesIO()
        torch.save(value, out, _use_new_zipfile_serialization=is_zip)
        found[name] = out.getvalue()
        if is_zip and name != "state":
            found["pickle_" + name] = zipfile.ZipFile(out).read("archive/data.pkl")
    return found


def snapshots():
    mask = (1 << 64) - 1

    def checksum(data):
        total = 0x243F6A8885A308D3 ^ len(data)
        for at in range(0, len(data), 8):
            total = ((total ^ int.from_bytes(data[at:at + 8], "little")) * 0x9E3779B97F4A7C15) & mask
            total ^= total >> 29
        return total

    def file(meta, own, total, begin, shared, state=0xC0111111):
        head = struct.pack("<q6i6Q", 7, 4, 3, 2, 2, 0, 0, len(meta), own, total, begin, shared, 99)
        check = checksum(head) ^ (checksum(meta) * 0x9E3779B97F4A7C15 & mask)
        page = struct.pack("<3Q", 0x316E656774726863, state, check) + head
        return b"f" + page.ljust(4096, b"\0") + meta.ljust(-(-len(meta) // 4096) * 4096, b"\0") + bytes(8192)
    two = b"0/0 1048576 5 2 0 0 2 1 9 100 64 0 32 7\n1/0 1048576 5 2 1 0 2 1 9 100 64 32 32 7\n"
    return {"whole": file(b"what it is", 5000, 100, 64, 36), "unfinished": file(b"what", 1, 0, 0, 0, state=0),
            "without_meta": file(b"", 0, 0, 0, 0), "list": two, "copies": two.replace(b"1/0", b"copy/1/0"),
            "half": two[:two.index(b"1/0")], "other_world": two.replace(b" 2 0 0 2", b" 3 0 0 2")}


def run_logs():
    head, rows = b"step,time,loss\n", b"1,1.5,0.5\n2,2.5,nan\n"
    line, given = b'{"step": 1, "time": 1.5, "loss": 0.5}\n', b'{"hyperparameters": {"lr": 0.1}, "time": 1}\n'
    csv, lines = b"\x05", b"\x04"  # purged from step 2 on
    return {"csv": csv + head + rows, "csv_torn": csv + head + rows + b"3,3.5,0.", "csv_short": csv + head + b"1,1.5\n",
            "csv_quoted": csv + b'step,time,"a,""b""",new\n1,1,,\n', "csv_other": csv + b"name,age\nAnn,5\n", "csv_break": csv + b'step,time,"a\nb"\n',
            "csv_carriage": csv + head.replace(b"\n", b"\r\n") + b"1,1,1\r\n", "csv_empty": csv,
            "lines": lines + given + line + line.replace(b": 1,", b": 7,"), "lines_torn": lines + line + line[:-9], "lines_empty": lines,
            "lines_text": lines + b'{"step": 1, "x": "-Infinity", "y": "NaN"}\n', "lines_large": lines + b'{"step": 99999999999999999999}\n',
            "lines_nested": lines + b'{"step": 1, "a": [[[[[1]]]]]}\n', "lines_twice": lines + b'{"step": 1, "step": 2}\n'}


def toml():
    return {"tables": b'epochs = 5 # five\r\n[ optimizer ]\nlr = 0.1\nbetas.first = 0.9\n["data set".cifar]\n\'path\' = "x"\n',
            "numbers": b"a = [1_000, 0xff, 0o17, 0b1, -1.5e3, inf, -nan,\n true, # last\n]\n",
            "texts": b'a = "\\t\\u00e9\\U0001F600"\nb = \'C:\\x\'\nc = """\na "b" \\\n  c"""\nd = \'\'\'\na\'\'\'\n',
            "twice": b"a = 1\na = 2\n", "inline": b"a = {b = 1}\n", "lists": b"[[a]]\n", "nested": b"a = [[1]]\n", "open": b'a = "b', "date": b"a = 1979-05-27\n",
            "surrogate": b'a = "\\ud800"', "mark": b"\xef\xbb\xbfa=1", "no_key": b"[=a]]\n",
            "key_letter": b"\xef\xbb\xafa = 1"}


def pipeline_csvs():
    return {"two": b"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\r\n1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\r\n",
            "idle": b"0F0,0F1,,,0B0,,0B1\n,1F0,1B0,1F1,1B1\n", "parts": b"0F0,0F1,1F0,1I0,1W0,(1F1;0B0)OVERLAP_F_B,1I1,1W1,0B1\n",
            "sharded": b"0UNSHARD,0F0,0B0,0RESHARD\r\n", "quotes": b'""\r\n"0F0", 0B0\r\n', "empty": b"\n\n", "large": b"99999999999999999999F0", "number": b"0F4294967296",
            "open": b'"0F0', "bracket": b"(0F0;0B0", "nested": b"((0F0)OVERLAP_F_B)OVERLAP_F_B", "waits": b"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1B0,1SEND_B0,1F0\n"}


def main():
    for target, inputs in {"store_requests": store_requests(), "store_answers": store_answers(), "http": http(), "etcd": etcd(),
                           "hostlist": hostlist(), "flags": flags(), "safetensors": safetensors(), "manifest": manifests(), "pickle": pickles(), "object_pickle": pickles(), "jpeg": jpegs(),
                           "png": pngs(), "cifar_records": cifar_records(), "unpack": unpack(), "cifar_pickle": cifar_pickles(),
                           "csv": csv(), "idx": idx(), "npy": npy(), "npz": npz(), "tokens": tokens(), "snapshots": snapshots(),
                           "checkpoint_index": checkpoint_indices(), "dcp_metadata": dcp_metadata(), "torch_file": torch_files(True), "legacy_pth": torch_files(False),
                           "run_logs": run_logs(), "toml": toml(), "pipeline_csv": pipeline_csvs()}.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if not old.name.startswith("fault_"):
                old.unlink()
        for name, content in inputs.items():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
