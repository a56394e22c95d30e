//! The events in order, with virtual times: kept only on request.

use std::cell::RefCell;
use std::rc::Rc;
use tokio::time::Instant;

/// A shared list of lines.
#[derive(Clone)]
pub(crate) struct Trace(Option<Rc<(Instant, RefCell<Vec<String>>)>>);

impl Trace {
    /// A trace that begins now; nothing is kept unless `is_on`.
    pub(crate) fn new(is_on: bool) -> Self {
        Self(is_on.then(|| Rc::new((Instant::now(), RefCell::default()))))
    }

    /// Adds a line.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        if let Some(kept) = &self.0 {
            let ms = kept.0.elapsed().as_millis();
            kept.1.borrow_mut().push(format!("{ms:>7} {}", line()));
        }
    }

    /// All lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.as_ref().map(|kept| kept.1.borrow().clone()).unwrap_or_default()
    }
}
