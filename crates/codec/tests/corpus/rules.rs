//! The table of the corpus: which folder is checked how.
//!
//! A row names a folder. `{client}` is replaced by each dialect of clients, `{upstream}` by each
//! dialect of providers, `{family}` by each family of model text. A new dialect needs no new row.

use std::fs;

use throughline_codec::dialects::{CLIENT, UPSTREAM};

use super::folder::{Capture, Findings, captures, root};
use super::{
    anthropic_request, client_reply, client_request, malformed, refusal, shared, text,
    upstream_reply, upstream_request,
};

/// How the files of a folder are checked.
struct Rule {
    /// The folder, with a placeholder for the names it is repeated for.
    folder: &'static str,
    /// The endings of its inputs. All other files are goldens, which the check compares.
    inputs: &'static [&'static str],
    /// The keys that the `about.toml` of each input must have.
    about: &'static [&'static str],
    /// Compares each input with its goldens.
    check: fn(&Folder, &mut Findings),
}

/// One folder of the corpus.
pub(crate) struct Folder {
    /// The dialect or the family.
    pub(crate) name: String,
    /// Its path in the corpus.
    pub(crate) path: String,
    /// Its inputs.
    pub(crate) captures: Vec<Capture>,
}

/// What every capture of a dialect says about itself: `kind` is `recording` or `written`.
const CAPTURE: &[&str] = &["special", "kind"];
/// What a recording says too.
const RECORDING: &[&str] = &["date", "cut"];
const SPECIAL: &[&str] = &["special"];

#[rustfmt::skip]
static RULES: &[Rule] = &[
    Rule { folder: "canonical/requests",          inputs: &["json"],         about: SPECIAL, check: shared::check_requests },
    Rule { folder: "canonical/replies",           inputs: &["events.jsonl"], about: SPECIAL, check: shared::check_replies },
    Rule { folder: "canonical/sessions",          inputs: &["json"],         about: SPECIAL, check: shared::check_requests },
    Rule { folder: "{client}/client_request",     inputs: &["json", "jsonl"], about: CAPTURE, check: client_request::check },
    Rule { folder: "{client}/client_reply",       inputs: &["jsonl"],        about: CAPTURE, check: client_reply::check },
    Rule { folder: "{client}/malformed",          inputs: &["jsonl"],        about: SPECIAL, check: malformed::check },
    Rule { folder: "{upstream}/upstream_request", inputs: &["jsonl"],        about: CAPTURE, check: upstream_request::check },
    Rule { folder: "{upstream}/upstream_reply",   inputs: upstream_reply::INPUTS, about: CAPTURE, check: upstream_reply::check },
    Rule { folder: "{upstream}/refusal",          inputs: &["json", "jsonl"], about: CAPTURE, check: refusal::check },
    Rule { folder: "anthropic/client_request",    inputs: &["json"],         about: CAPTURE, check: anthropic_request::check },
    Rule { folder: "text/{family}",               inputs: &["txt"],          about: &["about"], check: text::check },
    Rule { folder: "text/tools",                  inputs: &["json"],         about: &[],     check: text::check_tools },
];

impl Rule {
    fn folders(&self) -> Vec<Folder> {
        let names: Vec<String> = if self.folder.contains("{client}") {
            CLIENT.iter().map(|dialect| dialect.name().to_owned()).collect()
        } else if self.folder.contains("{upstream}") {
            UPSTREAM.iter().map(|dialect| dialect.name().to_owned()).collect()
        } else if self.folder.contains("{family}") {
            text::families()
        } else {
            vec![self.folder.split('/').next().unwrap().to_owned()]
        };
        let folder = |name: String| {
            let path = ["{client}", "{upstream}", "{family}"]
                .iter()
                .fold(self.folder.to_owned(), |path, place| path.replace(place, &name));
            let captures = captures(&path, self.inputs);
            Folder { name, path, captures }
        };
        names.into_iter().map(folder).collect()
    }

    fn run(&self, findings: &mut Findings) {
        for folder in self.folders() {
            if !root().join(&folder.path).is_dir() {
                findings.fail(format!("{}: the folder is missing", folder.path));
            }
            for capture in &folder.captures {
                findings.read(capture.path());
                if !self.about.is_empty() {
                    findings.read(capture.beside("about.toml"));
                    self.check_about(&folder, capture, findings);
                }
            }
            (self.check)(&folder, findings);
        }
    }

    fn check_about(&self, folder: &Folder, capture: &Capture, findings: &mut Findings) {
        let kind = capture.about("kind");
        let more = if kind.as_deref() == Some("recording") { RECORDING } else { &[] };
        for key in self.about.iter().chain(more) {
            if capture.about(key).is_none_or(|value| value.is_empty()) {
                let file = format!("{}/{}.about.toml", folder.path, capture.name);
                findings.fail(format!("{file}: `{key}` is missing"));
            }
        }
        if let Some(kind) = kind.filter(|kind| kind != "recording" && kind != "written") {
            let file = format!("{}/{}.about.toml", folder.path, capture.name);
            findings.fail(format!("{file}: `kind` is `recording` or `written`, not `{kind}`"));
        }
    }
}

/// The only test that compares goldens: it runs every rule, then fails on files that no rule has read.
///
/// Covers: S1-14, S1-16, S1-25, S1-26, S1-27, S1-30, case 8, case 12, case 13
/// Covers: S3-16, S2-15, S2-18, S2-19, S2-20, S2-21, S2-26, S2-27, S2-29, S2-30, S2-32, S2-45, S3-14,
/// C-24
/// Covers: S2-2, S2-3, S2-4, S2-5, S2-9, S2-10, S2-12, S2-23, S2-24, S2-25, S2-28, S2-41, S2-42, S2-43
/// Covers: C-11, C-23, S0-11, S0-12, S0-13, S0-14, S4-8, S4-9, S4-18, S4-19, case 31, case 33
#[test]
fn every_file_is_read_and_equals_its_golden() {
    let mut findings = Findings::default();
    for rule in RULES {
        rule.run(&mut findings);
    }
    findings.report();
}

/// An empty folder would prove nothing.
#[test]
fn every_dialect_has_requests_and_every_upstream_has_replies() {
    let has = |dialect: &str, folder: &str| {
        let path = root().join(dialect).join(folder);
        assert!(fs::read_dir(&path).is_ok_and(|mut files| files.next().is_some()), "{path:?}");
    };
    for dialect in CLIENT {
        has(dialect.name(), "client_request");
    }
    for dialect in UPSTREAM {
        has(dialect.name(), "upstream_reply");
        has(dialect.name(), "refusal");
    }
}
