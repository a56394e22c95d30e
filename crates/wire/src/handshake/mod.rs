//! The connection phase's packets: greeting, TLS request, login, change of user, and the authentication envelopes.
//!
//! Only the bytes; [`crate::auth`] judges the login. Source: "Connection Phase" (MySQL) and MariaDB KB "Connection" for the extended
//! capabilities. These stand in the filler if CLIENT_LONG_PASSWORD (CLIENT_MYSQL) is off.

mod change_user;
mod envelope;
mod greeting;
mod response;

pub use change_user::ChangeUser;
pub use envelope::{AUTH_MORE_DATA, AUTH_SWITCH, AuthSwitchRequest, auth_more_data, put_auth_more_data};
pub use greeting::{Greeting, PROTOCOL_VERSION};
pub use response::{Attributes, HandshakeResponse, OldLogin, SslRequest, attributes, put_attribute};
