//! Names that are not ASCII are read in the client's character set, whichever session used the connection before.
//!
//! The same bytes are two names here: `ü` in UTF-8 is `Ã¼` in latin1.

use super::common::{Peer, World};
use lab::{Client, ConnectOptions};

const LATIN1: u8 = 8;
const UTF8MB4: u8 = 45;

/// Two schemas, each with a table that says which one it is. Dropped with the value.
struct Schemas<'a> {
    world: &'a World,
    /// For clients with UTF-8.
    umlaut: String,
    /// The same bytes, read as latin1.
    misread: String,
}

impl<'a> Schemas<'a> {
    fn new(world: &'a World) -> Self {
        let made = Self { world, umlaut: format!("{}_ü", world.schema), misread: format!("{}_Ã¼", world.schema) };
        for (name, says) in [(&made.umlaut, "umlaut"), (&made.misread, "misread")] {
            made.root(&format!("CREATE DATABASE `{name}`"));
            made.root(&format!("CREATE TABLE `{name}`.w AS SELECT '{says}' AS says"));
        }
        made
    }

    fn root(&self, sql: &str) {
        let options = ConnectOptions::unix(self.world.server.socket(), "root", "").charset(UTF8MB4);
        Client::connect(&options).unwrap().run(sql).unwrap();
    }

    /// A session that logs in with this schema's name as it stands here.
    fn login(&self, charset: u8, name: &str) -> Peer {
        self.world.connect_with(&self.world.options().database(name).charset(charset))
    }
}

impl Drop for Schemas<'_> {
    fn drop(&mut self) {
        for name in [&self.umlaut, &self.misread] {
            self.root(&format!("DROP DATABASE `{name}`"));
        }
    }
}

const WHERE: &str = "SELECT says FROM w";

pub(super) fn schemas_with_accents(world: &World) {
    let schemas = Schemas::new(world);
    let name = &schemas.umlaut;
    let (mut latin, mut wide) = (schemas.login(LATIN1, name), schemas.login(UTF8MB4, name));
    let mut others = [LATIN1, UTF8MB4].map(|charset| world.connect_with(&world.options().charset(charset)));
    let mut each_is_where_it_was = |latin: &mut Peer, wide: &mut Peer| {
        for _ in 0..2 {
            for other in &mut others {
                assert_eq!(latin.get(WHERE), "misread");
                assert_eq!(other.get("SELECT DATABASE()"), world.schema);
                assert_eq!(wide.get(WHERE), "umlaut");
                assert_eq!(other.get("SELECT DATABASE()"), world.schema);
            }
            assert_eq!((latin.get(WHERE).as_str(), wide.get(WHERE).as_str()), ("misread", "umlaut"));
        }
    };
    each_is_where_it_was(&mut latin, &mut wide);
    for peer in [&mut latin, &mut wide] {
        peer.exec(&format!("USE {}", world.schema));
        peer.exec(&format!("USE `{name}`"));
    }
    each_is_where_it_was(&mut latin, &mut wide);
    for peer in [&mut latin, &mut wide] {
        peer.init_db(&world.schema).unwrap().check().unwrap();
        peer.init_db(name).unwrap().check().unwrap();
    }
    each_is_where_it_was(&mut latin, &mut wide);
    for (peer, charset) in [(&mut latin, LATIN1), (&mut wide, UTF8MB4)] {
        peer.change_user(&world.options().database(name).charset(charset)).unwrap();
    }
    each_is_where_it_was(&mut latin, &mut wide);
    // A change of the character set changes no schema.
    latin.exec("SET NAMES utf8mb4");
    wide.exec("SET NAMES latin1");
    each_is_where_it_was(&mut latin, &mut wide);
    let prepared = wide.prepare(WHERE).unwrap();
    wide.exec("SET NAMES sjis");
    assert_eq!(wide.execute(&prepared, &[]).unwrap().table().unwrap()[0][0].as_deref(), Some("umlaut"));
    for peer in [&mut latin, &mut wide] {
        peer.reset_connection().unwrap().check().unwrap();
    }
    each_is_where_it_was(&mut latin, &mut wide);
}
