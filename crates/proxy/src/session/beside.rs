//! What runs beside a session on other servers: copies of its statements for a mirror, and its shadow in a rehearsal.

use super::rehearsed::Rehearsed;
use crate::mirror::Strand;
use std::rc::Rc;

/// See the module. Boxed in the session: most have none of it.
#[derive(Default)]
pub(super) struct Beside {
    /// The copies of its statements, once there was one.
    pub strand: Option<Rc<Strand>>,
    /// What it has to do with rehearsals.
    pub rehearsed: Rehearsed,
}
