//! The blocks that scripts are made of, with their weights. To add one: a function, a line in the table.
//!
//! INVARIANT: a block that is marked as pinning ends without anything that pins; one that is not never holds a backend
//! between steps. Nothing in a block depends on time, on chance within the server or on other sessions.

mod errors;
mod prepared;
mod reads;
mod state;
mod transactions;
mod writes;

use super::generate::Maker;

/// Adds the steps of one block to a script.
type Writer = fn(&mut Maker);

/// Weight and writer of each block.
pub(super) const BLOCKS: &[(u64, Writer)] = &[
    (8, reads::plain),
    (4, reads::all_types),
    (4, reads::large),
    (3, reads::shows),
    (10, writes::inserts),
    (6, writes::changes),
    (3, writes::schema),
    (6, writes::insert_ids),
    (5, errors::failures),
    (1, errors::failing_calls),
    (7, errors::warnings),
    (2, errors::found_rows),
    (3, errors::row_count),
    (10, state::variables),
    (4, state::charsets),
    (3, state::schemas),
    (3, state::user_variables),
    (2, state::resets),
    (1, state::roles),
    (3, state::show_state),
    (6, transactions::plain),
    (3, transactions::autocommit_off),
    (2, transactions::characteristics),
    (2, transactions::xa),
    (3, transactions::temporary_tables),
    (3, transactions::locks),
    (8, prepared::new),
    (10, prepared::again),
    (3, prepared::cursors),
    (3, prepared::text),
    (3, prepared::calls),
    (4, prepared::several),
    (4, prepared::several_that_ask),
];
