//! What two processes exchange while one takes the place of the other.

pub(crate) mod before;
pub(crate) mod elsewhere;
pub(crate) mod heir;
