//! Roots of your own: with their keys, and with the keys kept offline. What machines pin is yours, all else as ever.

use serde_json::json;
use std::{
    path::{Path, PathBuf},
    process::Command,
};
use tests::{Bcd, FakeMachine, Finished, RelayProcess, finish, program};

fn openssl(arguments: &[&str]) {
    let done = Command::new("openssl").args(arguments).output().unwrap();
    assert!(done.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A root as its keeper makes it; answers its certificate and its key.
fn root(home: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (certificate, key) = (home.join(format!("{name}.pem")), home.join(format!("{name}.key")));
    openssl(&["ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", &text(&key)]);
    let sec1 = home.join(format!("{name}.sec1"));
    std::fs::rename(&key, &sec1).unwrap();
    openssl(&["pkcs8", "-topk8", "-nocrypt", "-in", &text(&sec1), "-out", &text(&key)]);
    openssl(&[
        "req",
        "-x509",
        "-new",
        "-key",
        &text(&key),
        "-subj",
        &format!("/CN={name}"),
        "-days",
        "3000",
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",
        "-out",
        &text(&certificate),
    ]);
    (certificate, key)
}

fn relay(home: &Path, arguments: &[&str]) -> Finished {
    let mut command = program("relay");
    command.args(arguments).arg("--data-dir").arg(home.join("relay"));
    finish(command)
}

/// Serves, and lets a machine join that pins the root.
async fn serves_and_admits(home: &Path, root: &Path) {
    let relay = RelayProcess::start(home, None, &[]);
    let (bundle, given) =
        (std::fs::read_to_string(relay.ca_bundle()).unwrap(), std::fs::read_to_string(root).unwrap());
    assert_eq!(bundle.trim(), given.trim());
    let machine = FakeMachine::new(&home.join("machine"), 7);
    let bcd = Bcd::new(&home.join("bcd"), &machine, &relay, &relay.join_token(1).await);
    let joined = bcd.join();
    assert_eq!(joined.code, Some(0), "{joined}");
    let nodes = relay.call("compute/nodes/list", &json!({"tenantId": "provider", "poolId": "default"})).await;
    assert_eq!(nodes["nodes"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn roots_with_their_keys_are_what_machines_pin() {
    let home = tempfile::tempdir().unwrap();
    let (platform, platform_key) = root(home.path(), "platform");
    let (tenant, tenant_key) = root(home.path(), "tenant");
    let flags = |tenant: &Path, tenant_key: &Path| -> Vec<String> {
        let named = [
            ("platform-root", &*platform),
            ("platform-root-key", &*platform_key),
            ("tenant-root", tenant),
            ("tenant-root-key", tenant_key),
        ];
        let named = named.iter().flat_map(|(name, path)| [format!("--{name}"), text(path)]);
        ["ca".to_owned(), "init".to_owned()].into_iter().chain(named).collect()
    };
    let run = |flags: Vec<String>| relay(home.path(), &flags.iter().map(String::as_str).collect::<Vec<_>>());
    // One key for both domains, and a key that is not its certificate's, are refused; nothing is made.
    assert_eq!(run(flags(&platform, &platform_key)).code, Some(1));
    assert_eq!(run(flags(&tenant, &platform_key)).code, Some(1));
    let made = run(flags(&tenant, &tenant_key));
    assert_eq!(made.code, Some(0), "{made}");
    assert_eq!(run(flags(&tenant, &tenant_key)).code, Some(1), "an installation is made once");
    serves_and_admits(home.path(), &platform).await;
}

#[tokio::test]
async fn offline_roots_sign_requests_and_never_come_near_the_relay() {
    let home = tempfile::tempdir().unwrap();
    let (platform, platform_key) = root(home.path(), "platform");
    let (tenant, tenant_key) = root(home.path(), "tenant");
    let requests = home.path().join("requests");
    let drawn = relay(home.path(), &["ca", "requests", "--out", &text(&requests)]);
    assert_eq!(drawn.code, Some(0), "{drawn}");
    let mut signed = String::new();
    for request in std::fs::read_dir(&requests).unwrap() {
        let request = request.unwrap().path();
        let own = request.file_name().unwrap().to_string_lossy().starts_with("platform");
        let (certificate, key) = if own { (&platform, &platform_key) } else { (&tenant, &tenant_key) };
        let out = home.path().join("signed.pem");
        let extensions = home.path().join("extensions");
        std::fs::write(&extensions, "authorityKeyIdentifier=keyid\n").unwrap();
        openssl(&[
            "x509",
            "-req",
            "-in",
            &text(&request),
            "-CA",
            &text(certificate),
            "-CAkey",
            &text(key),
            "-copy_extensions",
            "copy",
            "-days",
            "365",
            "-extfile",
            &text(&extensions),
            "-out",
            &text(&out),
        ]);
        signed.push_str(&std::fs::read_to_string(&out).unwrap());
    }
    let bundle = home.path().join("all.pem");
    let roots = ["--platform-root", &text(&platform), "--tenant-root", &text(&tenant)].map(str::to_owned);
    let install = |signed: &str| {
        std::fs::write(&bundle, signed).unwrap();
        let mut arguments = vec!["ca", "install", "--signed", bundle.to_str().unwrap()];
        arguments.extend(roots.iter().map(String::as_str));
        relay(home.path(), &arguments)
    };
    assert_eq!(install("").code, Some(1), "nothing was signed");
    assert_eq!(relay(home.path(), &["ca", "pin"]).code, Some(4), "there is no root yet");
    let installed = install(&signed);
    assert_eq!(installed.code, Some(0), "{installed}");
    // Images can be made before the first start.
    let pin = relay(home.path(), &["ca", "pin"]);
    assert!(pin.code == Some(0) && pin.stdout.starts_with("sha256:"), "{pin}");
    let rotated = relay(home.path(), &["ca", "rotate", "node"]);
    assert!(rotated.code == Some(1) && rotated.stderr.contains("not rotated"), "{rotated}");
    assert!(rotated.stderr.contains("relay ca requests --out DIR"), "{rotated}");
    let before = pin.stdout;
    serves_and_admits(home.path(), &platform).await;
    assert_eq!(relay(home.path(), &["ca", "pin"]).stdout, before);
}
