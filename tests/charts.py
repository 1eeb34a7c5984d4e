"""What the charts must be: see `tests/charts`, which runs this. Every check is a function; each failure is printed."""

import copy
import os
import re
import sys
from pathlib import Path

import helm_python
import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "packaging/helm"))
from render import render  # noqa: E402

PIN = "sha256:" + "ab" * 32
BCD = {"relay": {"url": "https://relay.test:8443", "caPins": [PIN, "sha256:" + "cd" * 32]}}
RELAY = {"url": "https://relay.test:8443", "masterKey": {"secretName": "relay-master-key"}}
POSTGRES = {"database": {"kind": "postgres", "postgres": {"secretName": "relay-database"}}}
RENEWAL = {"tokenRenewal": {"enabled": True, "apiSecret": {"name": "bcd-api"}}}
PLACING = {
    "nodeSelector": {"zone": "a"},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "priorityClassName": "system-node-critical",
    "podAnnotations": {"note": "1"},
    "podLabels": {"team": "fleet"},
    "imagePullSecrets": ["registry"],
}
OIDC = {"oidc": {
    "issuer": "https://id.test:8443/realms/staff", "clientId": "relay", "existingSecret": "relay-oidc",
    "existingSecretKey": "secret", "key": "email", "scopes": "openid email", "caFile": {"configMap": "id-ca", "key": "ca.pem"},
}}
PEERS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]


def merge(*parts):
    """The parts, deep, later ones winning."""
    result = {}
    for part in parts:
        for key, value in copy.deepcopy(part).items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merge(result[key], value) if both else value
    return result


