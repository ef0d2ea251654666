"""The steps of examples/cifar learn, and the last one goes on after it was killed."""
import os
import re
import signal
import subprocess
import time

import pytest

from harness import BUILD

EXAMPLES = BUILD / "bin" / "examples"
LAUNCH = [BUILD / "bin" / "cohort", "run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("cifar")
    subprocess.run([BUILD / "bin" / "cohort-data", "make", "cifar10", "--root", root, "--samples", "400"], check=True,
                   capture_output=True, timeout=60)
    return root


@pytest.mark.parametrize("command", [[EXAMPLES / "cifar_single"], [EXAMPLES / "cifar_data_parallel"], [*LAUNCH, EXAMPLES / "cifar_ddp"]],
                         ids=["single", "data_parallel", "ddp"])
def test_a_step_learns(data, command):
    done = subprocess.run([*command, data, "3"], capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([\d.]+)", done.stdout)]
    assert len(losses) == 3 and losses[2] < 0.8 * losses[0], done.stdout
    assert done.stdout.count("test accuracy") == 1


def test_the_trainer_goes_on_after_it_was_killed(data, tmp_path):
    command = [*LAUNCH, EXAMPLES / "cifar_trainer", data, "4", tmp_path / "run"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=True)
    deadline = time.monotonic() + 60
    try:
        while not list(tmp_path.glob("run/step-*")):
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert "goes on after step" in done.stdout
    assert float(re.search(r"test accuracy ([\d.]+)", done.stdout).group(1)) > 0.3, done.stdout
