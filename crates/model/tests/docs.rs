//! `docs/reference/settings.md` must agree with the registry. `UPDATE_DOCS=1` rewrites it.

use std::path::Path;

#[test]
fn settings_page_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/settings.md");
    let page = model::settings::settings_markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/reference/settings.md is stale: run UPDATE_DOCS=1 cargo test -p model");
}
