//! A committed migration never changes: a database that has run it does not run it again, and refuses
//! a changed one. `migrations.txt` lists each migration with its hash.

use sha2::{Digest, Sha256};

use super::{File, Finding};

/// One migration in each line: its path and the SHA-256 of its bytes.
const LISTED: &str = include_str!("../migrations.txt");
const LISTED_PATH: &str = "xtask/src/migrations.txt";

/// Finds migrations that have changed, that are missing, and that are not on the list.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    check_against(LISTED, files)
}

fn check_against(listed: &str, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rows: Vec<(&str, &str)> = listed.lines().filter_map(|line| line.split_once(' ')).collect();
    for file in files.iter().filter(|file| is_migration(&file.path)) {
        let hash = hash(&file.text);
        match rows.iter().find(|(path, _)| *path == file.path) {
            Some((_, known)) if *known == hash => {}
            Some(_) => findings.push(Finding::new(
                &file.path,
                1,
                "a committed migration has changed",
                "databases have run it: restore it, and write a new one with the next number",
            )),
            None => findings.push(Finding::new(
                &file.path,
                1,
                "a migration that is not on the list",
                format!("when it is final, add to `{LISTED_PATH}`: {} {hash}", file.path),
            )),
        }
    }
    for (index, (path, _)) in rows.iter().enumerate() {
        if !files.iter().any(|file| file.path == *path) {
            findings.push(Finding::new(
                LISTED_PATH,
                index + 1,
                format!("migration `{path}` is missing"),
                "databases have run it: restore it; a new migration can undo it",
            ));
        }
    }
    findings
}

/// `crates/backends/src/<store>/.../migrations/<name>.sql`
fn is_migration(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["crates", "backends", "src", _, .., "migrations", name] if name.ends_with(".sql"))
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "crates/backends/src/sqlite/migrations/0001_one.sql";
    const TWO: &str = "crates/backends/src/sqlite/migrations/0002_two.sql";
    /// The SHA-256 of `abc`, from FIPS 180-2.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn check_files(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() })
            .collect();
        check_against(&format!("{ONE} {ABC}\n"), &files)
            .into_iter()
            .map(|finding| (finding.what, finding.remedy))
            .collect()
    }

    #[test]
    fn changed_migration_is_found() {
        assert!(check_files(&[(ONE, "abc"), ("crates/backends/src/lib.rs", "")]).is_empty());
        let [(what, remedy)] = &check_files(&[(ONE, "abd")])[..] else {
            panic!("one finding");
        };
        assert!(what.contains("has changed"), "{what}");
        assert!(remedy.contains("write a new one"), "{remedy}");
    }

    #[test]
    fn unlisted_migration_is_found() {
        let [(what, remedy)] = &check_files(&[(ONE, "abc"), (TWO, "abc")])[..] else {
            panic!("one finding");
        };
        assert!(what.contains("not on the list"), "{what}");
        assert!(remedy.ends_with(&format!("{TWO} {ABC}")), "{remedy}");
    }

    #[test]
    fn missing_migration_is_found() {
        let [(what, _)] = &check_files(&[])[..] else {
            panic!("one finding");
        };
        assert_eq!(*what, format!("migration `{ONE}` is missing"));
    }
}
