//! Tells the program which commit it is built from and how.

use std::path::Path;
use std::process::Command;

fn main() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|text| !text.is_empty())
    };
    // A package may be built from sources without their history.
    let given = std::env::var("TIDEGATE_COMMIT").ok();
    let commit = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"])).unwrap_or_else(|| "unknown commit".to_owned());
    let profile = std::env::var("PROFILE").unwrap_or_default();
    println!("cargo:rustc-env=TIDEGATE_BUILD={commit}, {profile}");
    println!("cargo:rerun-if-env-changed=TIDEGATE_COMMIT");
    for path in ["HEAD", "logs/HEAD"].iter().filter_map(|file| git(&["rev-parse", "--git-path", file])) {
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}
