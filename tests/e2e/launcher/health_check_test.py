"""The launcher's answers to liveness probes (TORCHELASTIC_HEALTH_CHECK_PORT)."""
import http.client
import json
import signal

import pytest

from harness import free_port
from jobs import wait_until


def probe(port, method="GET", path="/", host="127.0.0.1", timeout=300):
    """(status, what the body says); None where nobody answers."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if body and answer.headers["Content-Type"] == "application/json" else body
    except OSError:
        return None
    finally:
        connection.close()


def wait_for_answer(agent, port, wanted):
    seen = []

    def answered():
        seen.append(probe(port))
        return seen[-1] == (200, wanted)

    wait_until(answered, lambda: f"{wanted}, but {seen[-1]}; {agent.errors}")


def test_says_what_the_agent_does(job):
    port, script = free_port(), "echo up$TORCHELASTIC_RESTART_COUNT; exec sleep 1000"
    variables = {"TORCHELASTIC_HEALTH_CHECK_PORT": str(port)}
    first = job.node(script, "--nproc-per-node=3", "--max-restarts=2", **variables)
    wait_for_answer(first, port, {"state": "rendezvous", "round": 0, "restarts": 0, "workers": 0})
    second = job.node(script)
    wait_for_answer(first, port, {"state": "running", "round": 0, "restarts": 0, "workers": 3})
    assert probe(port, "HEAD", "/healthz") == (200, b"")
    assert probe(port, "POST") == (405, b"a health check must be a GET request\n")
    second.wait_for_output("up0")
    job_workers = second.workers()
    assert len(job_workers) == 1
    second.kill(signal.SIGTERM)  # leaves the job: the first waits for another node
    assert second.finish() == 1
    wait_for_answer(first, port, {"state": "rendezvous", "round": 0, "restarts": 0, "workers": 0})
    first.kill(signal.SIGTERM)
    assert first.finish() == 1
    job.check_nothing_left(ports=[port])


def test_an_agent_that_hangs_does_not_answer(job):
    port = free_port()
    agent = job.start_script("echo up; exec sleep 1000", TORCHELASTIC_HEALTH_CHECK_PORT=str(port))
    agent.wait_for_output("up")
    assert probe(port)[0] == 200
    agent.kill(signal.SIGSTOP)
    assert probe(port, timeout=0.5) is None
    agent.kill(signal.SIGCONT)
    wait_for_answer(agent, port, {"state": "running", "round": 0, "restarts": 0, "workers": 1})


def test_after_a_failure(job):
    port = free_port()
    script = "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3; echo up; exec sleep 1000"
    agent = job.start_script(script, "--max-restarts=1", "--restart-backoff=1000", TORCHELASTIC_HEALTH_CHECK_PORT=str(port))
    wait_for_answer(agent, port, {"state": "waiting to restart", "round": 0, "restarts": 0, "workers": 0})
    agent.kill(signal.SIGTERM)
    assert agent.finish() == 1
    agent = job.start_script(script, "--max-restarts=1", TORCHELASTIC_HEALTH_CHECK_PORT=str(port))
    agent.wait_for_output("up")
    wait_for_answer(agent, port, {"state": "running", "round": 1, "restarts": 1, "workers": 1})


def test_a_port_that_is_taken_is_a_warning(job):
    port = free_port()
    first = job.start_script("echo up; exec sleep 1000", TORCHELASTIC_HEALTH_CHECK_PORT=str(port))
    first.wait_for_output("up")
    second = job.start_script("echo done", TORCHELASTIC_HEALTH_CHECK_PORT=str(port))
    assert second.finish() == 0
    assert second.output == "done\n"
    warning = second.errors[second.errors.index("[cohort] warning: health checks"):]
    assert warning.startswith(
        f"[cohort] warning: health checks (TORCHELASTIC_HEALTH_CHECK_PORT={port}) are not answered; the job goes on\n"
        "  caused by: cannot listen on ")
    assert f":{port}: Address already in use (EADDRINUSE); it is held by process {first.pid} (" in warning


@pytest.mark.parametrize("value, why", [("http", "is not an integer"), ("0", "must be from 1 to 65535"),
                                        ("70000", "must be from 1 to 65535")])
def test_a_bad_port_is_an_error(job, value, why):
    agent = job.start_script("echo up", TORCHELASTIC_HEALTH_CHECK_PORT=value)
    assert agent.finish() == 2
    assert agent.errors.startswith(
        f'[cohort] error: cohort run: environment variable TORCHELASTIC_HEALTH_CHECK_PORT="{value}" {why}'), agent.errors
    assert agent.output == ""
