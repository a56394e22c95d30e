//! Capability and status bits, with the names that the servers' documentation uses (less the CLIENT_ and SERVER_ prefixes).
//!
//! Source: "Capabilities Flags" and "SERVER_STATUS_flags_enum"; MariaDB KB "Connection: capabilities".

/// Defines one set of bits: named constants and the set operations.
macro_rules! bit_set {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$bit_doc:meta])* $bit:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$bit_doc])* pub const $bit: Self = Self($value);)*

            /// No bit set.
            #[must_use]
            pub const fn empty() -> Self {
                Self(0)
            }

            /// From raw bits; unknown ones are kept.
            #[must_use]
            pub const fn from_bits(bits: $int) -> Self {
                Self(bits)
            }

            /// As they are on the wire.
            #[must_use]
            pub const fn bits(self) -> $int {
                self.0
            }

            /// True when all bits of `other` are set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// True when any bit of `other` is set.
            #[must_use]
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Sets the bits of `other`.
            pub fn insert(&mut self, other: Self) {
                self.0 |= other.0;
            }

            /// Clears the bits of `other`.
            pub fn remove(&mut self, other: Self) {
                self.0 &= !other.0;
            }

            /// Sets or clears the bits of `other`.
            pub fn set(&mut self, other: Self, on: bool) {
                if on { self.insert(other) } else { self.remove(other) }
            }

            /// Both sets together; usable in constants.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// These bits less those of `other`; usable in constants.
            #[must_use]
            pub const fn difference(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl std::ops::BitAnd for $name {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl std::ops::Not for $name {
            type Output = Self;
            fn not(self) -> Self {
                Self(!self.0)
            }
        }
    };
}

bit_set! {
    /// The abilities of a side. Low 32 bits: MySQL's CLIENT_*. High 32 bits: MariaDB's extended MARIADB_CLIENT_*.
    Capabilities: u64 {
        /// CLIENT_LONG_PASSWORD in MySQL. In MariaDB the same bit is CLIENT_MYSQL: absent from a server or client that
        /// is MariaDB's, which then has extended capabilities in the filler.
        LONG_PASSWORD = 1;
        /// Affected rows counts found rows, not changed rows.
        FOUND_ROWS = 1 << 1;
        /// Longer flags in column definitions; always on.
        LONG_FLAG = 1 << 2;
        /// A schema is named at login.
        CONNECT_WITH_DB = 1 << 3;
        /// `schema.table.column` is not allowed.
        NO_SCHEMA = 1 << 4;
        /// zlib compressed protocol.
        COMPRESS = 1 << 5;
        /// ODBC client; no effect.
        ODBC = 1 << 6;
        /// The client allows LOAD DATA LOCAL.
        LOCAL_FILES = 1 << 7;
        /// Spaces before `(` are ignored: sql_mode IGNORE_SPACE.
        IGNORE_SPACE = 1 << 8;
        /// The protocol since MySQL 4.1.
        PROTOCOL_41 = 1 << 9;
        /// `interactive_timeout` instead of `wait_timeout`.
        INTERACTIVE = 1 << 10;
        /// TLS follows the 32-byte request.
        SSL = 1 << 11;
        /// No effect on the wire.
        IGNORE_SIGPIPE = 1 << 12;
        /// Status flags in OK packets; always on.
        TRANSACTIONS = 1 << 13;
        /// Was CLIENT_PROTOCOL_41; no effect.
        RESERVED = 1 << 14;
        /// CLIENT_RESERVED2: the 4.1 authentication; CLIENT_SECURE_CONNECTION.
        SECURE_CONNECTION = 1 << 15;
        /// Several statements in one COM_QUERY.
        MULTI_STATEMENTS = 1 << 16;
        /// Several result sets in one reply.
        MULTI_RESULTS = 1 << 17;
        /// Several result sets and OUT parameters from prepared statements.
        PS_MULTI_RESULTS = 1 << 18;
        /// The login names a plugin, and the server may switch to another one.
        PLUGIN_AUTH = 1 << 19;
        /// Connection attributes.
        CONNECT_ATTRS = 1 << 20;
        /// The authentication answer may be longer than 255 bytes.
        PLUGIN_AUTH_LENENC = 1 << 21;
        /// The client understands an expired password.
        CAN_HANDLE_EXPIRED_PASSWORDS = 1 << 22;
        /// Session state in OK packets.
        SESSION_TRACK = 1 << 23;
        /// No EOF packet after columns; OK (0xfe) at the end of rows.
        DEPRECATE_EOF = 1 << 24;
        /// Result sets may come without column definitions.
        OPTIONAL_RESULTSET_METADATA = 1 << 25;
        /// zstd compressed protocol.
        ZSTD_COMPRESSION = 1 << 26;
        /// Query attributes in COM_QUERY and COM_STMT_EXECUTE.
        QUERY_ATTRIBUTES = 1 << 27;
        /// More than one authentication factor.
        MULTI_FACTOR_AUTHENTICATION = 1 << 28;
        /// Reserved: capabilities beyond 32 bits.
        CAPABILITY_EXTENSION = 1 << 29;
        /// The client checks the server's certificate.
        SSL_VERIFY_SERVER_CERT = 1 << 30;
        /// Client-side only.
        REMEMBER_OPTIONS = 1 << 31;
        /// MariaDB: progress reports as ERR packets with code 0xffff.
        MARIADB_CLIENT_PROGRESS = 1 << 32;
        /// MariaDB: COM_MULTI (withdrawn; a reserved bit today).
        MARIADB_CLIENT_COM_MULTI = 1 << 33;
        /// MariaDB: COM_STMT_BULK_EXECUTE.
        MARIADB_CLIENT_STMT_BULK_OPERATIONS = 1 << 34;
        /// MariaDB: extended type information in column definitions.
        MARIADB_CLIENT_EXTENDED_METADATA = 1 << 35;
        /// MariaDB: column definitions are sent again only when they changed.
        MARIADB_CLIENT_CACHE_METADATA = 1 << 36;
        /// MariaDB: one result per row of a bulk execute.
        MARIADB_CLIENT_BULK_UNIT_RESULTS = 1 << 37;
    }
}

