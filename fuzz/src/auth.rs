//! Logins, from both sides: any sequence of packets, every plugin, every kind of stored password.

use std::sync::OnceLock;

use wire::auth::client::{ClientAuth, ClientSecret, ClientStep};
use wire::auth::hash::{fast_key, native_stored, sha1};
use wire::auth::rsa::{RsaKey, encrypt_password};
use wire::auth::server::{Account, Known, ServerAuth, Step, Stored, Verified, Which};
use wire::auth::{Channel, Plugin};

use crate::input::Input;

/// Not something that a fuzzer writes by chance; the seeds have it where it belongs.
const PASSWORD: &[u8] = b"correct horse";
/// What the server greets with.
const SCRAMBLE: [u8; 20] = *b"abcdefghijklmnopqrst";
/// More packets than any login has.
const MAX_PACKETS: usize = 16;

fn key() -> &'static RsaKey {
    static KEY: OnceLock<RsaKey> = OnceLock::new();
    KEY.get_or_init(|| RsaKey::generate().expect("a key"))
}

fn sha2_hash() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| wire::auth::crypt::generate(PASSWORD, b"saltsaltsaltsaltsalt"))
}

fn channel(byte: u8) -> Channel {
    if byte & 1 == 0 { Channel::Secure } else { Channel::Plain }
}

/// A client logs in. The input: a byte for the stored kinds, one for channel (bit 0), key (bit 1) and fast key (bit 2), one
/// for the default plugin; then pieces: the plugin's name, the first answer, further packets. A packet that begins with
/// "RSA" is encrypted first.
pub fn server(data: &[u8]) {
    let mut input = Input::new(data);
    let (kind, flags, default) = (input.byte(), input.byte(), input.byte());
    let fast = fast_key(PASSWORD);
    let stored = |kind: u8| match kind % 5 {
        0 => Stored::Empty,
        1 => Stored::Clear(PASSWORD),
        2 => Stored::NativeHash(native_stored(PASSWORD)),
        3 => Stored::CachingSha2(sha2_hash()),
        _ => Stored::Clear(b""),
    };
    let fast = (flags & 4 != 0).then_some(&fast);
    let additional = (kind >= 128).then(|| Known { stored: stored(kind / 5), fast: None });
    let stored = stored(kind);
    let account = Account { stored, fast, additional, key: (flags & 2 != 0).then(key) };
    let of = |which: Which| if which == Which::Primary { stored } else { additional.map_or(stored, |known| known.stored) };
    let default = Plugin::ALL[usize::from(default) % Plugin::ALL.len()];
    let mut login = ServerAuth::new(SCRAMBLE, default, channel(flags));
    let plugin = input.piece().filter(|name| !name.is_empty());
    let mut step = login.start(&account, plugin, &sealed(input.piece().unwrap_or_default()));
    for _ in 0..MAX_PACKETS {
        match step {
            Ok(Step::Send(payload)) => assert!(!contains(&payload, PASSWORD)),
            Ok(Step::Switch(plugin)) => assert!(plugin != Plugin::Clear || flags & 1 == 0, "clear text over a plain channel"),
            Ok(Step::Done(verified)) => return proven(of(verified.which), &verified),
            Ok(Step::Check(check)) => {
                if let Step::Done(verified) = check.run() {
                    proven(of(verified.which), &verified);
                }
                assert!(login.feed(&account, PASSWORD).is_err());
                return;
            }
            Ok(Step::Denied) => {
                assert!(login.feed(&account, PASSWORD).is_err());
                return;
            }
            Err(_) => return,
        }
        let Some(packet) = input.piece() else { return };
        step = login.feed(&account, &sealed(packet));
    }
    panic!("a login without end");
}

fn sealed(packet: &[u8]) -> Vec<u8> {
    match packet.strip_prefix(b"RSA") {
        Some(password) => encrypt_password(key().public_pem().as_bytes(), password, &SCRAMBLE).unwrap_or_default(),
        None => packet.to_vec(),
    }
}

/// Only who has the password gets in, and what was learnt from it is true.
fn proven(stored: Stored<'_>, verified: &Verified) {
    let password = if matches!(stored, Stored::Empty | Stored::Clear(b"")) { b"" } else { PASSWORD };
    let learnt = [
        verified.clear.as_ref().map(|clear| clear == password),
        verified.sha1.map(|hash| hash == sha1(&[password])),
        verified.fast.map(|hash| hash == fast_key(password)),
    ];
    assert!(learnt.iter().any(Option::is_some), "let in without a proof");
    assert!(!learnt.contains(&Some(false)), "let in with another password");
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A login to a server that may send anything. The input: a byte for the secret's kind, one for channel (bit 0), known key
/// (bit 1, then a piece that is the key) and a good RSA key in each packet that is just "KEY"; pieces: the greeting's
/// plugin, its scramble, packets.
pub fn client(data: &[u8]) {
    let mut input = Input::new(data);
    let (kind, flags) = (input.byte(), input.byte());
    let secret = match kind % 3 {
        0 => ClientSecret::Empty,
        1 => ClientSecret::Clear(PASSWORD),
        _ => ClientSecret::Sha1(sha1(&[PASSWORD])),
    };
    let mut login = ClientAuth::new(secret, channel(flags));
    if flags & 2 != 0 {
        login = login.with_server_key(input.piece().unwrap_or_default());
    }
    let guarded = |payload: &[u8]| assert!(flags & 1 == 0 || !contains(payload, PASSWORD), "the password in clear");
    let (plugin, scramble) = (input.piece().unwrap_or_default(), input.piece().unwrap_or_default());
    let Ok(answer) = login.begin(plugin, scramble) else { return };
    guarded(&answer.response);
    while let Some(packet) = input.piece() {
        let good_key = [&[wire::handshake::AUTH_MORE_DATA], key().public_pem().as_bytes()].concat();
        match login.feed(if packet == b"KEY" { &good_key } else { packet }) {
            Ok(ClientStep::Send(payload)) => guarded(&payload),
            Ok(ClientStep::Wait) => {}
            Ok(ClientStep::Accepted | ClientStep::Refused) | Err(_) => return,
        }
    }
}
