//! Captures, their goldens and their `about.toml`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;

/// One input file of the corpus.
pub(crate) struct Capture {
    /// Its file name, without folder and ending.
    pub(crate) name: String,
    /// Its ending.
    pub(crate) ending: String,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    folder: PathBuf,
}

/// The folder of the corpus.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus")
}

/// The captures of one folder that have one of these endings, by name. A folder that does not exist
/// has none.
pub(crate) fn captures(folder: &str, endings: &[&str]) -> Vec<Capture> {
    let folder = root().join(folder);
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        // A golden has two endings, a capture has one.
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
    found.sort_by(|one, other| (&one.name, &one.ending).cmp(&(&other.name, &other.ending)));
    for pair in found.windows(2) {
        assert_ne!(pair[0].name, pair[1].name, "two captures share a golden");
    }
    found
}

impl Capture {
    /// The path of the capture.
    pub(crate) fn path(&self) -> PathBuf {
        self.beside(&self.ending)
    }

    /// The path of the file with this ending beside the capture.
    pub(crate) fn beside(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.name))
    }

    /// A value of its `about.toml`, which is flat: one `key = value` a line.
    pub(crate) fn about(&self, key: &str) -> Option<String> {
        let text = fs::read_to_string(self.beside("about.toml")).ok()?;
        text.lines().find_map(|line| {
            let value = line.strip_prefix(key)?.strip_prefix(" = ")?;
            Some(value.trim_matches('"').to_owned())
        })
    }

    /// The rows of a table (`.jsonl`), one JSON value a line.
    pub(crate) fn rows(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.bytes).unwrap();
        let row = |(at, line)| {
            serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{}, line {}: {error}", self.name, at + 1))
        };
        text.lines().enumerate().map(row).collect()
    }

    /// Whether the capture is a table with one case a line.
    pub(crate) fn is_table(&self) -> bool {
        self.ending == "jsonl"
    }
}

/// What the rules have read, and what differs from its golden. One run shows all differences.
#[derive(Default)]
pub(crate) struct Findings {
    read: BTreeSet<PathBuf>,
    wrong: Vec<String>,
}

impl Findings {
    /// Records that a rule reads this file.
    pub(crate) fn read(&mut self, path: PathBuf) {
        self.read.insert(path);
    }

    /// Records a problem.
    pub(crate) fn fail(&mut self, problem: String) {
        self.wrong.push(problem);
    }

    /// Compares with a golden, or writes it if `BLESS` is set. Without a value there must be no
    /// golden.
    pub(crate) fn golden(&mut self, path: PathBuf, actual: Option<&str>) {
        let expected = fs::read_to_string(&path).ok();
        if expected.as_deref() != actual {
            if env::var_os("BLESS").is_none() {
                let name = path.strip_prefix(root()).unwrap_or(&path).display();
                let (expected, actual) = (expected.unwrap_or_default(), actual.unwrap_or_default());
                self.fail(format!("{name}:\n{}", difference(&expected, actual)));
            } else if let Some(actual) = actual {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, actual).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
        }
        self.read(path);
    }

    /// Fails with all problems, and with all files that no rule has read.
    pub(crate) fn report(mut self) {
        let mut unread = Vec::new();
        walk(&root(), &mut |path| {
            if !self.read.contains(path) {
                unread.push(path.strip_prefix(root()).unwrap().display().to_string());
            }
        });
        unread.sort();
        self.wrong
            .extend(unread.into_iter().map(|path| format!("{path}: no rule reads this file")));
        assert!(
            self.wrong.is_empty(),
            "{} problems (`-` golden, `+` now; `cargo xtask bless` rewrites the goldens)\n\n{}",
            self.wrong.len(),
            self.wrong.join("\n")
        );
    }
}

fn walk(folder: &Path, each: &mut dyn FnMut(&PathBuf)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, each);
        } else {
            each(&path);
        }
    }
}

/// JSON as goldens spell it.
pub(crate) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// One line of JSON for each value.
pub(crate) fn lines(values: impl IntoIterator<Item = Value>) -> String {
    values.into_iter().map(|value| format!("{value}\n")).collect()
}

/// The lines between the common beginning and the common end.
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
