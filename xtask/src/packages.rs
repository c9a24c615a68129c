//! Installs Python and Node packages into cargo's target folder. The repository pins their versions;
//! they are installed again when the pins change. Servers that tests start come from Debian.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::command;
use crate::workspace;

/// Long enough for a slow mirror, so that an installer that hangs does not block CI.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Parts of the messages that installers print when the registry cannot be reached. They do not print
/// these when a package is missing or broken.
const UNREACHABLE: &[&str] = &[
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
    "Failed to resolve",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "ETIMEDOUT",
];

/// Why packages are not installed.
pub(crate) enum Missing {
    /// The registry cannot be reached: no failure of our code.
    Unreachable(String),
    /// Anything else.
    Failed(Failure),
}

impl From<Failure> for Missing {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Installs a package of Debian.
pub(crate) fn debian(package: &str) -> Result<(), Failure> {
    println!("installing {package} (first time only)");
    command::output(Command::new("apt-get").arg("update"))?;
    command::output(
        Command::new("apt-get")
            .args(["install", "--yes", "--no-install-recommends", package])
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
    .map(drop)
}

/// Installs Postgres, which tests start as a private server, if it is missing.
pub(crate) fn postgres() -> Result<(), Failure> {
    let in_path = command::answers(Command::new("initdb").arg("--version"));
    if in_path || Path::new("/usr/lib/postgresql").exists() {
        return Ok(());
    }
    debian("postgresql")
}

/// Installs Redis, which tests start as a private server, if it is missing.
pub(crate) fn redis() -> Result<(), Failure> {
    let is_missing = |program: &&str| !command::answers(Command::new(program).arg("--version"));
    match ["redis-server", "redis-cli"].iter().any(is_missing) {
        true => debian("redis-server"),
        false => Ok(()),
    }
}

/// Makes a virtual environment with the packages of `requirements`; returns its interpreter.
///
/// The requirements list all packages, so the installer does not resolve dependencies.
pub(crate) fn python(name: &str, requirements: &Path) -> Result<PathBuf, Missing> {
    let folder = workspace::target_directory()?.join(name);
    let python = folder.join("bin/python");
    let pins = read(requirements)?;
    if is_installed(&folder, &pins) {
        return Ok(python);
    }
    println!("installing Python packages into {} (first time only)", folder.display());
    require("python3", "install Python 3.11 or newer")?;
    let mut environment = Command::new("python3");
    environment.args(["-m", "venv", "--clear"]).arg(&folder);
    install(&mut environment)?;
    let mut packages = Command::new(&python);
    packages.args(["-m", "pip", "install", "--disable-pip-version-check"]);
    packages.args(["--no-deps", "--retries", "2", "-r"]);
    install(packages.arg(requirements))?;
    record_installed(&folder, &pins)?;
    Ok(python)
}

/// Makes a folder with the packages of `source/package-lock.json` and copies of the scripts of
/// `source` and `source/sdks`: Node finds packages only from there.
pub(crate) fn node(name: &str, source: &Path) -> Result<PathBuf, Missing> {
    let folder = workspace::target_directory()?.join(name);
    make(&folder)?;
    let lock = source.join("package-lock.json");
    let pins = read(&lock)?;
    if !is_installed(&folder, &pins) {
        println!("installing Node packages into {} (first time only)", folder.display());
        require("node", "install Node 20 or newer")?;
        require("npm", "install Node with npm")?;
        copy(&source.join("package.json"), &folder)?;
        copy(&lock, &folder)?;
        let mut packages = Command::new("npm");
        // No package has to be built, so no script of a package has to run.
        packages.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        packages.args(["--fetch-retries", "2", "--loglevel", "error"]);
        install(packages.current_dir(&folder))?;
        record_installed(&folder, &pins)?;
    }
    for script in scripts(source, "js")? {
        copy(&script, &folder)?;
    }
    copy_scripts(&source.join("sdks"), &folder.join("sdks"))?;
    Ok(folder)
}

/// Installs the packages of `folder/package-lock.json` in that folder itself. The build of the server does the
/// same, and leaves the same copy of the lockfile.
pub(crate) fn node_in_place(folder: &Path) -> Result<(), Missing> {
    let pins = read(&folder.join("package-lock.json"))?;
    let installed = folder.join("node_modules/.installed.json");
    if std::fs::read_to_string(&installed).is_ok_and(|text| text == pins) {
        return Ok(());
    }
    println!("installing Node packages into {} (first time only)", folder.display());
    require("npm", "install Node 20.19 or newer with npm")?;
    let mut packages = Command::new("npm");
    packages.args(["ci", "--no-audit", "--no-fund", "--fetch-retries", "2", "--loglevel", "error"]);
    install(packages.current_dir(folder))?;
    std::fs::write(&installed, pins)
        .map_err(|error| format!("cannot write `{}`: {error}", installed.display()).into())
}

/// Copies the scripts for Node of one folder to another, which has no others afterwards.
pub(crate) fn copy_scripts(source: &Path, folder: &Path) -> Result<(), Failure> {
    // A script that was removed from the source must not run again.
    if folder.exists() {
        std::fs::remove_dir_all(folder)
            .map_err(|error| format!("cannot empty `{}`: {error}", folder.display()))?;
    }
    make(folder)?;
    for script in scripts(source, "js")? {
        copy(&script, folder)?;
    }
    Ok(())
}

/// The files in a folder that end in `extension`, by name.
pub(crate) fn scripts(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let listed = std::fs::read_dir(folder)
        .map_err(|error| format!("cannot list `{}`: {error}", folder.display()))?;
    let mut found: Vec<PathBuf> = listed
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|its| its == extension))
        .collect();
    found.sort();
    Ok(found)
}

