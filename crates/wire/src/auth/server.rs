//! The server's side of every plugin, one value per login.
//!
//! The caller sends the greeting with its own scramble. It calls [`ServerAuth::start`] with the login's fields and [`ServerAuth::feed`]
//! with each later payload, and does what each [`Step`] says. The caller also decides whether the user exists and may enter.
//!
//! INVARIANT: only a proof of the password gives [`Step::Done`]. A password in clear is only asked for over a secure channel, or under RSA.

use super::hash::{equal, fast_key, fast_verify, native_stored, native_verify, sha1};
use super::rsa::RsaKey;
use super::{ASK_KEY_CACHING, ASK_KEY_SHA256, Channel, FAST_OK, FULL_NEEDED, Plugin, crypt};
use crate::error::{Result, WireError};
use crate::handshake::put_auth_more_data;

/// An account's password, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored<'a> {
    /// The account has no password.
    Empty,
    /// The password itself.
    Clear(&'a [u8]),
    /// SHA1(SHA1(password)): `*` and 40 hex digits in mysql.user.
    NativeHash([u8; 20]),
    /// `$A$005$...`, see [`crypt`].
    CachingSha2(&'a str),
}

/// The account of a login, and this process's means to check it. Every call of a login must get the same one.
#[derive(Debug, Clone, Copy)]
pub struct Account<'a> {
    /// The password, as far as it is known.
    pub stored: Stored<'a>,
    /// SHA256(SHA256(password)) from an earlier login (see [`Verified::fast`]). It opens the account by itself, so keep
    /// it under the stored hash that it was proven against, and drop it with that.
    pub fast: Option<&'a [u8; 32]>,
    /// A second password that is accepted too, while applications change from one to the other.
    pub additional: Option<Known<'a>>,
    /// The key for passwords over a channel that is not secure; without it those plugins are refused there.
    pub key: Option<&'a RsaKey>,
}

/// One password, as far as it is known: see [`Account::stored`] and [`Account::fast`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known<'a> {
    /// The password, or its hash.
    pub stored: Stored<'a>,
    /// SHA256(SHA256(password)) from an earlier login.
    pub fast: Option<&'a [u8; 32]>,
}

/// Which of an account's passwords was proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Which {
    /// [`Account::stored`].
    #[default]
    Primary,
    /// [`Account::additional`].
    Additional,
}

impl<'a> Account<'a> {
    /// Its passwords, the primary one first.
    fn passwords(&self) -> impl Iterator<Item = (Which, Known<'a>)> + use<'a> {
        let primary = Known { stored: self.stored, fast: self.fast };
        std::iter::once((Which::Primary, primary)).chain(self.additional.map(|known| (Which::Additional, known)))
    }
}

/// The secrets that a proven password revealed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// The password that they belong to.
    pub which: Which,
    /// The password, if it was stored or sent in clear.
    pub clear: Option<Vec<u8>>,
    /// SHA1(password), recovered from a native answer: enough for mysql_native_password on a backend.
    pub sha1: Option<[u8; 20]>,
    /// SHA256(SHA256(password)): keep it with the account for the next login's fast path.
    pub fast: Option<[u8; 32]>,
    /// SHA1(SHA1(password)), where mysql_native_password proved it: the hash in the proof of the certificate
    /// ([`super::hash::certificate_proof`]), which clients make by the plugin that they used.
    pub native: Option<[u8; 20]>,
    /// A payload to send before the OK packet (caching_sha2_password's "fast ok").
    pub before_ok: Option<[u8; 2]>,
}

impl std::fmt::Debug for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verified").field("which", &self.which).field("before_ok", &self.before_ok).finish_non_exhaustive()
    }
}

/// The next act of the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this payload and feed the answer.
    Send(Vec<u8>),
    /// The password is proven. Send [`Verified::before_ok`] if there is one, then OK.
    Done(Verified),
    /// Send an AuthSwitchRequest for this plugin with the same scramble, and feed the answer.
    Switch(Plugin),
    /// The password costs milliseconds to check: call [`HashCheck::run`], off the worker if need be.
    Check(HashCheck),
    /// Wrong password, or no way to prove one. Answer 1045 and close.
    Denied,
}