VALUES = {
    "bcd": {
        "default": BCD,
        "tpm": merge(BCD, {"tpm": {"enabled": True}}),
        "nvidia": merge(BCD, {"nvidia": {"enabled": True, "libraryPath": "/usr/lib/nvidia"}}),
        "renewal": merge(BCD, RENEWAL),
        "all": merge(BCD, RENEWAL, PLACING, {
            "image": {"digest": "sha256:" + "ef" * 32, "pullPolicy": "Always"},
            "token": {"secretName": "other", "key": "token"},
            "stateDir": "/srv/bcd", "statusPort": 9999, "log": "debug", "seLinuxOptions": {"type": "spc_t", "level": "s0"},
            "smbios": False,
            "tpm": {"enabled": True, "mode": "auto", "device": "/dev/tpmrm1"},
            "nvidia": {"enabled": True, "runtimeClassName": "", "libraryPath": "/opt/nvidia"},
            "updateStrategy": {"type": "OnDelete", "rollingUpdate": None},
            "tokenRenewal": {"hosted": False, "allowReclaim": True, "maxUses": 10000, "ttl": "12h",
                             "nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}]},
        }),
    },
    "relay": {
        "default": RELAY,
        "postgres": merge(RELAY, POSTGRES),
        "all-sqlite": merge(RELAY, PLACING, OIDC, {
            "tokenRefresh": {"secrets": [{"name": "ci-token"}, {"name": "backup", "key": "api.jwt"}], "schedule": "0 * * * *",
                             "caFile": {"configMap": "relay-ca", "key": "trust-bundle.pem"}},
            "providerTenant": "house", "trustedProxies": ["10.0.0.0/8", "fd00::/8"], "auditDays": 30,
            "image": {"tag": "1.2.3"}, "trustDomain": "fleet.test", "log": "debug",
            "database": {"sqlite": {"size": "1Gi", "storageClassName": "fast"}},
            "service": {"type": "LoadBalancer", "port": 443, "annotations": {"a": "b"}, "externalTrafficPolicy": "Local"},
            "metrics": {"enabled": True, "from": PEERS},
            "adminSecret": {"name": "relay-admin"},
            "limits": {"perTokenPerMinute": 1, "perIpPerMinute": 2, "healthPerMinute": 3, "joinPerIpPerMinute": 1000000,
                       "joinInFlight": 5},
        }),
        "all-postgres": merge(RELAY, POSTGRES, PLACING, {
            "image": {"digest": "sha256:" + "ef" * 32}, "replicas": 5, "rollingUpdate": True, "listenAddress": "[::]",
            "networkPolicy": {"from": PEERS, "databaseTo": PEERS, "apiServerTo": PEERS, "apiServerPorts": [6443],
                              "oidcTo": PEERS, "oidcPorts": [8443]},
            "oidc": {"issuer": "https://id.test", "clientId": "relay"},
            "metrics": {"enabled": True}, "adminSecret": {"name": "relay-admin"},
            "podDisruptionBudget": {"maxUnavailable": "25%"},
        }),
        "bare": merge(RELAY, {"networkPolicy": {"enabled": False}, "podDisruptionBudget": {"enabled": False}}),
    },
}

# What each schema must refuse, and the word that the refusal must have.
REFUSED = {
    "bcd": [
        ({}, "url"),
        (merge(BCD, {"relay": {"url": "http://relay.test"}}), "url"),
        (merge(BCD, {"relay": {"caPins": []}}), "caPins"),
        (merge(BCD, {"relay": {"caPins": ["ab" * 32]}}), "caPins"),
        (merge(BCD, {"statusPort": 0}), "statusPort"),
        (merge(BCD, {"log": "loud"}), "log"),
        (merge(BCD, {"stateDir": "var/lib/bcd"}), "stateDir"),
        (merge(BCD, {"seLinuxOptions": {"typ": "spc_t"}}), "typ"),
        (merge(BCD, {"seLinuxOptions": {"type": ""}}), "type"),
        (merge(BCD, {"smbios": "no"}), "smbios"),
        (merge(BCD, {"tpm": {"device": "/etc/shadow"}}), "device"),
        (merge(BCD, {"tmp": {"enabled": True}}), "tmp"),
        (merge(BCD, {"tokenRenewal": {"enabled": True}}), "name"),
        (merge(BCD, RENEWAL, {"tokenRenewal": {"ttl": "25h"}}), "ttl"),
        (merge(BCD, RENEWAL, {"tokenRenewal": {"maxUses": 10001}}), "maxUses"),
        (merge(BCD, {"image": {"digest": "sha256:ab"}}), "digest"),
    ],
    "relay": [
        ({}, "url"),
        (merge(RELAY, {"url": "relay.test"}), "url"),
        ({"url": RELAY["url"]}, "secretName"),
        (merge(RELAY, {"database": {"kind": "mysql"}}), "kind"),
        (merge(RELAY, {"database": {"kind": "postgres"}}), "secretName"),
        (merge(RELAY, {"replicas": 0}), "replicas"),
        (merge(RELAY, {"rollingUpdate": "yes"}), "rollingUpdate"),
        *[(merge(RELAY, {"listenAddress": address}), "listenAddress")
          for address in ("", "::", "0.0.0.0:8443", "relay", "[::]:8443", "[]")],
        (merge(RELAY, {"limits": {"joinInFlight": 0}}), "joinInFlight"),
        (merge(RELAY, {"service": {"type": "ExternalName"}}), "type"),
        (merge(RELAY, {"masterkey": {}}), "masterkey"),
        (merge(RELAY, {"adminSecret": {"name": "Relay_Admin"}}), "name"),
        (merge(RELAY, {"networkPolicy": {"apiServerPorts": []}}), "apiServerPorts"),
        (merge(RELAY, {"providerTenant": "a b"}), "providerTenant"),
        (merge(RELAY, {"trustedProxies": ["10.0.0.1"]}), "trustedProxies"),
        (merge(RELAY, {"trustedProxies": "10.0.0.0/8"}), "trustedProxies"),
        (merge(RELAY, {"auditDays": 0}), "auditDays"),
        (merge(RELAY, {"tokenRefresh": {"secrets": [{"name": "a"}]}}), "configMap"),
        (merge(RELAY, {"tokenRefresh": {"secrets": [{"name": "A/b"}], "caFile": {"configMap": "c"}}}), "name"),
        (merge(RELAY, {"tokenRefresh": {"secrets": [{"key": "token"}], "caFile": {"configMap": "c"}}}), "name"),
        (merge(RELAY, {"oidc": {"issuer": "https://id.test"}}), "clientId"),
        (merge(RELAY, {"oidc": {"clientId": "relay"}}), "clientId"),
        (merge(RELAY, {"oidc": {"existingSecret": "relay-oidc"}}), "existingSecret"),
        (merge(RELAY, OIDC, {"oidc": {"issuer": "http://id.test"}}), "issuer"),
        (merge(RELAY, OIDC, {"oidc": {"key": "name"}}), "key"),
        (merge(RELAY, OIDC, {"oidc": {"clientSecret": "hush"}}), "clientSecret"),
        (merge(RELAY, OIDC, {"oidc": {"caFile": {"path": "/etc/ca.pem"}}}), "path"),
        (merge(RELAY, OIDC, {"networkPolicy": {"oidcPorts": []}}), "oidcPorts"),
    ],
}

failures = []
checks = 0


def check(holds, text):
    global checks
    checks += 1
    if not holds:
        failures.append(text)


def equal(found, wanted, text):
    check(found == wanted, f"{text}: {found!r}, not {wanted!r}")


def documents(chart, values, namespace="fleet"):
    texts = render(ROOT / "packaging/helm" / chart, values, namespace).values()
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def one(found, kind):
    (document,) = [document for document in found if document["kind"] == kind]
    return document


def kubernetes_versions():
    """Those that the charts claim to work with, from the oldest."""
    claims = {yaml.safe_load((ROOT / "packaging/helm" / chart / "Chart.yaml").read_text())["kubeVersion"] for chart in VALUES}
    (oldest,) = re.findall(r"^>=([0-9]+[.][0-9]+[.]0)-0$", "\n".join(claims), re.MULTILINE)
    number = lambda version: [int(part) for part in version.split(".")]
    known = sorted(set(kubernetes_validate.utils.all_versions()), key=number)
    versions = [version for version in known if number(version) >= number(oldest)]
    equal(versions[:1], [oldest], "the schema of the oldest Kubernetes that the charts claim")
    readme = (ROOT / "README.md").read_text()
    check(f"Kubernetes must be {oldest.removesuffix('.0')} or later" in readme, f"README.md does not say {oldest}")
    return versions


def validate(document, versions, what):
    for version in versions:
        try:
            kubernetes_validate.validate(document, version, strict=True)
            check(True, what)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            check(False, f"{what}: Kubernetes {version}: {error.message}")


def lint_and_schemas():
    versions = kubernetes_versions()
    for chart, cases in VALUES.items():
        for name, values in cases.items():
            report = helm_python.lint(str(ROOT / "packaging/helm" / chart), values, strict=True)
            worse = [message for message in report["messages"] or [] if message["severity"] > 1]
            check(not worse and not report["errors"], f"{chart}, {name}: lint: {worse} {report['errors']}")
            for document in documents(chart, values):
                what = f"{chart}, {name}: {document['kind']}"
                validate(document, versions, what)
                equal(document["metadata"].get("namespace"), "fleet", f"{what}: namespace")
    print(f"    against the schemas of Kubernetes {versions[0]} to {versions[-1]}, strict")


def refusals():
    for chart, cases in REFUSED.items():
        loaded = helm_python.Chart.load(str(ROOT / "packaging/helm" / chart))
        for values, word in cases:
            try:
                loaded.validate_schema(values)
                check(False, f"{chart}: the schema takes {values}")
            except helm_python.HelmValuesError as error:
                check(word in str(error), f"{chart}: {values} is refused, but not for {word}: {error}")


def volumes(pod):
    return {volume["name"]: {k: v for k, v in volume.items() if k != "name"} for volume in pod["volumes"]}


def mounts(container):
    return {mount["mountPath"]: (mount["name"], mount.get("readOnly", False)) for mount in container["volumeMounts"]}


def environment(container):
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in container["env"]}


