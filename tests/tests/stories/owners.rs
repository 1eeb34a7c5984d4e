//! Files that are another user's: left behind by a command that root ran, by a backup that was put back, in a folder that the
//! service may not write. No start mends that, so the relay ends for good; it and its doctor name the file and the remedy. The
//! same for settings that were lost, and for what is no file at all. None of it depends on the database's kind.

use nix::unistd::{geteuid, mkfifo};
use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
};
use tests::{Finished, RelayProcess, finish, program};

/// The user that a service runs as here, if root runs the tests.
const NOBODY: u32 = 65_534;

/// A relay that has served and ended, its files a service's, and the program where that service can reach it.
struct Home {
    folder: tempfile::TempDir,
    data: PathBuf,
}

impl Home {
    fn new(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(program("relay").get_program(), folder.path().join("program")).unwrap();
        let all = [&["--metrics-listen", "127.0.0.1:0"], arguments].concat();
        let running = RelayProcess::start(folder.path(), None, &all);
        let data = running.data_dir().to_owned();
        assert_eq!(running.terminate(), Some(0));
        if geteuid().is_root() {
            give(&data, NOBODY);
        }
        Self { folder, data }
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(self.folder.path().join("program"));
        command.args(words.split(' ')).arg("--data-dir").arg(&self.data).env_clear().current_dir("/");
        command
    }

    /// As the service runs it.
    fn service(&self, words: &str) -> Finished {
        let mut command = self.command(words);
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        finish(command)
    }

    fn serve(&self, more: &str) -> Finished {
        self.service(format!("serve --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 {more}").trim_end())
    }
}

/// Gives a folder with all that is in it to this user.
fn give(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        give(&entry.path(), user);
    }
}

#[test]
fn files_of_another_user_end_the_relay_for_good_and_are_named_with_the_remedy() {
    let home = Home::new(&[]);
    for name in ["relay.db", "relay.db-wal", "master.key", "lock", "bootstrap", "."] {
        let path = home.data.join(name);
        let path = if name == "." { home.data.clone() } else { path };
        if !path.exists() {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let mode = fs::metadata(&path).unwrap().permissions();
        let remedy = if geteuid().is_root() {
            chown(&path, Some(0), Some(0)).unwrap();
            format!(": chown -h nobody:nogroup {}", path.display())
        } else {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
            "chmod u+rw".to_owned()
        };
        let ended = home.serve("");
        let looked = finish(home.command("doctor"));
        // Root's doctor has removed a log of SQLite's that was empty.
        if path.exists() {
            fs::set_permissions(&path, mode).unwrap();
        }
        if geteuid().is_root() {
            give(&home.data, NOBODY);
        }
        assert_eq!(ended.code, Some(1), "{name}: {ended}");
        for part in [path.to_str().unwrap(), "mode 0", " asks", &remedy] {
            assert!(ended.stderr.contains(part), "{name}: {part}: {ended}");
        }
        // Of a folder that is another's itself the doctor can't know better.
        if name != "." {
            assert_eq!(looked.code, Some(1), "{name}: {looked}");
            assert!(looked.stdout.contains("WRONG") && looked.stdout.contains(&remedy), "{name}: {looked}");
        }
        if name == "relay.db-wal" {
            drop(fs::remove_file(&path));
        }
    }
    let looked = finish(home.command("doctor"));
    assert!(looked.code == Some(0) && !looked.stdout.contains("chown"), "all is put right: {looked}");
}

#[test]
fn a_url_that_was_lost_ends_the_relay_and_is_wrong_to_the_doctor() {
    let home = Home::new(&["--url", "https://relay.example:8443"]);
    let lost = home.serve("");
    assert_eq!(lost.code, Some(1), "{lost}");
    for part in
        ["these settings have no url", "https://relay.example:8443", "/etc/relay/relay.toml", "rpmsave"]
    {
        assert!(lost.stderr.contains(part), "{part}: {lost}");
    }
    let looked = home.service("doctor");
    assert!(
        looked.code == Some(1) && looked.stdout.contains("WRONG url: these settings have no url"),
        "{looked}"
    );
    let told = home.service("doctor --url https://new.example");
    assert!(told.code == Some(0) && told.stdout.contains("ok    url: https://new.example"), "{told}");
}

#[test]
fn a_master_key_that_the_doctor_cannot_see_is_not_called_lost() {
    let home = Home::new(&[]);
    let credentials = home.folder.path().join("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::rename(home.data.join("master.key"), credentials.join("relay.master-key")).unwrap();
    let blind = home.service("doctor");
    assert_eq!(blind.code, Some(1), "{blind}");
    for part in
        ["master.key", "relay.master-key can be seen here", "systemd-run", "/run/credentials/relay.service"]
    {
        assert!(blind.stdout.contains(part), "{part}: {blind}");
    }
    let mut seeing = home.command("doctor");
    seeing.env("CREDENTIALS_DIRECTORY", &credentials);
    let seen = finish(seeing);
    assert!(seen.code == Some(0) && seen.stdout.contains("it opens the store"), "{seen}");
    let ended = home.serve("");
    assert!(ended.code == Some(1) && ended.stderr.contains("$CREDENTIALS_DIRECTORY"), "{ended}");
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let home = Home::new(&[]);
    let fifo = home.folder.path().join("fifo");
    mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fifo = fifo.display();
    for (words, code) in [
        (format!("doctor --config {fifo}"), 1),
        (format!("serve --config {fifo}"), 2),
        (format!("doctor --database-url sqlite://{fifo}"), 1),
        (format!("doctor --master-key-file {fifo}"), 1),
    ] {
        let ended = finish(home.command(&words));
        assert_eq!(ended.code, Some(code), "{words}: {ended}");
        assert!(ended.to_string().contains("it is a FIFO, and must be a file"), "{words}: {ended}");
    }
    let mut verb = Command::new(home.folder.path().join("program"));
    let words = format!("pools list --relay https://127.0.0.1:1 --token-file {fifo}");
    verb.args(words.split(' ')).env_clear();
    let ended = finish(verb);
    assert!(ended.code != Some(0) && ended.stderr.contains("it is a FIFO"), "{ended}");
}
