//! Runs the fuzz targets of `fuzz/`. Each target is described in its own file.

use std::path::{Path, PathBuf};

use crate::Failure;
use crate::command;
use crate::workspace;

/// The version of cargo-fuzz that is installed if there is none.
const VERSION: &str = "0.13.2";

/// The corpus folders that seed each target.
const SEEDS: &[(&str, &[&str])] = &[
    ("anthropic_reply", &["corpus/anthropic/upstream_reply", "corpus/anthropic/client_reply"]),
    (
        "anthropic_request",
        &["corpus/anthropic/client_request", "corpus/anthropic/upstream_request"],
    ),
    (
        "dialect_replies",
        &[
            "corpus/anthropic/client_reply",
            "corpus/anthropic/upstream_reply",
            "corpus/gemini/client_reply",
            "corpus/ollama/client_reply",
            "corpus/openai_chat/client_reply",
            "corpus/openai_responses/client_reply",
        ],
    ),
    (
        "dialect_requests",
        &[
            "corpus/anthropic/client_request",
            "corpus/anthropic/upstream_request",
            "corpus/gemini/upstream_request",
            "corpus/ollama/upstream_request",
            "corpus/openai_chat/upstream_request",
            "corpus/openai_responses/upstream_request",
        ],
    ),
    ("sse", &["corpus/anthropic/upstream_reply"]),
];

/// `fuzz [TARGET] [--seconds N]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let (chosen, seconds) = read(arguments)?;
    let targets = targets()?;
    if let Some(name) = chosen
        && !targets.iter().any(|target| target == name)
    {
        return Err(format!("no fuzz target `{name}`; there are: {}", targets.join(", ")));
    }
    install_cargo_fuzz()?;
    for target in targets.iter().filter(|target| chosen.is_none_or(|name| name == *target)) {
        println!("\n=== fuzz {target} for {seconds} s");
        let mut fuzz = workspace::cargo();
        // Without a sanitizer the coverage flags are stable ones, so no nightly is needed.
        // Our code forbids `unsafe`, so we look for panics and failed assertions.
        fuzz.args(["fuzz", "run", "--sanitizer", "none", target]);
        fuzz.arg(format!("fuzz/corpus/{target}"));
        std::fs::create_dir_all(workspace::root().join("fuzz/corpus").join(target))
            .map_err(|error| format!("cannot make the corpus folder: {error}"))?;
        if target == "model_text" {
            model_text_seeds()?;
        }
        fuzz.args(seeds(target));
        fuzz.args([
            "--",
            "-dict=fuzz/words.dict",
            "-verbosity=0",
            "-print_final_stats=1",
            "-max_len=8192",
        ]);
        fuzz.arg(format!("-max_total_time={seconds}"));
        command::run(&mut fuzz)?;
    }
    Ok(())
}

/// Checks that the targets compile, without the minute that building libFuzzer takes.
pub(crate) fn check() -> Result<(), Failure> {
    let folder = workspace::target_directory()?.join("fuzz");
    // Nothing is linked, so an empty library can replace libFuzzer.
    let nothing = folder.join("libnothing.a");
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&nothing, []))
        .map_err(|error| format!("cannot write `{}`: {error}", nothing.display()))?;
    let manifest = ["--manifest-path", "fuzz/Cargo.toml"];
    command::run(workspace::cargo().arg("fmt").args(manifest).arg("--check"))?;
    command::run(
        workspace::cargo()
            .arg("clippy")
            .args(manifest)
            .arg("--target-dir")
            .arg(&folder)
            .args(["--", "-D", "warnings"])
            .env("CUSTOM_LIBFUZZER_PATH", &nothing),
    )
}

fn read<'a>(arguments: &[&'a str]) -> Result<(Option<&'a str>, u32), Failure> {
    let (mut target, mut seconds) = (None, 60);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if *argument == "--seconds" {
            seconds = rest
                .next()
                .and_then(|number| number.parse().ok())
                .ok_or("`--seconds` needs a whole number")?;
        } else if argument.starts_with('-') || target.is_some() {
            return Err(format!(
                "fuzz does not take `{argument}`; it takes one target and `--seconds N`"
            ));
        } else {
            target = Some(*argument);
        }
    }
    Ok((target, seconds))
}

/// The targets, which are the files of a folder.
fn targets() -> Result<Vec<String>, Failure> {
    let folder = workspace::root().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| format!("cannot list `{}`: {error}", folder.display()))?;
    let mut targets: Vec<String> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    targets.sort();
    Ok(targets)
}

fn seeds(target: &str) -> Vec<PathBuf> {
    SEEDS
        .iter()
        .filter(|(name, _)| *name == target)
        .flat_map(|(_, folders)| folders.iter())
        .map(Path::new)
        .filter(|folder| workspace::root().join(folder).is_dir())
        .map(Path::to_path_buf)
        .collect()
}

/// Writes seeds from the corpus of model text. The first line of a seed names the recipe that reads
/// its text.
fn model_text_seeds() -> Result<(), Failure> {
    let root = workspace::root();
    let failed = |error: std::io::Error| format!("cannot write seeds of model text: {error}");
    let about = |text: &str, key: &str| {
        text.lines().find_map(|line| {
            let value = line.strip_prefix(key)?.strip_prefix(" = ")?;
            Some(value.trim_matches('"').to_owned())
        })
    };
    for folder in std::fs::read_dir(root.join("corpus/text")).map_err(failed)? {
        let folder = folder.map_err(failed)?.path();
        for file in std::fs::read_dir(&folder).map_err(failed)? {
            let file = file.map_err(failed)?.path();
            if file.extension().is_none_or(|ending| ending != "txt") {
                continue;
            }
            let description =
                std::fs::read_to_string(file.with_extension("about.toml")).map_err(failed)?;
            let part = |key| about(&description, key).unwrap_or_default();
            let name = about(&description, "family")
                .unwrap_or_else(|| format!("{}/{}", part("reasoning"), part("tool_format")));
            let offered = if part("tools").is_empty() { "" } else { "+" };
            let text = std::fs::read(&file).map_err(failed)?;
            let seed = [format!("{name}{offered}\n").as_bytes(), &text].concat();
            let names = folder.file_name().zip(file.file_stem());
            let (folder, case) = names.unwrap_or_default();
            let seed_file = format!("seed-{}-{}", folder.display(), case.display());
            std::fs::write(root.join("fuzz/corpus/model_text").join(seed_file), seed)
                .map_err(failed)?;
        }
    }
    Ok(())
}

fn install_cargo_fuzz() -> Result<(), Failure> {
    if command::answers(workspace::cargo().args(["fuzz", "--version"])) {
        return Ok(());
    }
    println!("installing cargo-fuzz {VERSION} (first time only)");
    command::run(workspace::cargo().args([
        "install",
        "cargo-fuzz",
        "--version",
        VERSION,
        "--locked",
        "--quiet",
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_and_time_are_read_in_any_order() {
        assert_eq!(read(&[]), Ok((None, 60)));
        assert_eq!(read(&["sse", "--seconds", "5"]), Ok((Some("sse"), 5)));
        assert_eq!(read(&["--seconds", "5", "sse"]), Ok((Some("sse"), 5)));
    }

    #[test]
    fn rejects_a_time_that_is_not_a_number() {
        assert!(read(&["--seconds", "soon"]).is_err());
        assert!(read(&["--seconds"]).is_err());
    }
}
