"""For all tests: signals as a terminal gives them. Whoever runs the suite in the background of a script, or under nohup, hands down
SIGINT, SIGQUIT or SIGHUP ignored, and every process of every test would ignore them, too."""
import os
import signal
import sys

for number in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: nothing else may run on the machine at the same time (see tools/dev/run_tests.sh)")


def pytest_runtest_logreport(report):
    """Names a failure when it happens: a run that is cut off before its summary tells it, too."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        why = str(report.longrepr).strip().splitlines()[-1:]
        print(f"\nfailed: {report.nodeid} ({report.when}): {' '.join(why)[:300]}", file=sys.__stdout__, flush=True)
