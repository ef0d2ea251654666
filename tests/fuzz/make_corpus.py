#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets, tests/fuzz/corpus/TARGET/*: real messages of each protocol, so that what is made
from them comes deep. Inputs that once found a fault lie beside them under names that begin with fault_; this leaves them alone.

    .venv/bin/python tests/fuzz/make_corpus.py
"""
import base64
import collections
import gzip
import io
import json
import pathlib
import pickle
import struct

import numpy
import torch

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
    numpy.lib.format.write_array(file, array, version, allow_pickle=True)
    return file.getvalue()


def npy():
    rows = numpy.arange(6).reshape(2, 3)
    found = {f"type_{name}": npy_bytes(rows.astype(name)) for name in ("bool", "int8", "uint16", "float16", "complex128")}
    return found | {
        "big": npy_bytes(rows.astype(">i4")), "fortran": npy_bytes(numpy.asfortranarray(rows)), "scalar": npy_bytes(numpy.float32(3)),
        "version_2": npy_bytes(rows, (2, 0)), "version_3": npy_bytes(rows, (3, 0)), "nothing": npy_bytes(numpy.zeros((0, 4))),
        "object": npy_bytes(numpy.array([{}, None], dtype=object)), "structured": npy_bytes(numpy.zeros(2, [("a", "i4"), ("b", "f8")])),
        "text": npy_bytes(numpy.array(["abc"])), "python_2": b"\x93NUMPY\1\0\x38\0"
        + b"{'descr': '|u1', 'fortran_order': True, 'shape': (2L,)} \nab",
    }


def npz():
    def archive(save, **arrays):
        file = io.BytesIO()
        save(file, **arrays)
        return file.getvalue()

    rows = numpy.arange(6).reshape(2, 3)
    return {
        "stored": archive(numpy.savez, a=rows, b=numpy.ones(3, ">f4")),
        "deflated": archive(numpy.savez_compressed, a=rows, zeros=numpy.zeros((20, 30))),
        "object": archive(numpy.savez_compressed, a=numpy.array([None, 1], dtype=object)), "nothing": archive(numpy.savez),
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


def main():
    for target, inputs in {"store_requests": store_requests(), "store_answers": store_answers(), "http": http(), "etcd": etcd(),
                           "hostlist": hostlist(), "flags": flags(), "safetensors": safetensors(), "pickle": pickles(),
                           "csv": csv(), "idx": idx(), "npy": npy(), "npz": npz(), "tokens": tokens()}.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if not old.name.startswith("fault_"):
                old.unlink()
        for name, content in inputs.items():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
