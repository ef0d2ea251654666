"""store_python_calls.py PORT: the calls of programs/store/store_calls.cpp, by PyTorch's client."""
import datetime
import os
import sys
import threading

import torch.distributed as dist


def milliseconds(number):
    return datetime.timedelta(milliseconds=number)


def text_of(value):
    if value is None:
        return "done"
    if isinstance(value, list):
        return " ".join(sorted(text_of(each) for each in value))
    return value.decode() if isinstance(value, bytes) else str(value)


def say(what, call, *arguments):
    try:
        text = text_of(call(*arguments))
    except dist.QueueEmptyError:
        text = "queue is empty"
    except dist.DistStoreError as error:
        text = str(error).replace("/", "")  # the prefix of its keys
    except dist.DistNetworkError:
        text = "refused"
    print(what, "->", text, flush=True)


def call_values(store):
    say("set", store.set, "k", "v")
    say("get", store.get, "k")
    say("add", store.add, "n", 3)
    say("add", store.add, "n", -5)
    say("get the sum", store.get, "n")
    say("compare_set nothing", store.compare_set, "c", "", "x")
    say("compare_set equal", store.compare_set, "c", "x", "y")
    say("compare_set different", store.compare_set, "c", "x", "z")
    say("compare_set expecting what is not", store.compare_set, "c2", "x", "z")
    say("check", store.check, ["k", "c2"])
    say("check", store.check, ["k", "n"])
    say("check nothing", store.check, [])
    say("num_keys", store.num_keys)
    say("delete_key", store.delete_key, "k")
    say("delete_key", store.delete_key, "k")
    say("append", store.append, "a", "b")
    say("append", store.append, "a", "c")
    say("multi_get", store.multi_get, ["a", "c"])
    say("multi_set", store.multi_set, ["p", "q"], ["1", "2"])
    say("get", store.get, "q")
    say("list_keys", store.list_keys)


def call_queues(store):
    say("queue_push", store.queue_push, "qq", "1")
    say("queue_push", store.queue_push, "qq", "2")
    say("queue_len", store.queue_len, "qq")
    say("check", store.check, ["qq"])
    say("queue_pop", store.queue_pop, "qq", True)
    say("queue_pop", store.queue_pop, "qq", False)
    say("queue_pop", store.queue_pop, "qq", False)
    say("queue_len", store.queue_len, "none")


def call_waits(store):
    say("wait", store.wait, ["z", "c"], milliseconds(100))
    say("barrier of one", store.barrier, "alone", 1, milliseconds(1000))
    say("barrier of two", store.barrier, "both", 2, milliseconds(100))
    say("the count of a barrier", store.get, "both")
    say("barrier of two", store.barrier, "both", 2, milliseconds(1000))
    other = store.clone()
    threading.Timer(0.05, lambda: other.set("later", "1")).start()
    say("wait for another client", store.wait, ["later"], milliseconds(20000))
    say("get", store.get, "later")
    say("add to a text", store.add, "a", 1)


def main(port):
    store = dist.TCPStore("127.0.0.1", port, None, False, timeout=milliseconds(20000))
    call_values(store)
    call_queues(store)
    call_waits(store)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