def daemon_set():
    found = documents("bcd", BCD)
    equal([document["kind"] for document in found], ["DaemonSet"], "bcd by default: nothing but the DaemonSet")
    pod = one(found, "DaemonSet")["spec"]["template"]["spec"]
    equal(pod["hostNetwork"], True, "bcd: hostNetwork")
    equal(pod["dnsPolicy"], "ClusterFirstWithHostNet", "bcd: dnsPolicy")
    equal(pod["automountServiceAccountToken"], False, "bcd: automountServiceAccountToken")
    check("serviceAccountName" not in pod, "bcd: has a service account")
    check(not any(pod.get(key) for key in ("hostPID", "hostIPC", "initContainers")), "bcd: more of the host than its network")
    equal(pod["tolerations"], [{"operator": "Exists"}], "bcd: tolerations")
    (container,) = pod["containers"]
    equal(container["securityContext"], {
        "runAsUser": 0, "runAsGroup": 0, "readOnlyRootFilesystem": True, "privileged": False,
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    }, "bcd: securityContext")
    equal(mounts(container), {
        "/host/sys/class": ("sys-class", True), "/host/sys/devices": ("sys-devices", True),
        "/host/sys/firmware/dmi": ("sys-dmi", True), "/var/lib/bcd": ("state", False), "/run/bcd-token": ("token", True),
    }, "bcd: mounts")
    check(not any("subPath" in mount for mount in container["volumeMounts"]), "bcd: a subPath is never updated")
    equal(volumes(pod), {
        "sys-class": {"hostPath": {"path": "/sys/class", "type": "Directory"}},
        "sys-devices": {"hostPath": {"path": "/sys/devices", "type": "Directory"}},
        "sys-dmi": {"hostPath": {"path": "/sys/firmware/dmi", "type": "Directory"}},
        "state": {"hostPath": {"path": "/var/lib/bcd", "type": "DirectoryOrCreate"}},
        "token": {"secret": {"secretName": "bcd-join-token", "optional": True, "defaultMode": 0o400,
                             "items": [{"key": "join-token", "path": "join-token"}]}},
    }, "bcd: volumes")
    equal(environment(container), {
        "BCD_RELAY": "https://relay.test:8443", "BCD_CA_PINS": ",".join(BCD["relay"]["caPins"]),
        "BCD_TOKEN_FILE": "/run/bcd-token/join-token", "BCD_NODE_NAME": {"fieldRef": {"fieldPath": "spec.nodeName"}},
        "BCD_DMI_DIR": "/host/sys/firmware/dmi/tables", "BCD_NET_DIR": "/host/sys/class/net", "BCD_TPM": "off",
        "BCD_SOCKET": "/var/lib/bcd/bcd.sock", "BCD_STATUS_LISTEN": "127.0.0.1:9465", "BCD_LOG": "info",
        "BCD_WHEN_FINAL": "wait",
    }, "bcd: environment")
    equal(container["livenessProbe"]["httpGet"], {"host": "127.0.0.1", "port": 9465, "path": "/livez"}, "bcd: livenessProbe")
    equal(container["readinessProbe"]["exec"], {"command": ["bcd", "status", "--ready"]}, "bcd: readinessProbe")
    equal(container["terminationMessagePolicy"], "FallbackToLogsOnError", "bcd: terminationMessagePolicy")


