//! Stage three: which settings are refused, and what the good ones become.

use super::*;

fn parse_toml(text: &str) -> Result<Settings, InvalidSettings> {
    let origin = Origin::File(0, PathBuf::from("/etc/bcd/bcd.toml"));
    Settings::parse(&Merged::of(vec![Fragment::from_toml(origin, text).unwrap()]))
}

fn problem(text: &str) -> String {
    parse_toml(text).unwrap_err().to_string()
}

#[test]
fn nothing_said_gives_the_defaults() {
    let settings = parse_toml("").unwrap();
    assert_eq!(settings.state_dir, Path::new("/var/lib/bcd"));
    assert_eq!(settings.socket.as_deref(), Some(Path::new("/var/lib/bcd/bcd.sock")));
    assert_eq!((settings.tpm, settings.tcti), (TpmMode::Auto, Tcti::default()));
    assert_eq!(settings.log, LevelFilter::INFO);
    assert!(settings.relay.is_none() && settings.trust.is_none());
}

#[test]
fn relays_are_https_and_nothing_more() {
    let endpoint = |url: &str| Endpoint::parse(url).map(|e| (e.host.clone(), e.port, e.authority()));
    assert_eq!(
        endpoint("https://relay.example:8443"),
        Ok(("relay.example".into(), 8443, "relay.example:8443".into()))
    );
    assert_eq!(
        endpoint("https://relay.example/"),
        Ok(("relay.example".into(), 443, "relay.example:443".into()))
    );
    assert_eq!(endpoint("https://[::1]:8443"), Ok(("::1".into(), 8443, "[::1]:8443".into())));
    assert_eq!(endpoint("https://[::1]"), Ok(("::1".into(), 443, "[::1]:443".into())));
    for bad in [
        "http://relay.example",
        "relay.example:8443",
        "https://relay.example/api",
        "https://relay.example?x=1",
        "https://user@relay.example",
        "https://relay.example:0",
        "https://relay.example:99999",
        "https://relay.example:",
        "https://",
    ] {
        assert!(endpoint(bad).is_err(), "{bad}");
    }
}

#[test]
fn pins_are_digests() {
    let pin = format!("sha256:{}", "Ab".repeat(32));
    let settings = parse_toml(&format!("ca_pins = ['{pin}']")).unwrap();
    assert_eq!(settings.trust, Some(TrustSettings::Pins(vec![[0xab; 32]])));
    for bad in ["[]", "['']", "['sha256:00']", "['md5:00']", &format!("['{}']", "ab".repeat(32))] {
        assert!(problem(&format!("ca_pins = {bad}")).contains("relay ca pin"), "{bad}");
    }
}

#[test]
fn the_kind_of_trust_said_last_wins_and_two_at_once_contradict() {
    let both = format!("ca_file = '/ca'\nca_pins = ['sha256:{}']", "00".repeat(32));
    assert!(problem(&both).contains("contradicts"));
    let file = Fragment::from_toml(Origin::File(0, PathBuf::from("a")), &both.replace("ca_file = '/ca'", ""))
        .unwrap();
    let flags = Fragment::from_flags(vec![("ca_file", Value::Text("/ca".into()))]);
    let trust = |fragments| Settings::parse(&Merged::of(fragments)).unwrap().trust;
    assert_eq!(trust(vec![file.clone(), flags]), Some(TrustSettings::CaFile("/ca".into())));
    let off = Fragment::from_flags(vec![("system_roots", Value::Flag(false))]);
    assert!(matches!(trust(vec![file, off]), Some(TrustSettings::Pins(_))));
}

#[test]
fn every_problem_is_named_with_its_source() {
    let text = "relay = 'http://x'\ntpm = 'maybe'\nstatus_listen = '0.0.0.0:1'\nlog = 'loud'\nstate_dir = ''\n\
                node_name = 'a b'\ntcti = '/dev/tpm0'\nwhen_final = 'never'";
    let problems = problem(text);
    for part in [
        "relay must",
        "tpm must",
        "status_listen must",
        "log must",
        "state_dir must",
        "node_name must",
        "tcti must",
        "when_final must",
    ] {
        assert!(problems.contains(&format!("/etc/bcd/bcd.toml: {part}")), "{part}: {problems}");
    }
    let flags = Fragment::from_flags(vec![("tpm", Value::Text("x".into()))]);
    let flagged = Settings::parse(&Merged::of(vec![flags])).unwrap_err().to_string();
    assert!(flagged.contains("flag: --tpm must"), "{flagged}");
}

#[test]
fn a_socket_that_the_kernel_cannot_bind_is_said_or_left_out() {
    let long = "x".repeat(120);
    assert!(problem(&format!("socket = '/{long}'")).contains("107 bytes"));
    assert_eq!(parse_toml(&format!("state_dir = '/{long}'")).unwrap().socket, None);
}

#[test]
fn a_dash_is_standard_input() {
    assert_eq!(parse_toml("token_file = '-'").unwrap().token_file, Some(TokenFile::StandardInput));
    assert_eq!(parse_toml("token_file = 't'").unwrap().token_file, Some(TokenFile::Path("t".into())));
}

#[test]
fn a_token_where_a_path_is_wanted_is_refused_and_never_shown() {
    let token = format!("bcjt_{0}.{0}", "k".repeat(52));
    for name in ["token_file", "state_dir", "ca_file", "relay", "node_name", "log"] {
        let text = format!("{name} = '{token}'");
        let said = problem(&text);
        assert!(
            said.contains(name) && said.contains("looks like a token") && !said.contains("kkk"),
            "{said}"
        );
        let origin = Origin::File(0, PathBuf::from("/etc/bcd/bcd.toml"));
        let shown = Merged::of(vec![Fragment::from_toml(origin, &text).unwrap()]).show(true);
        assert!(shown.contains(name) && !shown.contains("kkk"), "{shown}");
    }
}
