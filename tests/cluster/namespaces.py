"""Hosts made of network namespaces: each has its own interfaces, host name and /etc/hosts; a bridge joins them.

Needs root and iproute2. Everything is gone when the last process in it is, and what a killed test run leaves is swept.
"""
import contextlib
import os
import pathlib
import shutil
import subprocess

import pytest

PREFIX = "cohort-test-"
NAMES = ("node-a", "node-b")


def ip(*words, check=True):
    return subprocess.run(["ip", *map(str, words)], check=check, capture_output=True, text=True)


def sweep():
    """Removes the namespaces of test runs that have ended."""
    for line in ip("netns", "list", check=False).stdout.splitlines():
        name = line.split()[0] if line.split() else ""
        owner = name.removeprefix(PREFIX).split("-")[0]
        if name.startswith(PREFIX) and owner.isdigit() and not pathlib.Path(f"/proc/{owner}").exists():
            ip("netns", "del", name, check=False)


class Host:
    """`name` resolves to `address` and `address6` on every host, unless a test writes other lines into its hosts file."""

    def __init__(self, folder, number, name):
        self.name, self.namespace = name, f"{PREFIX}{os.getpid()}-{name}"
        self.address, self.address6 = f"10.77.0.{number}", f"fd77::{number}"
        self.hosts_file = folder / f"{name}.hosts"
        self.set_hosts()

    def set_hosts(self, *lines, own=True):
        standard = ["127.0.0.1 localhost", "::1 localhost"]
        for number, name in enumerate(NAMES, start=1):
            if own or name != self.name:
                standard += [f"10.77.0.{number} {name}"]
        self.hosts_file.write_text("\n".join([*lines, *standard]) + "\n")

    def ip(self, *words):
        return ip("-n", self.namespace, *words)

    def command(self, program):
        script = 'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"'
        return ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", script, "sh", self.name,
                str(self.hosts_file), *map(str, program)]


class Cluster:
    def __init__(self, folder):
        self.hub = f"{PREFIX}{os.getpid()}-hub"
        self.hosts = [Host(folder, number, name) for number, name in enumerate(NAMES, start=1)]

    def make(self):
        ip("netns", "add", self.hub)
        ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.hub, "link", "set", "bridge", "up")
        for number, host in enumerate(self.hosts, start=1):
            ip("netns", "add", host.namespace)
            ip("-n", self.hub, "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
            ip("-n", self.hub, "link", "set", f"port{number}", "master", "bridge", "up")
            host.ip("link", "set", "lo", "up")
            host.ip("link", "set", "eth0", "up")
            host.ip("address", "add", f"{host.address}/24", "dev", "eth0")
            host.ip("address", "add", f"{host.address6}/64", "dev", "eth0", "nodad")
            host.ip("link", "add", "eth1", "type", "bridge")  # stays down

    def remove(self):
        for namespace in [host.namespace for host in self.hosts] + [self.hub]:
            ip("netns", "del", namespace, check=False)


def why_not():
    """The reason why this machine cannot make namespaces; empty if it can."""
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    probe = f"{PREFIX}{os.getpid()}-probe"
    made = ip("netns", "add", probe, check=False)
    ip("netns", "del", probe, check=False)
    return "" if made.returncode == 0 else f"network namespaces are not permitted here: {made.stderr.strip()}"


@contextlib.contextmanager
def cluster(folder):
    """Two hosts while the block runs. On a machine that cannot make them the test is skipped."""
    if reason := why_not():
        print(reason)
        pytest.skip(reason)
    sweep()
    made = Cluster(folder)
    try:
        made.make()
        yield made
    finally:
        made.remove()
