//! The configuration file: text to values, values to settings, with includes that come from the input too.

use std::path::Path;

use model::libconfig::{Includes, NoIncludes, parse};

/// Separates the main file from the file that every include reads.
const SEPARATOR: &[u8] = b"\n===\n";

struct Same<'a>(&'a [u8]);

impl Includes for Same<'_> {
    fn read(&mut self, _: &Path) -> Result<Vec<u8>, String> {
        Ok(self.0.to_vec())
    }
}

/// The input: a file; after a line `===`, the file that all its includes read.
pub fn check(data: &[u8]) {
    let at = data.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
    let (main, included) = at.map_or((data, data), |at| (&data[..at], &data[at + SEPARATOR.len()..]));
    let _ = parse(main, "main.cnf", &mut NoIncludes).map_err(|error| error.to_string());
    let _ = model::config::parse_with(main, "main.cnf", &mut Same(included));
}