def daemon_set_options():
    pod = one(documents("bcd", VALUES["bcd"]["tpm"]), "DaemonSet")["spec"]["template"]["spec"]
    context = pod["containers"][0]["securityContext"]
    equal(context, {"runAsUser": 0, "runAsGroup": 0, "readOnlyRootFilesystem": True, "privileged": True}, "tpm: context")
    equal(volumes(pod)["tpm"], {"hostPath": {"path": "/dev/tpmrm0", "type": "CharDevice"}}, "tpm: volume")
    equal(mounts(pod["containers"][0])["/dev/tpmrm0"], ("tpm", False), "tpm: mount")
    equal(environment(pod["containers"][0])["BCD_TPM"], "required", "tpm: mode")
    for case in ("default", "nvidia", "renewal"):
        pod = one(documents("bcd", VALUES["bcd"][case]), "DaemonSet")["spec"]["template"]["spec"]
        equal(pod["containers"][0]["securityContext"]["privileged"], False, f"{case}: privileged")
        equal(pod["automountServiceAccountToken"], False, f"{case}: automountServiceAccountToken")
        check("tpm" not in volumes(pod), f"{case}: has the TPM")
    for case, found in VALUES["bcd"].items():
        pod = one(documents("bcd", found), "DaemonSet")["spec"]["template"]["spec"]
        places, (container,) = volumes(pod), pod["containers"]
        # A mount that is read-only shows what is mounted below it on the node as writable as that is.
        of_sys = {place: volume["hostPath"]["path"] for place, volume in places.items()
                  if volume.get("hostPath", {}).get("path", "").startswith("/sys")}
        check(set(of_sys.values()) <= {"/sys/class", "/sys/devices", "/sys/firmware/dmi"}, f"{case}: of /sys: {of_sys}")
        for path, (name, read_only) in mounts(container).items():
            # Links between them lead on at the same paths only.
            check(name not in of_sys or (read_only and path == "/host" + of_sys[name]), f"{case}: {path}: {name}")
        equal("sys-dmi" in places, case != "all", f"{case}: SMBIOS")
    for case, labels in (("default", None), ("all", {"type": "spc_t", "level": "s0"})):
        pod = one(documents("bcd", VALUES["bcd"][case]), "DaemonSet")["spec"]["template"]["spec"]
        equal(pod["containers"][0]["securityContext"].get("seLinuxOptions"), labels, f"{case}: SELinux")
    pod = one(documents("bcd", VALUES["bcd"]["nvidia"]), "DaemonSet")["spec"]["template"]["spec"]
    equal(pod["runtimeClassName"], "nvidia", "nvidia: runtime class")
    equal(mounts(pod["containers"][0])["/host/nvidia"], ("nvidia", True), "nvidia: mount")


