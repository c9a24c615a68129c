//! Every file of the corpus is read by a test. Tests run in many processes, so what they read is
//! declared: each pattern in the table below names the test that reads its files.

use super::{File, Finding};

/// One pattern a line, and the source of the test that reads the files. `*` matches any
/// characters but `/`. The first pattern that matches a file counts.
const CLAIMS: &str = include_str!("corpus_files.txt");
const CLAIMS_PATH: &str = "xtask/src/tidy/corpus_files.txt";

/// Finds files that no test reads, and claims without files or without a test.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    check_against(CLAIMS, files)
}

struct Claim<'a> {
    line: usize,
    pattern: &'a str,
    test: &'a str,
}

fn read(claims: &str) -> Vec<Claim<'_>> {
    let rows = claims.lines().enumerate().filter_map(|(index, row)| {
        let mut words = row.split_whitespace();
        let pattern = words.next().filter(|first| !first.starts_with('#'))?;
        Some(Claim { line: index + 1, pattern, test: words.next().unwrap_or_default() })
    });
    rows.collect()
}

fn check_against(claims: &str, files: &[File]) -> Vec<Finding> {
    let claims = read(claims);
    let mut used = vec![false; claims.len()];
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with("corpus/")) {
        match claims.iter().position(|claim| matches(claim.pattern, &file.path)) {
            Some(index) => used[index] = true,
            None => findings.push(Finding::new(
                &file.path,
                1,
                "no test reads this file",
                format!("remove it, or let a test read it and name that test in `{CLAIMS_PATH}`"),
            )),
        }
    }
    for (claim, used) in claims.iter().zip(used) {
        let Claim { line, pattern, test } = claim;
        if !used {
            let what = format!("no file matches `{pattern}`");
            findings.push(Finding::new(CLAIMS_PATH, *line, what, "remove the line"));
        }
        if !files.iter().any(|file| file.path == *test) {
            let what = format!("test `{test}` does not exist");
            findings.push(Finding::new(CLAIMS_PATH, *line, what, "name the test's source"));
        }
    }
    findings
}

/// Whether a pattern matches a whole path.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) =
        (pattern.split('/').collect(), path.split('/').collect());
    pattern.len() == path.len()
        && pattern.iter().zip(&path).all(|(pattern, name)| matches_name(pattern, name))
}

fn matches_name(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    let mut ends = (0..=name.len()).filter(|at| name.is_char_boundary(*at));
    ends.any(|at| matches_name(rest, &name[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(claims: &str, paths: &[&str]) -> Vec<(String, String)> {
        let files: Vec<File> = paths
            .iter()
            .map(|path| File { path: (*path).to_owned(), text: String::new() })
            .collect();
        let findings = check_against(claims, &files).into_iter();
        findings.map(|finding| (finding.path, finding.what)).collect()
    }

    #[test]
    fn claimed_files_are_fine() {
        let claims = "# a comment\ncorpus/*/reply/*.sse  tests/reply.rs\n";
        assert!(found(claims, &["corpus/a/reply/x.sse", "tests/reply.rs"]).is_empty());
    }

    #[test]
    fn unclaimed_file_is_found() {
        let claims = "corpus/*/reply/*.sse tests/reply.rs\n";
        let paths = ["corpus/a/reply/x.sse", "corpus/a/reply/x.txt", "tests/reply.rs"];
        assert_eq!(found(claims, &paths).len(), 1);
        assert_eq!(found(claims, &paths)[0].0, "corpus/a/reply/x.txt");
    }

    #[test]
    fn claim_without_files_or_test_is_found() {
        let claims = "corpus/*/reply/*.sse tests/reply.rs\n";
        let whats: Vec<String> = found(claims, &[]).into_iter().map(|(_, what)| what).collect();
        assert_eq!(
            whats,
            ["no file matches `corpus/*/reply/*.sse`", "test `tests/reply.rs` does not exist"]
        );
    }

    #[test]
    fn star_stays_within_a_folder() {
        assert!(matches("corpus/*/b.*.json", "corpus/a/b.c.d.json"));
        assert!(!matches("corpus/*.json", "corpus/a/b.json"));
        assert!(!matches("corpus/*/b", "corpus/a/bc"));
    }
}
