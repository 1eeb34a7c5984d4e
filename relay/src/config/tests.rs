//! Settings from all sources: who wins, what is refused, and that nothing shows a password.

use super::*;
use std::{collections::BTreeMap, fs};

/// Loads from a file's text, variables and flags.
fn load(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.toml");
    fs::write(&path, file).unwrap();
    let find = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let (env, flags) = (find(env), find(flags));
    Settings::load(&Sources {
        file: Some(path),
        default_file: Path::new("/nonexistent/relay.toml"),
        env: &|name| env.get(name).cloned(),
        flags: &|key| flags.get(&key.flag()).cloned(),
    })
}

fn message(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> String {
    load(file, env, flags).unwrap_err().to_string()
}

#[test]
fn defaults_are_those_of_the_contract() {
    let settings = load("data_dir = '/srv/relay'", &[], &[]).unwrap();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:8443");
    assert_eq!(settings.metrics_listen.to_string(), "127.0.0.1:9464");
    assert_eq!(settings.database_url.expose(), "sqlite:///srv/relay/relay.db");
    assert_eq!(settings.master_key_file, Path::new("/srv/relay/master.key"));
    let limits = settings.limits;
    assert_eq!(
        [
            limits.per_token_per_minute,
            limits.per_ip_per_minute,
            limits.health_per_minute,
            limits.join_per_ip_per_minute,
            limits.join_in_flight
        ]
        .map(NonZeroU32::get),
        [1000, 100, 3000, 6000, 256]
    );
    assert_eq!(settings.log, LogSettings { filter: "info".into(), format: LogFormat::Auto });
    let picked: SocketAddr = "127.0.0.1:41000".parse().unwrap();
    assert_eq!(settings.url_at(picked).to_string(), "https://127.0.0.1:41000");
    assert_eq!(settings.trust_domain_at(picked).unwrap().as_str(), "127.0.0.1");
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = "data_dir = '/f'\nlisten = '127.0.0.1:1'\nmetrics_listen = '127.0.0.1:1'\n[limits]\njoin_in_flight = 1\nper_ip_per_minute = 1";
    let env = [
        ("RELAY_METRICS_LISTEN", "127.0.0.1:2"),
        ("RELAY_LIMITS_JOIN_IN_FLIGHT", "2"),
        ("RELAY_LISTEN", "[::1]:2"),
    ];
    let flags = [("listen", "127.0.0.1:3"), ("limits.per-ip-per-minute", "3")];
    let settings = load(file, &env, &flags).unwrap();
    assert_eq!(settings.data_dir, Path::new("/f"));
    assert_eq!(settings.listen.port(), 3);
    assert_eq!(settings.metrics_listen.port(), 2);
    assert_eq!(settings.limits.join_in_flight.get(), 2);
    assert_eq!(settings.limits.per_ip_per_minute.get(), 3);
}

#[test]
fn unknown_keys_are_refused_with_file_and_key() {
    for (file, key) in [
        ("lisen = 'x'", "lisen "),
        ("[limits]\njoins = 1", "limits.joins "),
        ("[log]\nlevel = 'x'", "log must be a string"),
        ("limits = 3", "limits "),
        ("[other]\na = 1", "other "),
        ("\"limits.join_in_flight.x\" = 1", "limits.join_in_flight.x "),
    ] {
        let text = message(file, &[], &[]);
        assert!(text.contains("relay.toml: ") && text.contains(key), "{file}: {text}");
    }
}

#[test]
fn all_wrong_keys_of_a_file_are_said_at_once() {
    let said = message("data_dir = 1\nlistn = 'x'\n[limits]\njoin_in_flight = 'many'", &[], &[]);
    for part in
        ["data_dir must be a string", "listn is not a setting", "limits.join_in_flight must be an integer"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn every_error_names_setting_origin_and_rule_and_no_value() {
    let secret = "hunter2";
    let paths = [
        "data_dir",
        "master_key_file",
        "service_account_dir",
        "webhook_ca_file",
        "oidc.client_secret_file",
        "oidc.ca_file",
        "agent_image",
        "image_ca_file",
    ];
    for key in KEYS.iter().filter(|key| !paths.contains(&key.name)) {
        let value = format!("{secret} [ {secret}=");
        let by_flag = message("data_dir = '/d'", &[], &[(&key.flag(), &value)]);
        let by_env = message("data_dir = '/d'", &[(&key.env(), &value)], &[]);
        assert!(by_flag.starts_with(&format!("set {} (by --{}): ", key.name, key.flag())), "{by_flag}");
        assert!(by_env.starts_with(&format!("set {} (by {}): ", key.name, key.env())), "{by_env}");
        assert!(by_flag.contains("must be"), "{by_flag}");
        assert!(!by_flag.contains(secret) && !by_env.contains(secret), "{by_flag}");
    }
    let text = message("listen = '127.0.0.1:1'\ndatabase_url = postgres://u:hunter2@h/d", &[], &[]);
    assert!(text.contains("line 2") && !text.contains(secret), "{text}");
    assert!(message("", &[], &[]).contains("--data-dir"));
    assert!(message("data_dir = ''", &[], &[]).contains("must name a folder"));
    assert!(message("data_dir = 3", &[], &[]).contains("data_dir must be a string"));
    assert!(
        message("data_dir = '/d'\n[limits]\njoin_in_flight = '5'", &[], &[]).contains("must be an integer")
    );
}

#[test]
fn limits_hold_at_both_edges() {
    for (value, good) in
        [("0", false), ("1", true), ("1000000", true), ("1000001", false), ("-1", false), ("", false)]
    {
        let result = load("data_dir = '/d'", &[], &[("limits.join-in-flight", value)]);
        assert_eq!(result.is_ok(), good, "{value}");
    }
}

#[test]
fn the_file_is_named_that_a_password_came_from() {
    let from_file = |url: &str, env: &[(&str, &str)]| {
        load(&format!("data_dir = '/d'\ndatabase_url = '{url}'"), env, &[]).unwrap().password_file.is_some()
    };
    for (url, has) in [
        ("postgres://relay:hunter2@db.example/relay", true),
        ("postgres://db.example/relay?user=relay&password=hunter2", true),
        ("postgres://relay@db.example:5432/relay?sslmode=require", false),
        ("postgres://db.example:5432/relay", false),
        ("sqlite:///srv/a:b@c/relay.db", false),
    ] {
        assert_eq!(from_file(url, &[]), has, "{url}");
    }
    let env = [("RELAY_DATABASE_URL", "postgres://relay:hunter2@db.example/relay")];
    assert!(!from_file("postgres://relay@db.example/relay", &env), "it is the environment's");
}

#[test]
fn the_password_of_the_database_is_shown_nowhere() {
    let url = "postgres://fleet:hunter2@db.example:5432/relay?sslpassword=hunter2";
    let settings = load("data_dir = '/d'", &[("RELAY_DATABASE_URL", url)], &[]).unwrap();
    assert_eq!(settings.database_url.expose(), url);
    let shown = format!("{settings:?}");
    assert!(!shown.contains("hunter2") && shown.contains("postgres://db.example:5432/relay"), "{shown}");
}

#[test]
fn a_named_file_must_be_there_and_the_default_one_need_not() {
    let flags = |key: &Key| (key.name == "data_dir").then(|| "/d".to_owned());
    let absent = Path::new("/nonexistent/relay.toml");
    let load = |file: Option<PathBuf>, variable: Option<&str>| {
        let env = |name: &str| (name == "RELAY_CONFIG").then(|| variable.map(str::to_owned)).flatten();
        Settings::load(&Sources { file, default_file: absent, env: &env, flags: &flags })
    };
    assert!(load(None, None).is_ok());
    assert!(load(Some(absent.to_owned()), None).unwrap_err().to_string().contains("/nonexistent/relay.toml"));
    assert!(matches!(load(None, Some("/nonexistent/x")), Err(ConfigError::Read { .. })));
}

#[test]
fn a_credential_of_systemd_is_the_default_master_key() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let key_file = || {
        let settings = load("data_dir = '/d'", &[("CREDENTIALS_DIRECTORY", dir)], &[]).unwrap();
        settings.master_key_file
    };
    assert_eq!(key_file(), Path::new("/d/master.key"));
    fs::write(folder.path().join(seal::CREDENTIAL), "x").unwrap();
    assert_eq!(key_file(), folder.path().join(seal::CREDENTIAL));
}

#[test]
fn addresses_of_relays() {
    for (text, shown, host, port) in [
        ("https://Relay.Example", "https://relay.example", "relay.example", 443),
        ("https://relay.example/", "https://relay.example", "relay.example", 443),
        ("https://relay.example:443", "https://relay.example", "relay.example", 443),
        ("https://[::1]:8443", "https://[::1]:8443", "::1", 8443),
        ("https://127.0.0.1:1", "https://127.0.0.1:1", "127.0.0.1", 1),
    ] {
        let url: RelayUrl = text.parse().unwrap();
        assert_eq!((url.to_string().as_str(), url.host(), url.port()), (shown, host, port), "{text}");
        assert_eq!(url.to_string().parse(), Ok(url));
    }
    for text in [
        "",
        "relay.example",
        "http://relay.example",
        "https://",
        "https://:8443",
        "https://u@relay.example",
        "https://u:p@relay.example",
        "https://relay.example/api",
        "https://relay.example?x",
        "https://relay.example#x",
        "https://relay.example:0",
        "https://relay.example:65536",
        "https://relay.example:",
        "https://relay.example:+1",
        "https://relay.example//",
        "https://[::1",
        "https://[relay.example]",
        "https://[::1]8443",
        "https://relay example",
    ] {
        assert_eq!(text.parse::<RelayUrl>(), Err(InvalidRelayUrl), "{text}");
    }
    assert_eq!("https://[::1]:1".parse::<RelayUrl>().unwrap().trust_domain().unwrap().as_str(), "--1");
    for nobody in ["https://0.0.0.0:8443", "https://[::]:8443", "https://[::ffff:0.0.0.0]"] {
        let refused = nobody.parse::<RelayUrl>().unwrap().trust_domain().unwrap_err();
        assert!(refused.to_string().contains("--url"), "{nobody}: {refused}");
    }
    assert!("https://tenant.example".parse::<RelayUrl>().unwrap().trust_domain().is_err());
}

#[test]
fn a_provider_is_told_whole_or_not_at_all() {
    assert_eq!(load("data_dir = '/d'", &[], &[]).unwrap().oidc, None);
    let file = "data_dir = '/d'\n[oidc]\nissuer = 'https://id.example'\nclient_id = 'relay'\nkey = 'email'";
    let oidc = load(file, &[], &[]).unwrap().oidc.unwrap();
    assert_eq!((oidc.issuer.as_str(), oidc.client_id.as_str()), ("https://id.example", "relay"));
    assert_eq!((oidc.key, oidc.scopes.as_str()), (LoginKey::Email, "openid profile email"));
    for (file, missing) in [
        ("data_dir = '/d'\n[oidc]\nclient_id = 'relay'", "oidc.issuer"),
        ("data_dir = '/d'\n[oidc]\nissuer = 'https://id.example'", "oidc.client_id"),
    ] {
        assert!(message(file, &[], &[]).starts_with(&format!("set {missing}: it is required")));
    }
}
