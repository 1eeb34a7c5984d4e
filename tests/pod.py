"""Translates the pods of the charts into what systemd-nspawn understands, for `tests/container`.

Usage: pod.py ports                                      two ports that are free
       pod.py machine SYS                                makes a folder like /sys, of a machine
       pod.py mint FOLDER RELAY_PORT                     the same, of what mints tokens for a cluster
       pod.py relay|bcd FOLDER RELAY_PORT STATUS_PORT [PIN]   nspawn's arguments, one a line
What a pod asks for that is not translated here is an error: nothing is left out in silence.
"""

import socket
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "packaging/helm"))
from render import render  # noqa: E402


def ports():
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    print(*(each.getsockname()[1] for each in sockets))


def machine(sys_folder):
    """An SMBIOS 3.3 table (System Information, end of table), and an interface, linked as sysfs links it."""
    tables = sys_folder / "firmware/dmi/tables"
    tables.mkdir(parents=True)
    entry = bytearray(b"_SM3_\0\x18\x03\x03\0\x01\0".ljust(24, b"\0"))
    entry[5] = -sum(entry) % 256
    uuid = bytes.fromhex("04030201175e114a9c0f525401020304")
    strings = b"Example\0Machine\0SN-CONTAINER-1\0SKU-1\0\0"
    table = bytes([1, 27, 1, 0, 1, 2, 0, 3]) + uuid + bytes([6, 4, 0]) + strings + bytes([127, 4, 2, 0, 0, 0])
    for name, content in (("smbios_entry_point", bytes(entry)), ("DMI", table)):
        (tables / name).write_bytes(content)
        (tables / name).chmod(0o400)
    interface = sys_folder / "devices/pci0/net/eth9"
    (interface / "device").mkdir(parents=True)
    for name, text in (("type", "1"), ("addr_assign_type", "0"), ("address", "00:16:3e:00:00:09")):
        (interface / name).write_text(text + "\n")
    # What is mounted on them on a node, tests/container mounts.
    for folder in ("fs/cgroup", "firmware/efi/efivars"):
        (sys_folder / folder).mkdir(parents=True)
    (sys_folder / "class/net").mkdir(parents=True)
    (sys_folder / "class/net/eth9").symlink_to("../../devices/pci0/net/eth9")


def pod(name, folder, relay_port, status_port, pin=None):
    url = f"https://127.0.0.1:{relay_port}"
    if name == "relay":
        values = {"url": url, "masterKey": {"secretName": "relay-master-key"}}
        places = {"data": "relay-data", "master-key": "master-key"}
        # Elsewhere the network is the pod's own.
        instead = {"RELAY_LISTEN": f"127.0.0.1:{relay_port}", "RELAY_METRICS_LISTEN": "127.0.0.1:0"}
    else:
        values = {"relay": {"url": url, "caPins": [pin]}, "statusPort": int(status_port)}
        places = {"state": "state", "token": "token"}
        instead = {}
    texts = render(ROOT / "packaging/helm" / name, values).values()
    found = [document for text in texts for document in yaml.safe_load_all(text)]
    (spec,) = [each["spec"]["template"]["spec"] for each in found if each["kind"] in ("DaemonSet", "StatefulSet")]
    (container,) = spec["containers"]
    # What it shows of the node's /sys, it shows of the folder that stands for that.
    for volume in spec["volumes"]:
        path = volume.get("hostPath", {}).get("path", "")
        if path.startswith("/sys"):
            places[volume["name"]] = path.removeprefix("/")
    yield from options(spec, container, folder, places, instead)
    if "command" in container or "args" in container:
        raise SystemExit(f"{name} has a command of its own")
    # The image's own entry point and command.
    yield f"/usr/bin/{name}"
    yield {"relay": "serve", "bcd": "run"}[name]


def mint(folder, relay_port):
    """One argument a line does not do for a script, so that it goes into a file of the folder."""
    values = {
        "relay": {"url": f"https://127.0.0.1:{relay_port}", "caPins": ["sha256:" + "0" * 64]},
        "tokenRenewal": {"enabled": True, "apiSecret": {"name": "bcd-api"}},
    }
    texts = render(ROOT / "packaging/helm/bcd", values).values()
    found = [document for text in texts for document in yaml.safe_load_all(text)]
    (cron,) = [each for each in found if each["kind"] == "CronJob"]
    spec = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = spec["initContainers"]
    yield from options(spec, container, folder, {"api": "api", "scratch": "scratch"}, {})
    shell, flags, script, name = container["command"]
    (Path(folder) / "scratch/script").write_text(script)
    yield from (shell, flags, '. /scratch/script', name, *container["args"])


def options(spec, container, folder, places, instead):
    """User, capabilities, mounts and environment."""
    yield from confinement(spec.get("securityContext", {}) | container["securityContext"])
    for mount in container["volumeMounts"]:
        option = "--bind-ro" if mount.get("readOnly") else "--bind"
        yield f"{option}={folder}/{places.pop(mount['name'])}:{mount['mountPath']}"
    if places:
        raise SystemExit(f"nothing mounts {', '.join(places)}")
    for variable in container["env"]:
        value = variable.get("value")
        if "valueFrom" in variable:
            value = {"spec.nodeName": "node-1"}[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        yield f"--setenv={variable['name']}={instead.pop(variable['name'], value)}"
    yield from (f"--setenv={key}={value}" for key, value in instead.items())


def confinement(context):
    """nspawn has a filter of system calls of its own, much as the runtimes' default."""
    context.setdefault("privileged", False)
    wanted = {
        "privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    }
    for key, value in wanted.items():
        if context.pop(key, None) != value:
            raise SystemExit(f"{key} is not {value}")
    yield from ("--read-only", "--drop-capability=all", "--no-new-privileges=yes")
    user, group = context.pop("runAsUser"), context.pop("runAsGroup")
    if context.pop("fsGroup", group) != group or context.pop("runAsNonRoot", user != 0) != (user != 0):
        raise SystemExit("user and groups are not one")
    context.pop("fsGroupChangePolicy", None)
    if context:
        raise SystemExit(f"not translated: {context}")
    if user:
        yield f"--user={ {10001: 'relay'}[user] }"


match sys.argv[1:]:
    case ["ports"]:
        ports()
    case ["machine", folder]:
        machine(Path(folder))
    case ["mint", *rest]:
        print("\n".join(mint(*rest)))
    case [("relay" | "bcd") as name, *rest]:
        print("\n".join(pod(name, *rest)))
    case _:
        raise SystemExit(__doc__)
