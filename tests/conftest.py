"""For all tests: signals as a terminal gives them, what is chosen, and in which order. Whoever runs the suite in the background of a
script, or under nohup, hands down SIGINT, SIGQUIT or SIGHUP ignored, and every process of every test would ignore them, too."""
import collections
import json
import os
import pathlib
import signal
import sys
import zlib

TIMINGS = pathlib.Path(__file__).with_name("timings.json")

for number in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--part", metavar="K/N", help="every Nth file, from the Kth on")
    parser.addoption("--live", action="store_true", default=os.environ.get("COHORT_TEST_LIVE") == "1",
                     help="Python computes what goldens have, and both must be alike (tests/e2e/golden.py); as COHORT_TEST_LIVE=1")
    parser.addoption("--write-goldens", action="store_true", help="writes goldens anew (tools/dev/write_goldens.py)")


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: nothing else may run on the machine at the same time (see tools/dev/run_tests.sh)")
    config.addinivalue_line("markers", "golden: compares with a golden; every test that uses the fixture has the mark")
    config.addinivalue_line("markers", "tier_all: not in `make test`, but in `make test-all` and `make release-check`")
    config.addinivalue_line("markers", "tier_all_where(name=[values]): so where a parameter has one of these values")


def belongs_to_tier_all(item):
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return any(parameters[name] in values for mark in item.iter_markers("tier_all_where") for name, values in mark.kwargs.items())


def pytest_collection_modifyitems(config, items):
    """The files that take longest begin: they would leave a core idle at the end. Those of --part stay."""
    for item in items:
        if belongs_to_tier_all(item):
            item.add_marker("tier_all")
        if "golden" in item.fixturenames:
            item.add_marker("golden")
    seconds = collections.Counter(json.loads(TIMINGS.read_text())["pytest"])
    path_of = {item: item.nodeid.split("::")[0] for item in items}
    if part := config.getoption("--part"):
        which, parts = map(int, part.split("/"))
        is_chosen = {path: zlib.crc32(path.encode()) % parts == which - 1 for path in path_of.values()}
        config.hook.pytest_deselected(items=[item for item in items if not is_chosen[path_of[item]]])
        items[:] = [item for item in items if is_chosen[path_of[item]]]
    items.sort(key=lambda item: (-seconds[path_of[item]], path_of[item]))


def pytest_runtest_logreport(report):
    """Names a failure when it happens: a run that is cut off before its summary tells it, too."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        why = str(report.longrepr).strip().splitlines()[-1:]
        print(f"\nfailed: {report.nodeid} ({report.when}): {' '.join(why)[:300]}", file=sys.__stdout__, flush=True)
