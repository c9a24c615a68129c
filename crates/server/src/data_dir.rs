//! The data directory: created for its owner only, and locked while a server uses it.

use std::fs::{DirBuilder, File};
use std::io;
use std::path::Path;

/// Creates the directory, readable for its owner only: it shows who talks to which provider. The
/// permissions of a directory that exists are its owner's choice, and stay as they are.
pub fn create(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    match builder.create(path) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        created => created,
    }
}

/// Locks the directory. Returns `None` if another server uses it.
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    let lock = File::create(path.join("lock"))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(cause)) => Err(cause),
    }
}

/// Whether other users may read or write a file or a directory.
#[cfg(unix)]
pub fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

/// Whether other users may read or write a file or a directory.
#[cfg(not(unix))]
pub fn is_open_to_others(_path: &Path) -> bool {
    false
}
