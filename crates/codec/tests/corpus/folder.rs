//! Captures, their goldens and their descriptions.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// One capture.
pub(crate) struct Capture {
    /// The file name, without folder and extension.
    pub(crate) name: String,
    /// The extension.
    pub(crate) ending: String,
    /// The content.
    pub(crate) bytes: Vec<u8>,
    folder: PathBuf,
}

/// The folder of the corpus.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus")
}

/// The captures in one folder of the corpus with these extensions, sorted by name.
pub(crate) fn captures(folder: &str, endings: &[&str]) -> Vec<Capture> {
    let folder = root().join(folder);
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        // A golden has two extensions, a capture has one.
        if let Some((name, ending)) = file.split_once('.')
            && endings.contains(&ending)
        {
            found.push(Capture {
                name: name.to_owned(),
                ending: ending.to_owned(),
                bytes: fs::read(&path).unwrap(),
                folder: folder.clone(),
            });
        }
    }
    assert!(!found.is_empty(), "no captures in {}", folder.display());
    found.sort_by(|one, other| (&one.name, &one.ending).cmp(&(&other.name, &other.ending)));
    for pair in found.windows(2) {
        assert_ne!(pair[0].name, pair[1].name, "two captures share a golden");
    }
    found
}

impl Capture {
    /// A value of its `about.toml`, which is flat: one `key = value` per line.
    pub(crate) fn about(&self, key: &str) -> Option<String> {
        let path = self.folder.join(format!("{}.about.toml", self.name));
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|_| panic!("write {} for this capture", path.display()));
        text.lines().find_map(|line| {
            let value = line.strip_prefix(key)?.strip_prefix(" = ")?;
            Some(value.trim_matches('"').to_owned())
        })
    }

    /// Compares with the golden next to it.
    pub(crate) fn golden(&self, ending: &str, actual: &str) -> Result<(), String> {
        let path = self.folder.join(format!("{}.{ending}", self.name));
        golden(&path, Some(actual))
    }
}

/// Compares with a golden, or writes it if `BLESS` is set. Without a value, there must be no
/// golden. Returns the difference, so that one run shows all differences.
pub(crate) fn golden(path: &Path, actual: Option<&str>) -> Result<(), String> {
    let expected = fs::read_to_string(path).ok();
    if expected.as_deref() == actual {
        return Ok(());
    }
    if env::var_os("BLESS").is_some() {
        match actual {
            Some(actual) => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, actual).unwrap();
            }
            None => fs::remove_file(path).unwrap(),
        }
        return Ok(());
    }
    Err(format!(
        "{}:\n{}",
        path.strip_prefix(root()).unwrap_or(path).display(),
        difference(&expected.unwrap_or_default(), actual.unwrap_or_default())
    ))
}

/// Fails with all differences.
pub(crate) fn report(results: impl IntoIterator<Item = Result<(), String>>) {
    let wrong: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    assert!(
        wrong.is_empty(),
        "{} goldens differ (`-` golden, `+` now; `cargo xtask bless` rewrites them)\n\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The lines between the common start and the common end.
fn difference(expected: &str, actual: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (expected.lines().collect(), actual.lines().collect());
    let same = |one: &mut dyn Iterator<Item = (&&str, &&str)>| {
        one.take_while(|(old, new)| old == new).count()
    };
    let head = same(&mut old.iter().zip(&new));
    let tail = same(&mut old[head..].iter().rev().zip(new[head..].iter().rev()));
    let mut text = String::new();
    let _ = writeln!(text, "  line {}", head + 1);
    for line in &old[head..old.len() - tail] {
        let _ = writeln!(text, "  - {line}");
    }
    for line in &new[head..new.len() - tail] {
        let _ = writeln!(text, "  + {line}");
    }
    text
}

/// Folders with goldens only: the shared values as a dialect writes them.
const GOLDEN_ONLY: [&str; 2] = ["upstream_request", "client_reply"];

/// Every capture has a description, and every golden belongs to a capture.
#[test]
fn every_corpus_file_belongs_to_a_capture() {
    for dialect in fs::read_dir(root()).unwrap() {
        let dialect = dialect.unwrap().file_name().into_string().unwrap();
        // The folders of model text have another structure.
        if dialect == "text" {
            continue;
        }
        for folder in fs::read_dir(root().join(&dialect)).unwrap() {
            let folder = folder.unwrap().path();
            let name = folder.file_name().unwrap().to_str().unwrap();
            if !GOLDEN_ONLY.contains(&name) {
                check_folder(&folder, &format!("{dialect}/{name}"));
            }
        }
    }
}

fn check_folder(folder: &Path, name: &str) {
    let endings: &[&str] = match name.split_once('/') {
        Some(("canonical", "replies")) => &["events.jsonl"],
        Some((_, "malformed")) => &["jsonl"],
        _ => &["sse", "json"],
    };
    let known = captures(name, endings);
    for capture in &known {
        assert!(capture.about("special").is_some(), "{}", capture.name);
    }
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let (name, _) = file.split_once('.').unwrap();
        assert!(known.iter().any(|capture| capture.name == name), "{file} belongs to no capture");
    }
}
