//! Builds the web page and writes the list of its files, which `src/web_page` embeds.
//!
//! Without Node, or if the page cannot be built, the build goes on with a warning and an empty list. The server
//! then shows a plain page that says how to get the full one.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the page is made of, in the folder `web`.
const SOURCES: &[&str] = &[
    "src",
    "public",
    "index.html",
    "package.json",
    "package-lock.json",
    "svelte.config.js",
    "tsconfig.json",
    "vite.config.ts",
];

const LOCKFILE: &str = "package-lock.json";
/// The lockfile of the installed packages.
const INSTALLED: &str = "node_modules/.installed.json";

fn main() {
    let out = PathBuf::from(variable("OUT_DIR"));
    let web = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../../web");
    println!("cargo::rerun-if-changed=build.rs");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", web.join(source).display());
    }
    let page = out.join("page");
    let built = if std::env::var_os("CARGO_FEATURE_WEB").is_some() {
        build_page(&web, &page)
    } else {
        Err(Unbuilt::Off)
    };
    let files = match built {
        Ok(()) => files_under(&page),
        Err(reason) => {
            reason.report(&page);
            Vec::new()
        }
    };
    let list = out.join("page_files.rs");
    fs::write(&list, rust_list(&page, files)).unwrap_or_else(|error| {
        panic!("cannot write {}: {error}", list.display());
    });
}

/// Why there is no page.
enum Unbuilt {
    /// The feature is off.
    Off,
    NoNode,
    Failed(String),
}

impl Unbuilt {
    /// Warns, and says when to try again.
    fn report(self, page: &Path) {
        let reason = match self {
            Self::Off => return,
            Self::NoNode => {
                // As soon as something was installed, it may be Node.
                let path = std::env::var_os("PATH").unwrap_or_default();
                for folder in std::env::split_paths(&path).filter(|folder| folder.is_dir()) {
                    println!("cargo::rerun-if-changed={}", folder.display());
                }
                "Node is not installed (20.19 or newer is needed)".to_owned()
            }
            Self::Failed(reason) => {
                // With the next build: a file that is missing always counts as changed.
                println!("cargo::rerun-if-changed={}", page.join("missing").display());
                reason
            }
        };
        println!("cargo::warning=the web page is not part of this build: {reason}");
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// Installs the packages if they have changed, and builds the page into `page`.
fn build_page(web: &Path, page: &Path) -> Result<(), Unbuilt> {
    if !web.join("package.json").exists() {
        return Err(Unbuilt::Failed("the folder `web` is missing".into()));
    }
    if Command::new("npm").arg("--version").output().is_err() {
        return Err(Unbuilt::NoNode);
    }
    if !is_installed(web) {
        run(web, &["ci", "--no-audit", "--no-fund"])?;
        // A missing copy only means that the packages are installed once more.
        let _ = fs::copy(web.join(LOCKFILE), web.join(INSTALLED));
    }
    let folder = page.display().to_string();
    run(web, &["run", "build", "--", "--emptyOutDir", "--outDir", &folder])
}

/// Whether the installed packages are those of the lockfile.
fn is_installed(web: &Path) -> bool {
    match (fs::read(web.join(INSTALLED)), fs::read(web.join(LOCKFILE))) {
        (Ok(installed), Ok(wanted)) => installed == wanted,
        _ => false,
    }
}

fn run(web: &Path, arguments: &[&str]) -> Result<(), Unbuilt> {
    let command = format!("`npm {}` in `web`", arguments[0..arguments.len().min(2)].join(" "));
    match Command::new("npm").args(arguments).current_dir(web).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().find(|line| line.to_lowercase().contains("error"));
            Err(Unbuilt::Failed(format!("{command} failed: {}", line.unwrap_or_default().trim())))
        }
        Err(error) => Err(Unbuilt::Failed(format!("{command} failed: {error}"))),
    }
}

/// All files of a folder, in order. Hidden ones describe the build and are not served.
fn files_under(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if hidden {
            continue;
        }
        if path.is_dir() {
            files.extend(files_under(&path));
        } else if path.extension().is_none_or(|extension| extension != "gz") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The list as Rust source.
fn rust_list(page: &Path, files: Vec<PathBuf>) -> String {
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(page).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        let bytes = fs::read(&file).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        let gzip = file.with_file_name(format!(
            "{}.gz",
            file.file_name().unwrap_or_default().to_string_lossy()
        ));
        let gzip = if gzip.exists() {
            format!("Some(include_bytes!({:?}))", gzip.display().to_string())
        } else {
            "None".to_owned()
        };
        let _ = writeln!(
            list,
            "    PageFile {{ path: {:?}, tag: \"\\\"{:016x}\\\"\", plain: include_bytes!({:?}), gzip: {gzip} }},",
            format!("/{name}"),
            hasher.finish(),
            file.display().to_string(),
        );
    }
    list.push_str("]\n");
    list
}
