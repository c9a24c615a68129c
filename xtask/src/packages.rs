//! Packages of other languages, installed into cargo's target folder from pins
//! in the repository and kept until the pins change. What they are for is
//! their user's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::command;
use crate::workspace;

/// Enough for a slow mirror; an installer that hangs must not hold up everything.
const PATIENCE: Duration = Duration::from_secs(600);

/// What installers say when the registry cannot be reached, whatever else they
/// conclude from it. A package that is missing or broken does not read so.
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

/// Why packages are not there.
pub(crate) enum Missing {
    /// The registry cannot be reached, which says nothing about us.
    Unreachable(String),
    /// Anything else.
    Failed(Failure),
}

impl From<Failure> for Missing {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A virtual environment with what `requirements` pins; answers its interpreter.
///
/// The requirements name all packages there are, so none is looked for besides.
pub(crate) fn python(name: &str, requirements: &Path) -> Result<PathBuf, Missing> {
    let folder = workspace::target_directory()?.join(name);
    let python = folder.join("bin/python");
    let pins = read(requirements)?;
    if is_installed(&folder, &pins) {
        return Ok(python);
    }
    println!("installing Python packages into {} (first time only)", folder.display());
    have("python3", "install Python 3.11 or newer")?;
    let mut environment = Command::new("python3");
    environment.args(["-m", "venv", "--clear"]).arg(&folder);
    install(&mut environment)?;
    let mut packages = Command::new(&python);
    packages.args(["-m", "pip", "install", "--disable-pip-version-check"]);
    packages.args(["--no-deps", "--retries", "2", "-r"]);
    install(packages.arg(requirements))?;
    mark_installed(&folder, &pins)?;
    Ok(python)
}

/// A folder with what `source/package-lock.json` pins, and beside it the
/// scripts of `source` and `source/sdks`, which find the packages only from there.
pub(crate) fn node(name: &str, source: &Path) -> Result<PathBuf, Missing> {
    let folder = workspace::target_directory()?.join(name);
    make(&folder)?;
    let lock = source.join("package-lock.json");
    let pins = read(&lock)?;
    if !is_installed(&folder, &pins) {
        println!("installing Node packages into {} (first time only)", folder.display());
        have("node", "install Node 20 or newer")?;
        have("npm", "install Node with npm")?;
        copy(&source.join("package.json"), &folder)?;
        copy(&lock, &folder)?;
        let mut packages = Command::new("npm");
        // Nothing here needs to be built, so no package's script has to run.
        packages.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        packages.args(["--fetch-retries", "2", "--loglevel", "error"]);
        install(packages.current_dir(&folder))?;
        mark_installed(&folder, &pins)?;
    }
    let sdks = folder.join("sdks");
    // A script that is gone from the source must not go on running.
    if sdks.exists() {
        std::fs::remove_dir_all(&sdks)
            .map_err(|error| format!("cannot empty `{}`: {error}", sdks.display()))?;
    }
    make(&sdks)?;
    for script in scripts(source, "js")? {
        copy(&script, &folder)?;
    }
    for script in scripts(&source.join("sdks"), "js")? {
        copy(&script, &sdks)?;
    }
    Ok(folder)
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
    command::quietly(command, PATIENCE).map_err(|failure| {
        match UNREACHABLE.iter().find(|word| failure.contains(**word)) {
            Some(word) => Missing::Unreachable(format!("the package registry answers {word}")),
            None => Missing::Failed(failure),
        }
    })
}

fn have(program: &str, hint: &str) -> Result<(), Failure> {
    if command::answers(Command::new(program).arg("--version")) {
        Ok(())
    } else {
        Err(format!("`{program}` is not here: {hint}"))
    }
}

fn is_installed(folder: &Path, pins: &str) -> bool {
    std::fs::read_to_string(folder.join("installed.txt")).is_ok_and(|text| text == pins)
}

/// Called last: a broken install is tried again.
fn mark_installed(folder: &Path, pins: &str) -> Result<(), Failure> {
    let mark = folder.join("installed.txt");
    std::fs::write(&mark, pins)
        .map_err(|error| format!("cannot write `{}`: {error}", mark.display()))
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
        return Err(format!("`{}` is no file", file.display()));
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
    fn a_registry_that_cannot_be_reached_is_no_failure_of_ours() {
        let said = "echo 'npm error code EAI_AGAIN' >&2; exit 1";
        assert!(
            matches!(outcome(said), Err(Missing::Unreachable(reason)) if reason.contains("EAI_AGAIN"))
        );
    }

    #[test]
    fn any_other_failure_is_told_with_what_the_installer_printed() {
        let said = "echo 'ERROR: No matching distribution found for openai==0.0.0'; exit 1";
        assert!(
            matches!(outcome(said), Err(Missing::Failed(failure)) if failure.contains("openai==0.0.0"))
        );
    }

    #[test]
    fn packages_are_there_only_while_the_pins_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_installed(folder.path(), "a==1"));
        mark_installed(folder.path(), "a==1").unwrap();
        assert!(is_installed(folder.path(), "a==1"));
        assert!(!is_installed(folder.path(), "a==2"));
    }

    #[test]
    fn committed_pins_are_exact_and_name_no_registry() {
        let conformance = workspace::root().join("conformance");
        for file in ["python/requirements.txt", "real-model/requirements.txt"] {
            let text = read(&conformance.join(file)).unwrap();
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                assert!(line.contains("=="), "{file}: `{line}` is no exact version");
            }
        }
        let lock = read(&conformance.join("node/package-lock.json")).unwrap();
        assert!(!lock.contains("\"resolved\""), "the lock names a registry");
    }
}