def token_renewal():
    found = documents("bcd", VALUES["bcd"]["renewal"])
    equal(sorted(document["kind"] for document in found),
          ["CronJob", "DaemonSet", "Role", "RoleBinding", "ServiceAccount"], "renewal: kinds")
    equal(one(found, "Role")["rules"], [{
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["bcd-join-token"], "verbs": ["get", "patch", "create"],
    }], "renewal: rules")
    cron = one(found, "CronJob")["spec"]
    equal((cron["schedule"], cron["concurrencyPolicy"]), ("17 */8 * * *", "Forbid"), "renewal: schedule")
    pod = cron["jobTemplate"]["spec"]["template"]["spec"]
    equal(pod["automountServiceAccountToken"], False, "renewal: automountServiceAccountToken")
    equal(pod["serviceAccountName"], one(found, "ServiceAccount")["metadata"]["name"], "renewal: account")
    equal(one(found, "RoleBinding")["subjects"][0]["name"], pod["serviceAccountName"], "renewal: binding")
    (mint,), (apply,) = pod["initContainers"], pod["containers"]
    equal(mint["args"], ["--tenant=provider", "--pool=default", "--ttl=24h", "--max-uses=100", "--hosted=kubernetes"],
          "renewal: what is minted")
    check("/run/api" not in mounts(apply), "renewal: the relay's credential is where kubectl runs")
    check(not any("serviceaccount" in path for path in mounts(mint)), "renewal: the cluster's credential is where relay runs")
    for container in (mint, apply):
        equal(container["securityContext"], {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }, f"renewal: {container['name']}")
    equal(pod["securityContext"]["runAsNonRoot"], True, "renewal: runAsNonRoot")