fn install(command: &mut Command) -> Result<(), Missing> {
    command::run_quietly(command, INSTALL_TIMEOUT).map_err(|failure| {
        match UNREACHABLE.iter().find(|part| failure.contains(**part)) {
            Some(part) => {
                Missing::Unreachable(format!("the package registry cannot be reached: {part}"))
            }
            None => Missing::Failed(failure),
        }
    })
}

fn require(program: &str, hint: &str) -> Result<(), Failure> {
    if command::answers(Command::new(program).arg("--version")) {
        Ok(())
    } else {
        Err(format!("`{program}` is not installed: {hint}"))
    }
}

fn is_installed(folder: &Path, pins: &str) -> bool {
    std::fs::read_to_string(folder.join("installed.txt")).is_ok_and(|text| text == pins)
}

/// Records the pins. It is called last, so that a broken install is tried again.
fn record_installed(folder: &Path, pins: &str) -> Result<(), Failure> {
    let file = folder.join("installed.txt");
    std::fs::write(&file, pins)
        .map_err(|error| format!("cannot write `{}`: {error}", file.display()))
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read `{}`: {error}", path.display()))
}

fn make(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make `{}`: {error}", folder.display()))
}

fn copy(file: &Path, folder: &Path) -> Result<(), Failure> {
    let Some(name) = file.file_name() else {
        return Err(format!("`{}` is not a file", file.display()));
    };
    std::fs::copy(file, folder.join(name)).map(drop).map_err(|error| {
        format!("cannot copy `{}` to `{}`: {error}", file.display(), folder.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(script: &str) -> Result<(), Missing> {
        install(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn unreachable_registry_is_not_a_failure() {
        let script = "echo 'npm error code EAI_AGAIN' >&2; exit 1";
        assert!(
            matches!(outcome(script), Err(Missing::Unreachable(reason)) if reason.contains("EAI_AGAIN"))
        );
    }

    #[test]
    fn other_failure_shows_the_output_of_the_installer() {
        let script = "echo 'ERROR: No matching distribution found for openai==0.0.0'; exit 1";
        assert!(
            matches!(outcome(script), Err(Missing::Failed(failure)) if failure.contains("openai==0.0.0"))
        );
    }

    #[test]
    fn packages_are_installed_again_when_the_pins_change() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_installed(folder.path(), "a==1"));
        record_installed(folder.path(), "a==1").unwrap();
        assert!(is_installed(folder.path(), "a==1"));
        assert!(!is_installed(folder.path(), "a==2"));
    }

    #[test]
    fn pins_are_exact_and_name_no_registry() {
        let conformance = workspace::root().join("conformance");
        for file in ["python/requirements.txt", "real-model/requirements.txt"] {
            let text = read(&conformance.join(file)).unwrap();
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                assert!(line.contains("=="), "{file}: `{line}` is not an exact version");
            }
        }
        let lock = read(&conformance.join("node/package-lock.json")).unwrap();
        assert!(!lock.contains("\"resolved\""), "the lock names a registry");
    }
}
