//! A private Postgres server for tests: a new data directory, a free port on loopback, and one
//! database for each test.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::server_process::{SERVE, ServerProcess, free_port};

/// Where Debian keeps the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that owns the data if the tests run as root, which Postgres refuses.
const USER: &str = "postgres";
/// How long a start may take on a busy machine.
const MAX_START: Duration = Duration::from_secs(60);

/// The server that the tests of this process share.
static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

/// A running Postgres server.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    port: u16,
    server: ServerProcess,
    databases: AtomicUsize,
    folder: TempDir,
}

/// A database of its own.
#[derive(Debug)]
pub struct PostgresDatabase {
    /// Its address.
    pub url: String,
    /// Its server, which ends with its last database.
    pub server: Arc<Postgres>,
}

impl PostgresDatabase {
    /// An empty database on the server that the tests of this process share.
    pub fn new() -> Self {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let server = shared.upgrade().unwrap_or_else(|| Arc::new(Postgres::start()));
        *shared = Arc::downgrade(&server);
        Self::on(server)
    }

    /// An empty database on a server that this test may stop.
    pub fn with_own_server() -> Self {
        Self::on(Arc::new(Postgres::start()))
    }

    fn on(server: Arc<Postgres>) -> Self {
        let number = server.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        let port = server.port.to_string();
        let mut create = Command::new(server.programs.join("createdb"));
        create.args(["--host", "127.0.0.1", "--port", &port, "--username", USER, &name]);
        run(&mut create);
        Self { url: format!("postgres://{USER}@127.0.0.1:{port}/{name}"), server }
    }
}

impl Default for PostgresDatabase {
    fn default() -> Self {
        Self::new()
    }
}

impl Postgres {
    /// Starts a server with an empty data directory.
    fn start() -> Self {
        let programs = programs().unwrap_or_else(|| {
            panic!("Postgres is not installed: run `apt-get install postgresql`, or put `initdb` into the PATH")
        });
        let folder = tempfile::tempdir().expect("a folder");
        if let Some((user, group)) = other_user() {
            chown(folder.path(), Some(user), Some(group)).expect("the folder gets another owner");
        }
        let data = folder.path().join("data");
        let mut create = as_other_user(&programs.join("initdb"));
        create.args(["--no-sync", "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]);
        run(create.args(["--username", USER, "--pgdata"]).arg(&data));
        let port = free_port();
        let server = Self {
            programs,
            port,
            server: ServerProcess::default(),
            databases: AtomicUsize::new(0),
            folder,
        };
        server.restart();
        server
    }

    /// Stops the server without a shutdown, as if its machine were lost.
    ///
    /// # Panics
    /// If the server does not end.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Starts the server again, with the same data and on the same port.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn restart(&self) {
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a log");
        let mut command = as_other_user(Path::new("/bin/sh"));
        command.args(["-c", SERVE, "sh"]).arg(self.programs.join("postgres"));
        command.arg("-D").arg(self.folder.path().join("data"));
        command.arg("-k").arg(self.folder.path()).args(["-p", &self.port.to_string()]);
        // What a crash of the machine would lose does not matter here. What a crash of the server
        // would lose does: a test may stop it.
        for setting in ["fsync=off", "full_page_writes=off"] {
            command.args(["-c", setting]);
        }
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB"]);
        self.server.start(command.stderr(log));
        let began = Instant::now();
        let port = self.port.to_string();
        let mut check = Command::new(self.programs.join("pg_isready"));
        check.args(["--host", "127.0.0.1", "--port", &port]).stdout(Stdio::null());
        while !check.status().expect("pg_isready runs").success() {
            let log = || std::fs::read_to_string(self.folder.path().join("log"));
            assert!(began.elapsed() < MAX_START, "Postgres did not start: {:?}", log());
        }
    }
}

/// The folder with the programs: the newest version of Debian's folders, or one of the PATH.
fn programs() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let newest = versions.into_iter().rev().map(|(_, folder)| folder);
    newest
        .chain(std::env::split_paths(&path))
        .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}

/// A command that runs as another user if we are root.
fn as_other_user(program: &Path) -> Command {
    let mut command = Command::new(program);
    // Postgres goes back to the folder it was started in, so that must be readable.
    command.current_dir("/");
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command
}

/// The user and the group that own the data, if we are root.
fn other_user() -> Option<(u32, u32)> {
    if id(&["-u"]) != Some(0) {
        return None;
    }
    let ids = (id(&["-u", USER]), id(&["-g", USER]));
    let (Some(user), Some(group)) = ids else {
        panic!("Postgres does not run as root, and there is no user `{USER}`");
    };
    Some((user, group))
}

fn id(arguments: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(arguments).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

fn run(command: &mut Command) {
    let output = command.output().expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {error}");
}
