//! Figures as JSON: to a file when one is named, else to standard output.

use std::fs;
use std::path::Path;

use lab::LabError;
use serde_json::Value;

/// Writes a document.
pub(crate) fn write(path: Option<&Path>, document: &Value) -> Result<(), LabError> {
    let Some(path) = path else {
        println!("{document}");
        return Ok(());
    };
    let failed = |source| LabError::Io { what: format!("write {}", path.display()), source };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    fs::write(path, format!("{document:#}\n")).map_err(failed)?;
    println!("figures: {}", path.display());
    Ok(())
}