def relay():
    for case, kind in (("default", "StatefulSet"), ("postgres", "Deployment")):
        found = documents("relay", VALUES["relay"][case])
        equal(sorted(document["kind"] for document in found),
              sorted([kind, "NetworkPolicy", "PodDisruptionBudget", "Service"]), f"relay, {case}: kinds")
        workload = one(found, kind)["spec"]
        equal(workload["replicas"], {"StatefulSet": 1, "Deployment": 3}[kind], f"relay, {case}: replicas")
        # The new one migrates the schema: none of before may run then.
        equal(workload.get("strategy"), {"StatefulSet": None, "Deployment": {"type": "Recreate"}}[kind],
              f"relay, {case}: strategy")
        pod = workload["template"]["spec"]
        equal(pod["automountServiceAccountToken"], False, f"relay, {case}: automountServiceAccountToken")
        check("serviceAccountName" not in pod, f"relay, {case}: has a service account")
        check("RELAY_BOOTSTRAP_SECRET" not in environment(pod["containers"][0]), f"relay, {case}: names a Secret")
        equal(pod["securityContext"], {
            "runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001,
            "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
        }, f"relay, {case}: pod's context")
        (container,) = pod["containers"]
        equal(container["securityContext"], {
            "privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, f"relay, {case}: context")
        for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            equal(container[probe]["httpGet"], {"scheme": "HTTPS", "port": "https", "path": path}, f"relay, {case}: {probe}")
        variables = environment(container)
        equal(variables["RELAY_LISTEN"], "0.0.0.0:8443", f"relay, {case}: address")
        equal(mounts(container)["/run/credentials/relay"], ("master-key", True), f"relay, {case}: master key")
        check(variables["RELAY_MASTER_KEY_FILE"].startswith(variables["CREDENTIALS_DIRECTORY"] + "/"),
              f"relay, {case}: the master key is no credential, and its mode would be refused")
        claims = [claim["metadata"]["name"] for claim in workload.get("volumeClaimTemplates", [])]
        equal(claims, ["data"] if kind == "StatefulSet" else [], f"relay, {case}: claims")
        equal("RELAY_DATABASE_URL" in variables, kind == "Deployment", f"relay, {case}: database")
        policy = one(found, "NetworkPolicy")["spec"]
        equal(policy["podSelector"], workload["selector"], f"relay, {case}: whom the policy is about")
        equal(one(found, "PodDisruptionBudget")["spec"]["selector"], workload["selector"], f"relay, {case}: budget")
        equal(one(found, "Service")["spec"]["selector"], workload["selector"]["matchLabels"], f"relay, {case}: service")
    equal(one(documents("relay", RELAY), "NetworkPolicy")["spec"]["egress"], [], "relay: calls nobody")
    several = one(documents("relay", VALUES["relay"]["all-postgres"]), "Deployment")["spec"]
    equal(several["strategy"], {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
          "relay: one after the other")
    variables = environment(several["template"]["spec"]["containers"][0])
    equal((variables["RELAY_LISTEN"], variables["RELAY_METRICS_LISTEN"]), ("[::]:8443", "[::]:9464"), "relay: IPv6")
    limits = environment(one(documents("relay", VALUES["relay"]["all-sqlite"]), "StatefulSet")
                         ["spec"]["template"]["spec"]["containers"][0])
    equal({name: value for name, value in limits.items() if name.startswith("RELAY_LIMITS_")}, {
        "RELAY_LIMITS_PER_TOKEN_PER_MINUTE": "1", "RELAY_LIMITS_PER_IP_PER_MINUTE": "2",
        "RELAY_LIMITS_HEALTH_PER_MINUTE": "3", "RELAY_LIMITS_JOIN_PER_IP_PER_MINUTE": "1000000",
        "RELAY_LIMITS_JOIN_IN_FLIGHT": "5",
    }, "relay: limits")


def settings():
    """What a chart's value becomes a setting of the relay; nothing that is not given."""
    ours = ("RELAY_OIDC_", "RELAY_TRUSTED_PROXIES", "RELAY_AUDIT_DAYS", "RELAY_PROVIDER_TENANT")
    wanted = {
        "default": {}, "postgres": {}, "bare": {},
        "all-postgres": {"RELAY_OIDC_ISSUER": "https://id.test", "RELAY_OIDC_CLIENT_ID": "relay"},
        "all-sqlite": {
            "RELAY_OIDC_ISSUER": "https://id.test:8443/realms/staff", "RELAY_OIDC_CLIENT_ID": "relay",
            "RELAY_OIDC_CLIENT_SECRET_FILE": "/run/oidc/secret/client-secret", "RELAY_OIDC_KEY": "email",
            "RELAY_OIDC_SCOPES": "openid email", "RELAY_OIDC_CA_FILE": "/run/oidc/ca/ca.crt",
            "RELAY_TRUSTED_PROXIES": "10.0.0.0/8,fd00::/8", "RELAY_AUDIT_DAYS": "30", "RELAY_PROVIDER_TENANT": "house",
        },
    }
    equal(set(wanted), set(VALUES["relay"]), "settings: every case")
    for case, variables in wanted.items():
        found = documents("relay", VALUES["relay"][case])
        workload = next(document for document in found if document["kind"] in ("Deployment", "StatefulSet"))
        pod = workload["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        found = {name: value for name, value in environment(container).items() if name.startswith(ours)}
        equal(found, variables, f"settings, {case}")
        secret, ca = volumes(pod).get("oidc-secret"), volumes(pod).get("oidc-ca")
        if case != "all-sqlite":
            equal((secret, ca), (None, None), f"settings, {case}: volumes")
            continue
        equal(secret, {"secret": {"secretName": "relay-oidc", "defaultMode": 0o400,
                                  "items": [{"key": "secret", "path": "client-secret"}]}}, "settings: the client's secret")
        equal(ca, {"configMap": {"name": "id-ca", "items": [{"key": "ca.pem", "path": "ca.crt"}]}}, "settings: the CA")
        places = mounts(container)
        equal((places["/run/oidc/secret"], places["/run/oidc/ca"]), (("oidc-secret", True), ("oidc-ca", True)),
              "settings: mounts")
        check(not any("subPath" in mount for mount in container["volumeMounts"]), "relay: a subPath is never updated")
    names = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    egress = one(documents("relay", merge(RELAY, OIDC)), "NetworkPolicy")["spec"]["egress"]
    equal(egress, [{"ports": names}, {"ports": [{"port": 443, "protocol": "TCP"}]}], "settings: it calls the provider alone")


def token_refresh():
    found = documents("relay", merge(VALUES["relay"]["all-sqlite"], {"adminSecret": {"name": ""}}))
    equal(one(found, "Role")["rules"], [{
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["ci-token", "backup"], "verbs": ["get", "patch"],
    }], "token refresh: rules")
    cron, account = one(found, "CronJob")["spec"], one(found, "ServiceAccount")["metadata"]["name"]
    equal((cron["schedule"], cron["concurrencyPolicy"]), ("0 * * * *", "Forbid"), "token refresh: schedule")
    pod = cron["jobTemplate"]["spec"]["template"]["spec"]
    equal((pod["serviceAccountName"], one(found, "RoleBinding")["subjects"][0]["name"]), (account, account),
          "token refresh: account")
    relay = one(found, "StatefulSet")["spec"]["template"]["spec"]
    check("serviceAccountName" not in relay, "token refresh: the relay's pod has the account too")
    equal([container["args"] for container in pod["containers"]], [
        ["token", "refresh-secret", "--secret=ci-token", "--key=token"],
        ["token", "refresh-secret", "--secret=backup", "--key=api.jwt"],
    ], "token refresh: what is run")
    for container in pod["containers"]:
        equal(environment(container), {"RELAY_RELAY": RELAY["url"], "RELAY_CA_FILE": "/run/relay-ca/ca.pem"},
              "token refresh: environment")
        equal(container["securityContext"], {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }, "token refresh: context")
        equal(mounts(container), {"/run/relay-ca": ("ca", True)}, "token refresh: mounts")
    equal(volumes(pod), {"ca": {"configMap": {"name": "relay-ca", "items": [{"key": "trust-bundle.pem", "path": "ca.pem"}]}}},
          "token refresh: volumes")
    equal(pod["securityContext"]["runAsNonRoot"], True, "token refresh: runAsNonRoot")


def admin_secret():
    for case, kind in (("all-sqlite", "StatefulSet"), ("all-postgres", "Deployment")):
        values = merge(VALUES["relay"][case], {"tokenRefresh": {"secrets": []}})
        found = documents("relay", values)
        equal(sorted(document["kind"] for document in found),
              sorted([kind, "NetworkPolicy", "PodDisruptionBudget", "Role", "RoleBinding", "Service", "ServiceAccount"]),
              f"admin secret, {case}: kinds")
        equal(one(found, "Role")["rules"], [{
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["relay-admin"], "verbs": ["patch", "create"],
        }], f"admin secret, {case}: rules")
        pod = one(found, kind)["spec"]["template"]["spec"]
        account = one(found, "ServiceAccount")
        equal(account["automountServiceAccountToken"], False, f"admin secret, {case}: the account's own automount")
        equal((pod["automountServiceAccountToken"], pod["serviceAccountName"]), (True, account["metadata"]["name"]),
              f"admin secret, {case}: account")
        equal(one(found, "RoleBinding")["subjects"],
              [{"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "fleet"}],
              f"admin secret, {case}: binding")
        equal(one(found, "RoleBinding")["roleRef"]["name"], one(found, "Role")["metadata"]["name"],
              f"admin secret, {case}: role")
        equal(environment(pod["containers"][0])["RELAY_BOOTSTRAP_SECRET"], "relay-admin", f"admin secret, {case}: name")
    try:
        documents("relay", merge(RELAY, {"adminSecret": {"name": "relay-master-key"}}))
        check(False, "admin secret: the relay may write the master key's Secret")
    except helm_python.HelmError as error:
        check("take a name of its own" in str(error), f"admin secret: the master key's Secret: {error}")
    egress = one(documents("relay", VALUES["relay"]["all-sqlite"]), "NetworkPolicy")["spec"]["egress"]
    tcp = [{"port": port, "protocol": "TCP"} for port in (443, 6443)]
    equal(egress[2:], [{"ports": tcp}], "admin secret: a relay on SQLite calls the cluster's API beside the provider")
    alone = one(documents("relay", merge(RELAY, {"adminSecret": {"name": "relay-admin"}})), "NetworkPolicy")["spec"]["egress"]
    equal(alone, [{"ports": tcp}], "admin secret: a relay on SQLite calls the cluster's API alone")
    egress = one(documents("relay", VALUES["relay"]["all-postgres"]), "NetworkPolicy")["spec"]["egress"]
    equal(egress[2:], [{"ports": [{"port": 8443, "protocol": "TCP"}], "to": PEERS}, {"ports": tcp[1:], "to": PEERS}],
          "admin secret: beside names, the database and the provider")


def restore_pod():
    """The pod of operators.md that puts a backup into the volume is as confined as the relay, and its files are the relay's."""
    text = (ROOT / "relay/operators.md").read_text()
    (block,) = re.findall(r"kubectl -n relay apply -f - <<'EOF'\n(.*?)\n    EOF\n", text, re.DOTALL)
    pod = yaml.safe_load(block)
    validate(pod, kubernetes_versions(), "operators.md: restore")
    chart = one(documents("relay", RELAY, "relay"), "StatefulSet")
    like = chart["spec"]["template"]["spec"]
    equal(pod["spec"]["securityContext"], like["securityContext"], "operators.md: restore: user")
    confined = {"privileged": False} | pod["spec"]["containers"][0]["securityContext"]
    equal(confined, like["containers"][0]["securityContext"], "operators.md: restore: context")
    claim = f"{chart['spec']['volumeClaimTemplates'][0]['metadata']['name']}-{chart['metadata']['name']}-0"
    key = volumes(like)["master-key"]
    equal(volumes(pod["spec"]), {"data": {"persistentVolumeClaim": {"claimName": claim}}, "master-key": key},
          "operators.md: restore: volumes")
    equal(mounts(pod["spec"]["containers"][0])["/run/credentials/relay"], mounts(like["containers"][0])["/run/credentials/relay"],
          "operators.md: restore: key")
    told = {variable["name"]: variable["value"] for variable in like["containers"][0]["env"]}
    for variable in pod["spec"]["containers"][0]["env"]:
        equal(variable["value"], told.get(variable["name"]), f"operators.md: restore: {variable['name']}")
    equal(mounts(pod["spec"]["containers"][0])["/var/lib/relay"], mounts(like["containers"][0])["/var/lib/relay"],
          "operators.md: restore: mount")


for group in (restore_pod, lint_and_schemas, refusals, daemon_set, daemon_set_options, token_renewal, relay, settings,
              token_refresh, admin_secret):
    group()
for failure in failures:
    print(f"FAILED: {failure}", file=sys.stderr)
print(f"    {checks} facts, {len(failures)} do not hold")
# Helm's own threads may outlive main.
sys.stdout.flush()
os._exit(bool(failures))
