//! Files that are replaced as a whole: a reader finds the old text or the new one, even after a crash.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes `text` to a scratch file and renames it. Only the owner may read it, because it may hold passwords. A symbolic link is followed.
/// A device, pipe, socket or directory is never replaced: a rename would replace `/dev/null` for the whole machine.
///
/// # Errors
/// The system refuses, or the place is no regular file. Then nothing has changed.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let place = place(path)?;
    let scratch = scratch(&place);
    let mut file = private(&scratch)?;
    let written = file.write_all(text).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&scratch, &place));
    if written.is_err() {
        let _ = fs::remove_file(&scratch);
    }
    written
}

/// The path of the text until it is complete.
pub fn scratch(place: &Path) -> PathBuf {
    PathBuf::from(format!("{}.tidegate-new", place.display()))
}

fn place(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")),
        Ok(_) => path.canonicalize(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(error),
    }
}

/// A new file. One that was left there, by a crash or by another user, keeps its owner and mode, or leads elsewhere: it is removed.
fn private(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("a.cnf"), dir.path().join("link"));
        replace(&path, b"one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        symlink(&path, &link).unwrap();
        replace(&link, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert!(link.is_symlink());
        // What was left at the scratch path is neither followed nor reused.
        let other = dir.path().join("other");
        fs::write(&other, "theirs").unwrap();
        symlink(&other, scratch(&path)).unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!((fs::read(&other).unwrap(), path.is_symlink()), (b"theirs".to_vec(), false));
        fs::write(scratch(&path), "").unwrap();
        fs::set_permissions(scratch(&path), fs::Permissions::from_mode(0o666)).unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // An obstacle at the scratch path leaves the old file alone.
        fs::create_dir(scratch(&path)).unwrap();
        assert!(replace(&path, b"three").is_err());
        fs::remove_dir(scratch(&path)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert!(replace(dir.path(), b"three").is_err());
        assert!(!scratch(dir.path()).exists());
    }
}
