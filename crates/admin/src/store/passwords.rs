//! `MYSQL_NATIVE_PASSWORD()` and `CACHING_SHA2_PASSWORD()`: what `mysql_users.password` keeps in a password's place.

use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use wire::auth::crypt::{ALPHABET, MAX_PASSWORD, SALT, generate};
use wire::auth::hash::native_stored;

use crate::error::AdminError;

pub(super) fn register(db: &Connection) -> Result<(), AdminError> {
    let flags = FunctionFlags::SQLITE_UTF8;
    let same = flags | FunctionFlags::SQLITE_DETERMINISTIC;
    db.create_scalar_function("mysql_native_password", 1, same, |context: &Context<'_>| Ok(password(context)?.map(native)))?;
    db.create_scalar_function("caching_sha2_password", 1, flags, |context: &Context<'_>| {
        let salt = fresh_salt()?;
        Ok(password(context)?.map(|password| caching_sha2(password, &salt)))
    })?;
    db.create_scalar_function("caching_sha2_password", 2, same, |context: &Context<'_>| {
        let salt = salt(context.get_raw(1))?;
        Ok(password(context)?.map(|password| caching_sha2(password, &salt)))
    })?;
    Ok(())
}

/// As servers store it: nothing for a user without password.
fn native(password: &[u8]) -> String {
    match password {
        [] => String::new(),
        _ => native_stored(password).iter().fold("*".to_owned(), |text, byte| format!("{text}{byte:02X}")),
    }
}

/// As servers store it: nothing for a user without password.
fn caching_sha2(password: &[u8], salt: &[u8; SALT]) -> String {
    if password.is_empty() { String::new() } else { generate(password, salt) }
}

/// The first argument; `None` for NULL.
fn password<'a>(context: &'a Context<'_>) -> rusqlite::Result<Option<&'a [u8]>> {
    match context.get_raw(0) {
        ValueRef::Null => Ok(None),
        ValueRef::Text(text) | ValueRef::Blob(text) if text.len() <= MAX_PASSWORD => Ok(Some(text)),
        ValueRef::Text(_) | ValueRef::Blob(_) => Err(refused(format!("a password has {MAX_PASSWORD} bytes at most"))),
        ValueRef::Integer(_) | ValueRef::Real(_) => Err(refused("a password is a text: it belongs in quotes".to_owned())),
    }
}

fn salt(given: ValueRef<'_>) -> rusqlite::Result<[u8; SALT]> {
    let bytes = match given {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => &[],
    };
    let salt = bytes.try_into().ok().filter(|salt: &[u8; SALT]| salt.iter().all(|byte| byte.is_ascii() && ![0, b'$'].contains(byte)));
    salt.ok_or_else(|| refused(format!("a salt has {SALT} ASCII characters, without $ and NUL")))
}

/// Of letters that need no quoting anywhere.
fn fresh_salt() -> rusqlite::Result<[u8; SALT]> {
    let mut bytes = [0; SALT];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| refused("the system has no random numbers".to_owned()))?;
    Ok(bytes.map(|byte| ALPHABET[usize::from(byte & 63)]))
}

fn refused(why: String) -> rusqlite::Error {
    rusqlite::Error::UserFunctionError(why.into())
}
