"""A Ray cluster of several "hosts" on this one, as a process of its own: prints its address, then
obeys lines on standard input, and ends with it.

`join` adds a host of one CPU, `lose` ends the newest one as a failure would, without notice.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from ray.cluster_utils import Cluster

STORE = 128 << 20


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ports() -> dict[str, Any]:
    """A host whose ports are known need not wait for its agents, which on a busy machine come too
    late."""
    names = ("metrics_agent_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
    return {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False} | {
        name: free_port() for name in names
    }


def main() -> None:
    cluster, hosts = Cluster(initialize_head=True, head_node_args=ports()), []
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "join":
            hosts.append(cluster.add_node(**ports()))
        else:
            cluster.remove_node(hosts.pop(), allow_graceful=False)
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