/// A password and the sha256-crypt hashes of which it must match one; owned, so it can run on another thread.
#[derive(Clone, PartialEq, Eq)]
pub struct HashCheck {
    stored: Vec<(Which, String)>,
    password: Vec<u8>,
}

impl std::fmt::Debug for HashCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashCheck").finish_non_exhaustive()
    }
}

impl HashCheck {
    /// [`Step::Done`] or [`Step::Denied`], after some milliseconds of work.
    #[must_use]
    pub fn run(self) -> Step {
        let proven = self.stored.iter().find(|(_, stored)| crypt::verify(stored, &self.password) == Ok(true));
        proven.map_or(Step::Denied, |(which, _)| Step::Done(verified_clear(*which, &self.password)))
    }
}

/// The state of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// [`ServerAuth::start`] is due.
    New,
    /// Switched; the plugin's first answer is due.
    Switched(Plugin),
    /// The password is due, in clear or under RSA, or a request for the RSA key.
    Password(Plugin),
    /// The key was sent: the password under RSA is due, and no other request. So every login ends.
    Sealed,
    /// Done or denied.
    Over,
}

/// The server's side of one login.
#[derive(Debug)]
pub struct ServerAuth {
    scramble: [u8; 20],
    default: Plugin,
    channel: Channel,
    state: State,
    with_password: bool,
}

impl ServerAuth {
    /// A login under the greeting's `scramble` (random bytes, none of them 0). `default` is the plugin to switch to when
    /// the client's own will not do.
    #[must_use]
    pub fn new(scramble: [u8; 20], default: Plugin, channel: Channel) -> Self {
        Self { scramble, default, channel, state: State::New, with_password: false }
    }

    /// The data for the AuthSwitchRequest that [`Step::Switch`] asks for.
    #[must_use]
    pub fn scramble(&self) -> &[u8; 20] {
        &self.scramble
    }

    /// Whether the client has answered anything with a password.
    #[must_use]
    pub fn with_password(&self) -> bool {
        self.with_password
    }

    /// Takes the login's (or COM_CHANGE_USER's) plugin and answer. No plugin means a client without CLIENT_PLUGIN_AUTH:
    /// mysql_native_password, and no switching.
    pub fn start(&mut self, account: &Account<'_>, plugin: Option<&[u8]>, response: &[u8]) -> Result<Step> {
        if self.state != State::New {
            return Err(WireError::UnexpectedAuth("the login has begun already"));
        }
        self.with_password = !is_empty(response);
        let offered = plugin.map_or(Some(Plugin::Native), Plugin::from_name);
        let least = plugin.map_or(1, |_| self.most(account));
        match offered.filter(|offered| self.provable(account, *offered) >= least) {
            Some(offered) if offered != self.default && plugin.is_some() && response.is_empty() => Ok(self.ask_for(offered)),
            Some(plugin) => self.first_answer(account, plugin, response),
            None if plugin.is_none() => Ok(self.over(Step::Denied)),
            None => Ok(self.switch(account)),
        }
    }

    /// Takes COM_CHANGE_USER's plugin. What came with it answers an older scramble: as servers do, the client is always asked
    /// again, under this login's own.
    pub fn ask(&mut self, account: &Account<'_>, plugin: Option<&[u8]>) -> Result<Step> {
        if self.state != State::New {
            return Err(WireError::UnexpectedAuth("the login has begun already"));
        }
        match plugin.and_then(Plugin::from_name).filter(|plugin| self.provable(account, *plugin) >= self.most(account)) {
            Some(plugin) => Ok(self.ask_for(plugin)),
            None => Ok(self.switch(account)),
        }
    }

    /// Takes the next payload from the client.
    pub fn feed(&mut self, account: &Account<'_>, payload: &[u8]) -> Result<Step> {
        match self.state {
            State::New | State::Over => Err(WireError::UnexpectedAuth("no authentication is going on")),
            State::Switched(plugin) => self.first_answer(account, plugin, payload),
            State::Password(plugin) => self.password(account, plugin, payload),
            State::Sealed => {
                let key = account.key.ok_or(WireError::InsecureChannel)?;
                Ok(self.sealed_password(account, key, payload))
            }
        }
    }

