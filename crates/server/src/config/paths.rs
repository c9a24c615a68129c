//! Paths: where the configuration file is searched, the default data directory, and what `~` means.
//! The only file of this module that reads the file system.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::diagnostic::Problem;

/// The environment as a value, so that tests do not depend on the real one.
pub(super) type Environment = BTreeMap<String, String>;

/// The file searched in the current directory.
const LOCAL_FILE: &str = "throughline.toml";

/// The text of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The name for messages.
    pub name: String,
    /// The TOML.
    pub text: String,
}

/// Why a configuration file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file does not exist.
    #[error("no such configuration file: `{}`", .0.display())]
    Missing(PathBuf),
    /// The file exists, but cannot be read.
    #[error("cannot read configuration file `{}`: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
}

impl Source {
    /// Reads a file; its path is its name.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path).map_err(|cause| unreadable(path, cause))?;
        Ok(Self { name: path.display().to_string(), text })
    }
}

/// Finds the configuration file: the explicit one, else `./throughline.toml`, else
/// `$XDG_CONFIG_HOME/throughline/config.toml` (or `~/.config/…`), else none.
pub fn locate(
    explicit: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Option<PathBuf>, FileError> {
    locate_in(Path::new(""), explicit, &env.into_iter().collect())
}

fn locate_in(
    current: &Path,
    explicit: Option<&Path>,
    env: &Environment,
) -> Result<Option<PathBuf>, FileError> {
    let exists = |path: &Path| path.try_exists().map_err(|cause| unreadable(path, cause));
    if let Some(path) = explicit {
        return match exists(path)? {
            true => Ok(Some(path.to_owned())),
            false => Err(FileError::Missing(path.to_owned())),
        };
    }
    let local = current.join(LOCAL_FILE);
    let personal =
        base(env, "XDG_CONFIG_HOME", ".config").map(|base| base.join("throughline/config.toml"));
    for path in std::iter::once(local).chain(personal) {
        if exists(&path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The default data directory: `$XDG_DATA_HOME/throughline` or `~/.local/share/throughline`.
pub(super) fn default_data_dir(env: &Environment) -> Option<PathBuf> {
    base(env, "XDG_DATA_HOME", ".local/share").map(|base| base.join("throughline"))
}

/// Resolves a path relative to the configuration file that names it.
pub(super) fn relative_to_source(source: Option<&Source>, path: &Path) -> PathBuf {
    let folder = source.and_then(|source| Path::new(&source.name).parent());
    folder.map_or_else(|| path.to_owned(), |folder| folder.join(path))
}

/// Replaces `~` at the start of a path by the home directory.
pub(super) fn expand(key: &str, path: &Path, env: &Environment) -> Result<PathBuf, Problem> {
    let Ok(rest) = path.strip_prefix("~") else {
        let other = path.to_str().filter(|text| text.starts_with('~'));
        return match other {
            Some(text) => Err(Problem::new(format!("`{key}` is `{text}`"))
                .expected("`~/` for your home directory, or a path without `~`")),
            None => Ok(path.to_owned()),
        };
    };
    match home(env) {
        Some(home) => Ok(home.join(rest)),
        None => Err(Problem::new(format!("`{key}` starts with `~`, but HOME is not set"))
            .hint("write the full path")),
    }
}

fn base(env: &Environment, variable: &str, under_home: &str) -> Option<PathBuf> {
    // The XDG specification says to ignore relative paths.
    let named = env.get(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    named.or_else(|| home(env).map(|home| home.join(under_home)))
}

fn home(env: &Environment) -> Option<PathBuf> {
    env.get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

fn unreadable(path: &Path, cause: std::io::Error) -> FileError {
    match cause.kind() {
        std::io::ErrorKind::NotFound => FileError::Missing(path.to_owned()),
        _ => FileError::Unreadable { path: path.to_owned(), cause },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// A directory that is removed at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir()
                .join(format!("throughline-config-{name}-{}", std::process::id()));
            std::fs::create_dir_all(path.join("home/.config/throughline")).unwrap();
            std::fs::create_dir_all(path.join("here")).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn local_file_wins_over_the_personal_one() {
        let scratch = Scratch::new("nearest");
        let (here, home) = (scratch.0.join("here"), scratch.0.join("home"));
        let env = environment(&[("HOME", home.to_str().unwrap())]);
        assert_eq!(locate_in(&here, None, &env).unwrap(), None);

        let personal = home.join(".config/throughline/config.toml");
        std::fs::write(&personal, "").unwrap();
        assert_eq!(locate_in(&here, None, &env).unwrap(), Some(personal.clone()));

        let local = here.join("throughline.toml");
        std::fs::write(&local, "").unwrap();
        assert_eq!(locate_in(&here, None, &env).unwrap(), Some(local));
        assert_eq!(locate_in(&here, Some(&personal), &env).unwrap(), Some(personal));
    }

    #[test]
    fn explicit_file_must_exist() {
        let path = Path::new("/nowhere/throughline.toml");
        let error = locate(Some(path), []).unwrap_err();
        assert_eq!(error.to_string(), "no such configuration file: `/nowhere/throughline.toml`");
        let error = Source::load(path).unwrap_err();
        assert_eq!(error.to_string(), "no such configuration file: `/nowhere/throughline.toml`");
    }

    #[test]
    fn base_directories_come_from_the_environment() {
        for (env, path) in [
            (environment(&[("HOME", "/h")]), Some("/h/.local/share/throughline")),
            (environment(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d")]), Some("/d/throughline")),
            (
                environment(&[("HOME", "/h"), ("XDG_DATA_HOME", "d")]),
                Some("/h/.local/share/throughline"),
            ),
            (environment(&[("HOME", "")]), None),
        ] {
            assert_eq!(default_data_dir(&env), path.map(PathBuf::from));
        }
    }

    #[test]
    fn only_a_leading_tilde_is_expanded() {
        let env = environment(&[("HOME", "/h")]);
        for (written, path) in
            [("~", "/h"), ("~/x", "/h/x"), ("x/~", "x/~"), ("state", "state"), ("/a", "/a")]
        {
            assert_eq!(
                expand("data_dir", Path::new(written), &env).unwrap(),
                Path::new(path),
                "{written}"
            );
        }
        assert!(expand("data_dir", Path::new("~other/x"), &env).is_err());
        assert!(expand("data_dir", Path::new("~/x"), &Environment::new()).is_err());
    }
}
