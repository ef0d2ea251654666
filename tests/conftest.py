"""For all tests: signals as a terminal gives them. Whoever runs the suite in the background of a script, or under nohup, hands down
SIGINT, SIGQUIT or SIGHUP ignored, and every process of every test would ignore them, too."""
import signal

for number in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: nothing else may run on the machine at the same time (see tools/dev/run_tests.sh)")
