"""Ansible's way into a machine of tests/install: its namespaces, by the number of its process 1. A host's variable
`machine_process` is that number as this side sees it."""

import subprocess

from ansible.errors import AnsibleFileNotFound
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: machine
short_description: into the namespaces of a process
description: As root, by nsenter.
options:
  machine_process:
    description: Process 1 of the machine.
    required: true
    vars:
      - name: machine_process
"""


class Connection(ConnectionBase):
    transport = "machine"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def close(self):
        self._connected = False

    def _run(self, command, data):
        namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        entered = ["nsenter", "--target", str(self.get_option("machine_process")), *namespaces, "--", "env", "-i"]
        surroundings = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/root", "DEBIAN_FRONTEND=noninteractive"]
        done = subprocess.run([*entered, *surroundings, *command], input=data, capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def exec_command(self, cmd, in_data=None, sudoable=True):
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        return self._run(["sh", "-c", cmd], in_data or b"")

    def put_file(self, in_path, out_path):
        super().put_file(in_path, out_path)
        with open(in_path, "rb") as source:
            status, _, said = self._run(["sh", "-c", 'cat >"$1"', "put", out_path], source.read())
        if status != 0:
            raise AnsibleFileNotFound(said.decode())

    def fetch_file(self, in_path, out_path):
        super().fetch_file(in_path, out_path)
        status, text, said = self._run(["cat", in_path], b"")
        if status != 0:
            raise AnsibleFileNotFound(said.decode())
        with open(out_path, "wb") as target:
            target.write(text)
