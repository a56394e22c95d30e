//! Writes a script from a seed: a login, the session's tables, then blocks chosen at random.

use wire::Capabilities;

use super::blocks::BLOCKS;
use super::data;
use super::rng::Rng;
use super::step::{Block, Login, Script, Step};
use crate::client::ConnectOptions;
use crate::flavor::Flavor;

/// Fewest and most blocks of a script, besides the first.
const BLOCK_COUNT: (u64, u64) = (12, 24);
/// Login collations that both products know.
const CHARSETS: &[u8] = &[45, 45, 45, 33, 8, 224, 46, 63];

/// The script of this number, for the session with this place in its round (which gives the schema's name).
pub fn script(flavor: Flavor, seed: u64, number: u64, session: u64) -> Script {
    let mut rng = Rng::part(seed, number);
    let login = login(&mut rng, format!("test_d{session}"));
    let mut maker = Maker::new(rng, flavor, &login);
    let mut blocks = vec![Block { pins: false, steps: data::setup(flavor, &login.schema) }];
    let total: u64 = BLOCKS.iter().map(|(weight, _)| weight).sum();
    let count = BLOCK_COUNT.0 + maker.rng.below(BLOCK_COUNT.1 - BLOCK_COUNT.0);
    for _ in 0..count {
        let mut at = maker.rng.below(total);
        for (weight, write) in BLOCKS {
            if at < *weight {
                write(&mut maker);
                break;
            }
            at -= weight;
        }
        blocks.push(maker.take_block());
    }
    Script { login, blocks }
}

fn login(rng: &mut Rng, schema: String) -> Login {
    let mut capabilities = match rng.below(3) {
        0 => ConnectOptions::CLASSIC,
        _ => ConnectOptions::MODERN,
    };
    capabilities.set(Capabilities::MULTI_STATEMENTS, !rng.one_in(3));
    capabilities.set(Capabilities::FOUND_ROWS, rng.one_in(3));
    capabilities.set(Capabilities::IGNORE_SPACE, rng.one_in(6));
    Login { capabilities, charset: *rng.pick(CHARSETS), schema, with_schema: !rng.one_in(8) }
}

/// A statement that a script has prepared.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) slot: u8,
    /// How many parameters it has.
    pub(super) params: usize,
    /// The last parameter is that of a LIMIT.
    pub(super) limited: bool,
}

/// A script in the making.
pub(super) struct Maker {
    pub(super) rng: Rng,
    pub(super) flavor: Flavor,
    pub(super) login: Login,
    /// Statements that are prepared.
    pub(super) prepared: Vec<Known>,
    block: Block,
    next_slot: u8,
}

impl Maker {
    fn new(rng: Rng, flavor: Flavor, login: &Login) -> Maker {
        Maker { rng, flavor, login: login.clone(), prepared: Vec::new(), block: Block::default(), next_slot: 0 }
    }

    fn take_block(&mut self) -> Block {
        std::mem::take(&mut self.block)
    }

    /// The block needs its backend between steps.
    pub(super) fn pins(&mut self) {
        self.block.pins = true;
    }

    pub(super) fn step(&mut self, step: Step) {
        self.block.steps.push(step);
    }

    pub(super) fn sql(&mut self, sql: impl Into<String>) {
        self.step(Step::Query(sql.into()));
    }

    /// COM_INIT_DB. MySQL's answer counts the warnings of the statement before once more, the proxy's does not: so there
    /// is one without any before.
    pub(super) fn init_db(&mut self, schema: &str) {
        if self.flavor == Flavor::Mysql {
            self.sql("DO 1");
        }
        self.step(Step::InitDb(schema.to_owned()));
    }

    /// The session's state is gone, except its schema.
    pub(super) fn reset_connection(&mut self) {
        self.step(Step::ResetConnection);
        self.prepared.clear();
        self.sql(format!("USE {}", self.login.schema));
    }

    /// Some of these, in order.
    pub(super) fn some_of(&mut self, statements: &[&str]) {
        for sql in statements {
            if !self.rng.one_in(3) {
                self.sql(*sql);
            }
        }
    }

    /// One of these, as text or (one in three) prepared and executed.
    pub(super) fn one_of(&mut self, statements: &[&str]) {
        let sql = *self.rng.pick(statements);
        self.either_protocol(sql);
    }

    /// A statement without parameters, as text or (one in three) prepared and executed.
    pub(super) fn either_protocol(&mut self, sql: &str) {
        if self.rng.one_in(3) {
            const ONCE: u8 = 200;
            self.step(Step::Prepare(ONCE, sql.to_owned()));
            self.step(Step::Execute(ONCE, Vec::new()));
            self.step(Step::CloseStatement(ONCE));
        } else {
            self.sql(sql);
        }
    }

    /// Prepares a statement that later blocks may execute.
    pub(super) fn prepare(&mut self, sql: &str) -> u8 {
        let slot = self.next_slot;
        self.next_slot = (slot + 1) % 100;
        self.prepared.retain(|known| known.slot != slot);
        self.prepared.push(Known { slot, params: sql.matches('?').count(), limited: sql.ends_with("LIMIT ?") });
        self.step(Step::Prepare(slot, sql.to_owned()));
        slot
    }
}