    /// Asks for this plugin's answer. A client whose plugin is not the greeting's waits for that, with an empty answer in its
    /// login, whether it has a password or none.
    fn ask_for(&mut self, plugin: Plugin) -> Step {
        self.state = State::Switched(plugin);
        Step::Switch(plugin)
    }

    /// How many of the account's passwords `plugin` can prove over this channel.
    fn provable(&self, account: &Account<'_>, plugin: Plugin) -> usize {
        account.passwords().filter(|(_, known)| self.can_prove(account, known, plugin)).count()
    }

    /// The most that any plugin can prove that this side would ask for, and 1 at least.
    fn most(&self, account: &Account<'_>) -> usize {
        self.wishes().map(|plugin| self.provable(account, plugin)).into_iter().fold(1, usize::max)
    }

    /// True when `plugin` can prove this password, over this channel.
    fn can_prove(&self, account: &Account<'_>, known: &Known<'_>, plugin: Plugin) -> bool {
        let sealed = self.channel.is_secure_for(plugin) || account.key.is_some();
        match (plugin, known.stored) {
            (Plugin::Ed25519, _) => false,
            // Also for an account without password: the client may have one to give away.
            (Plugin::Clear, _) => self.channel.is_secure_for(plugin),
            (_, Stored::Empty) => true,
            (Plugin::Native, Stored::CachingSha2(_)) => false,
            (Plugin::Native, _) | (Plugin::CachingSha2, Stored::Clear(_)) => true,
            (Plugin::CachingSha2, _) => sealed || known.fast.is_some(),
            (Plugin::Sha256, _) => sealed,
        }
    }

    /// The plugins to ask for, the most wanted first.
    fn wishes(&self) -> [Plugin; 3] {
        [self.default, Plugin::CachingSha2, Plugin::Native]
    }

    /// Asks for the default plugin if it will do, else for the first that will.
    fn switch(&mut self, account: &Account<'_>) -> Step {
        let most = self.most(account);
        match self.wishes().into_iter().find(|plugin| self.provable(account, *plugin) >= most) {
            Some(plugin) => self.ask_for(plugin),
            None => self.over(Step::Denied),
        }
    }

    /// The first answer of a plugin, from the login or after a switch.
    fn first_answer(&mut self, account: &Account<'_>, plugin: Plugin, response: &[u8]) -> Result<Step> {
        self.with_password |= !is_empty(response);
        if is_empty(response) {
            return Ok(self.no_password(account));
        }
        if account.passwords().all(|(_, known)| known.stored == Stored::Empty) {
            return Ok(self.over(Step::Denied));
        }
        match plugin {
            Plugin::Native => Ok(self.native(account, response)),
            Plugin::CachingSha2 => Ok(self.caching_sha2(account, response)),
            Plugin::Sha256 | Plugin::Clear => self.password(account, plugin, response),
            Plugin::Ed25519 => Ok(self.over(Step::Denied)),
        }
    }

    /// An answer without a password: only an account without one lets it in.
    fn no_password(&mut self, account: &Account<'_>) -> Step {
        let empty = |known: Known<'_>| matches!(known.stored, Stored::Empty | Stored::Clear(b""));
        let proven = account.passwords().find(|(_, known)| empty(*known));
        self.over(proven.map_or(Step::Denied, |(which, _)| Step::Done(Verified { which, clear: Some(Vec::new()), ..Verified::default() })))
    }

    fn native(&mut self, account: &Account<'_>, response: &[u8]) -> Step {
        let proven = account.passwords().find_map(|(which, known)| {
            let (stored, clear) = match known.stored {
                Stored::NativeHash(stored) => (stored, None),
                Stored::Clear(clear) => (native_stored(clear), Some(clear.to_vec())),
                Stored::Empty | Stored::CachingSha2(_) => return None,
            };
            let sha1 = native_verify(&stored, &self.scramble, response)?;
            Some(Verified { which, clear, sha1: Some(sha1), native: Some(stored), ..Verified::default() })
        });
        self.over(proven.map_or(Step::Denied, Step::Done))
    }

