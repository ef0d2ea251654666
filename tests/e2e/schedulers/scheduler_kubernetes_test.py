"""The Kubernetes file: it parses, its parts fit together, and its pods meet when they are started as a kubelet would.

A pod is a host made of a network namespace; what Kubernetes' own network gives, the names of pods, is in its /etc/hosts.
"""
import json
import os
import shutil
import subprocess
import sys

import pytest

import namespaces
from harness import BUILD, SOURCE

FILE = SOURCE / "examples" / "schedulers" / "kubernetes.yaml"
PARSE = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)"


def skip(reason):
    print(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def resources():
    """The file's documents by kind. PyYAML is the system's: .venv has none."""
    for python in ("/usr/bin/python3", "python3", sys.executable):
        if shutil.which(python) and subprocess.run([python, "-c", "import yaml"], capture_output=True).returncode == 0:
            parsed = subprocess.run([python, "-c", PARSE, FILE], capture_output=True, text=True, check=True)
            return {resource["kind"]: resource for resource in json.loads(parsed.stdout)}
    skip("PyYAML is not installed (apt-get install python3-yaml)")


def test_the_parts_of_the_file_fit_together(resources):
    service, job = resources["Service"], resources["Job"]
    pod = job["spec"]["template"]["spec"]
    env = {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}
    assert job["spec"]["completionMode"] == "Indexed"
    assert str(job["spec"]["completions"]) == str(job["spec"]["parallelism"]) == env["PET_NNODES"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert env["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert all(isinstance(value, str) for value in env.values())
    assert str(pod["containers"][0]["livenessProbe"]["httpGet"]["port"]) == env["TORCHELASTIC_HEALTH_CHECK_PORT"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {volume["name"]: "/dev/shm" for volume in pod["volumes"]}


@pytest.fixture
def cluster(tmp_path):
    with namespaces.cluster(tmp_path) as cluster:
        yield cluster


def test_its_pods_meet(resources, cluster):
    container = resources["Job"]["spec"]["template"]["spec"]["containers"][0]
    name = resources["Job"]["metadata"]["name"]
    subdomain = resources["Service"]["metadata"]["name"]
    command = [word.replace("build/bin", str(BUILD / "bin")) for word in container["command"]]
    pods = []
    try:
        for index, host in enumerate(cluster.hosts):
            host.name = f"{name}-{index}"
            host.set_hosts(*(f"10.77.0.{other + 1} {name}-{other}.{subdomain} {name}-{other}" for other in range(2)))
            env = {"PATH": f"{BUILD}/bin:{os.environ['PATH']}", "HOSTNAME": host.name, "JOB_COMPLETION_INDEX": str(index),
                   "OMP_NUM_THREADS": "1", **{entry["name"]: entry["value"] for entry in container["env"]}}
            pods.append(subprocess.Popen(host.command(command), env=env, text=True, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        ended = [pod.communicate(timeout=300) for pod in pods]
    finally:
        for pod in pods:
            if pod.poll() is None:
                pod.kill()
                pod.communicate()
    assert [pod.returncode for pod in pods] == [0, 0], ended
    assert sorted("".join(out for out, _ in ended).splitlines()) == [f"rank {rank} of 4: the sum is 10" for rank in range(4)]
