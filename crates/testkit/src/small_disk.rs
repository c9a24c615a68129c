//! A disk that a test fills and frees while a gateway writes to it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of the disk.
const SIZE: &str = "8m";

/// How writes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    /// The data directory is a small file system of its own, and it is full. Needs permission to
    /// mount one.
    FileSystem,
    /// The process may not write to any file. This needs no permission.
    FileSizeLimit,
}

impl DiskKind {
    /// The kinds that work on this machine. The limit always does, so no test runs without a disk.
    ///
    /// # Panics
    /// If a file system can be mounted but not removed.
    pub fn available() -> Vec<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = SmallDisk::mount(folder.path());
        disk.map(|_| Self::FileSystem).into_iter().chain([Self::FileSizeLimit]).collect()
    }
}

/// A disk that can be filled.
#[derive(Debug)]
pub(crate) enum SmallDisk {
    Mounted(PathBuf),
    Limited,
}

impl SmallDisk {
    /// Prepares the disk of a data directory.
    pub(crate) fn new(kind: DiskKind, data: &Path) -> Self {
        match kind {
            DiskKind::FileSystem => Self::mount(data).expect("permission to mount a file system"),
            DiskKind::FileSizeLimit => Self::Limited,
        }
    }

    fn mount(data: &Path) -> Option<Self> {
        std::fs::create_dir_all(data).expect("a folder");
        let options = format!("size={SIZE},mode=0700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(data)
            .output()
            .expect("mount runs");
        mounted.status.success().then(|| Self::Mounted(data.to_owned()))
    }

    /// The program that starts the gateway on this disk.
    pub(crate) fn launcher(&self) -> Option<[&'static str; 4]> {
        match self {
            Self::Mounted(_) => None,
            // A write above the limit would otherwise end the process.
            Self::Limited => Some(["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"]),
        }
    }

    /// Makes every write of a process fail.
    pub(crate) fn fill(&self, process: u32) {
        match self {
            Self::Mounted(data) => {
                // Large pieces first, then what is left.
                for size in [1 << 16, 1 << 12, 1] {
                    let piece = vec![b'x'; size];
                    let mut file = std::fs::OpenOptions::new()
                        .create(true)
                        .append(true)
                        .open(data.join("filler"))
                        .expect("a file");
                    while std::io::Write::write_all(&mut file, &piece).is_ok() {}
                }
            }
            Self::Limited => set_file_size_limit(process, "1:"),
        }
    }

    /// Lets the writes of a process succeed again.
    pub(crate) fn free(&self, process: u32) {
        match self {
            Self::Mounted(data) => std::fs::remove_file(data.join("filler")).expect("a file"),
            Self::Limited => set_file_size_limit(process, "unlimited:"),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Self::Mounted(data) = self {
            // The process may still be ending.
            let unmounted = Command::new("umount").arg("--lazy").arg(&*data).status();
            let unmounted = unmounted.is_ok_and(|status| status.success());
            assert!(unmounted || std::thread::panicking(), "cannot unmount {}", data.display());
        }
    }
}

fn set_file_size_limit(process: u32, limit: &str) {
    let set = Command::new("prlimit")
        .args(["--pid", &process.to_string(), &format!("--fsize={limit}")])
        .status();
    assert!(set.expect("prlimit runs").success());
}