    fn caching_sha2(&mut self, account: &Account<'_>, response: &[u8]) -> Step {
        let proven = account.passwords().find_map(|(which, known)| {
            let (key, clear) = match known.stored {
                Stored::Clear(clear) => (fast_key(clear), Some(clear)),
                _ => (*known.fast?, None),
            };
            let verified = clear.map_or(Verified { which, ..Verified::default() }, |clear| verified_clear(which, clear));
            fast_verify(&key, &self.scramble, response).then_some(Verified { fast: Some(key), ..verified })
        });
        let is_hashed = |known: Known<'_>| matches!(known.stored, Stored::NativeHash(_) | Stored::CachingSha2(_));
        match proven {
            Some(verified) => self.over(Step::Done(Verified { before_ok: Some([crate::handshake::AUTH_MORE_DATA, FAST_OK]), ..verified })),
            // A cached key may be of the password before the last change: the full way decides.
            None if account.passwords().any(|(_, known)| is_hashed(known))
                && (self.channel.is_secure_for(Plugin::CachingSha2) || account.key.is_some()) =>
            {
                self.state = State::Password(Plugin::CachingSha2);
                more_data(&[FULL_NEEDED])
            }
            None => self.over(Step::Denied),
        }
    }

    /// The password itself: NUL-terminated over a secure channel, else under RSA, or first a request for the key.
    fn password(&mut self, account: &Account<'_>, plugin: Plugin, payload: &[u8]) -> Result<Step> {
        if self.channel.is_secure_for(plugin) {
            let password = payload.strip_suffix(&[0]).unwrap_or(payload);
            return Ok(self.check_password(account, password));
        }
        let (ask, key) = match (plugin, account.key) {
            (Plugin::CachingSha2, Some(key)) => (ASK_KEY_CACHING, key),
            (Plugin::Sha256, Some(key)) => (ASK_KEY_SHA256, key),
            _ => return Err(WireError::InsecureChannel),
        };
        if payload == [ask] {
            self.state = State::Sealed;
            return Ok(more_data(key.public_pem().as_bytes()));
        }
        Ok(self.sealed_password(account, key, payload))
    }

    fn sealed_password(&mut self, account: &Account<'_>, key: &RsaKey, payload: &[u8]) -> Step {
        match key.decrypt_password(payload, &self.scramble) {
            Ok(password) => self.check_password(account, &password),
            Err(_) => self.over(Step::Denied),
        }
    }

    fn check_password(&mut self, account: &Account<'_>, password: &[u8]) -> Step {
        let is_it = |known: Known<'_>| match known.stored {
            Stored::Empty => password.is_empty(),
            Stored::Clear(clear) => equal(clear, password),
            Stored::NativeHash(stored) => equal(&native_stored(password), &stored),
            Stored::CachingSha2(_) => false,
        };
        if let Some((which, _)) = account.passwords().find(|(_, known)| is_it(*known)) {
            return self.over(Step::Done(verified_clear(which, password)));
        }
        let stored: Vec<(Which, String)> = account
            .passwords()
            .filter_map(|(which, known)| if let Stored::CachingSha2(text) = known.stored { Some((which, text.to_owned())) } else { None })
            .collect();
        if stored.is_empty() { self.over(Step::Denied) } else { self.over(Step::Check(HashCheck { stored, password: password.to_vec() })) }
    }

    /// Ends the login with `step`.
    fn over(&mut self, step: Step) -> Step {
        self.state = State::Over;
        step
    }
}

/// Is it an answer without a password?
fn is_empty(response: &[u8]) -> bool {
    matches!(response, [] | [0])
}

/// All that follows from a known password.
fn verified_clear(which: Which, password: &[u8]) -> Verified {
    let (sha1, fast) = (sha1(&[password]), fast_key(password));
    Verified { which, clear: Some(password.to_vec()), sha1: Some(sha1), fast: Some(fast), ..Verified::default() }
}

/// A step that sends AuthMoreData.
fn more_data(data: &[u8]) -> Step {
    let mut payload = Vec::new();
    put_auth_more_data(&mut payload, data);
    Step::Send(payload)
}