impl Capabilities {
    /// The flags that each login asks for, if the server offers them: status flags and authentication plugins. [`Self::LONG_PASSWORD`] is
    /// among them, which MySQL offers. MariaDB does not: there it would mean a client without MariaDB's extensions.
    pub const LOGIN: Self = Self::LONG_PASSWORD
        .union(Self::LONG_FLAG)
        .union(Self::PROTOCOL_41)
        .union(Self::TRANSACTIONS)
        .union(Self::SECURE_CONNECTION)
        .union(Self::PLUGIN_AUTH)
        .union(Self::PLUGIN_AUTH_LENENC);

    /// The low 32 bits: what MySQL knows.
    #[must_use]
    pub const fn mysql_bits(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }

    /// The high 32 bits: MariaDB's extended capabilities.
    #[must_use]
    pub const fn mariadb_bits(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// From MySQL's 32 bits and MariaDB's extended 32 bits.
    #[must_use]
    pub const fn from_parts(mysql: u32, mariadb: u32) -> Self {
        Self(mysql as u64 | (mariadb as u64) << 32)
    }
}

bit_set! {
    /// The server's state in OK and EOF packets.
    StatusFlags: u16 {
        /// A transaction is open.
        IN_TRANS = 1;
        /// Autocommit is on.
        AUTOCOMMIT = 1 << 1;
        /// This result is followed by another one.
        MORE_RESULTS = 1 << 3;
        /// The optimizer found no good index.
        NO_GOOD_INDEX_USED = 1 << 4;
        /// No index was used.
        NO_INDEX_USED = 1 << 5;
        /// A cursor is open for this statement; rows come by COM_STMT_FETCH.
        CURSOR_EXISTS = 1 << 6;
        /// The cursor has no more rows.
        LAST_ROW_SENT = 1 << 7;
        /// The current schema was dropped.
        DB_DROPPED = 1 << 8;
        /// sql_mode has NO_BACKSLASH_ESCAPES.
        NO_BACKSLASH_ESCAPES = 1 << 9;
        /// A re-prepared statement has other columns than before.
        METADATA_CHANGED = 1 << 10;
        /// The statement took longer than long_query_time.
        QUERY_WAS_SLOW = 1 << 11;
        /// This result set holds OUT parameters.
        PS_OUT_PARAMS = 1 << 12;
        /// The open transaction is read only.
        IN_TRANS_READONLY = 1 << 13;
        /// Session state follows in this OK packet.
        SESSION_STATE_CHANGED = 1 << 14;
        /// MariaDB: sql_mode has ANSI_QUOTES.
        ANSI_QUOTES = 1 << 15;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_operations() {
        let mut caps = Capabilities::PROTOCOL_41 | Capabilities::SSL;
        assert!(caps.contains(Capabilities::SSL));
        caps.remove(Capabilities::SSL);
        assert!(!caps.intersects(Capabilities::SSL));
        caps.set(Capabilities::MARIADB_CLIENT_PROGRESS, true);
        assert_eq!(caps.mariadb_bits(), 1);
        assert_eq!(caps.mysql_bits(), 512);
        assert_eq!(Capabilities::from_parts(512, 1), caps);
    }
}
