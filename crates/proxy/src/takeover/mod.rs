//! What two processes exchange while one takes the place of the other.

pub(crate) mod hand_over_queue;
pub(crate) mod inheritance;
pub(crate) mod other_process;
