//! Both sides in memory: every way to store a password against every plugin, channel and key.

use super::client::{ClientAuth, ClientSecret, ClientStep};
use super::rsa::RsaKey;
use super::server::{Account, Known, ServerAuth, Step, Stored, Verified, Which};
use super::{Channel, Plugin, crypt, hash};
use crate::error::WireError;
use crate::handshake::AuthSwitchRequest;
use proptest::prelude::*;
use std::sync::OnceLock;

const SCRAMBLE: [u8; 20] = *b"0123456789abcdefghij";

fn key() -> &'static RsaKey {
    static KEY: OnceLock<RsaKey> = OnceLock::new();
    KEY.get_or_init(|| RsaKey::generate().unwrap())
}

/// Runs a login to its end; the greeting and the account's default plugin are `default`.
fn login(account: &Account<'_>, secret: ClientSecret<'_>, default: Plugin, channel: Channel) -> Result<Option<Verified>, WireError> {
    let mut server = ServerAuth::new(SCRAMBLE, default, channel);
    let mut client = ClientAuth::new(secret, channel);
    let first = client.begin(default.name().as_bytes(), &SCRAMBLE)?;
    let mut step = server.start(account, Some(first.plugin.name().as_bytes()), &first.response)?;
    loop {
        let payload = match step {
            Step::Done(verified) => {
                if let Some(payload) = verified.before_ok {
                    assert_eq!(client.feed(&payload), Ok(ClientStep::Wait));
                }
                assert_eq!(client.feed(&[0, 0, 0, 2, 0, 0, 0]), Ok(ClientStep::Accepted));
                return Ok(Some(verified));
            }
            Step::Denied => return Ok(None),
            Step::Check(check) => {
                step = check.run();
                continue;
            }
            Step::Send(payload) => payload,
            Step::Switch(plugin) => {
                let mut payload = Vec::new();
                AuthSwitchRequest { plugin: plugin.name().as_bytes(), data: server.scramble() }.write(&mut payload);
                payload
            }
        };
        let ClientStep::Send(answer) = client.feed(&payload)? else { panic!("the client has nothing to say") };
        step = server.feed(account, &answer)?;
    }
}

/// Otherwise a client could ask for the key as long as a login may last.
#[test]
fn the_key_is_given_once() {
    let account = Account { stored: Stored::Clear(b"secret"), fast: None, additional: None, key: Some(key()) };
    let mut server = ServerAuth::new(SCRAMBLE, Plugin::Sha256, Channel::Plain);
    let asked = server.start(&account, Some(Plugin::Sha256.name().as_bytes()), &[super::ASK_KEY_SHA256]);
    assert!(matches!(asked, Ok(Step::Send(_))), "{asked:?}");
    assert_eq!(server.feed(&account, &[super::ASK_KEY_SHA256]), Ok(Step::Denied));
    assert!(server.feed(&account, &[super::ASK_KEY_SHA256]).is_err());
}

#[test]
fn the_right_password_and_only_it_gets_in() {
    let crypted = crypt::generate(b"secret", b"abcdefghijklmnopqrst");
    let stores = [Stored::Clear(b"secret"), Stored::NativeHash(hash::native_stored(b"secret")), Stored::CachingSha2(&crypted)];
    for stored in stores {
        for default in [Plugin::Native, Plugin::CachingSha2, Plugin::Sha256] {
            for channel in [Channel::Plain, Channel::Local, Channel::Secure] {
                let account = Account { stored, fast: None, additional: None, key: Some(key()) };
                let right = login(&account, ClientSecret::Clear(b"secret"), default, channel).unwrap();
                assert!(right.is_some(), "{stored:?} {default:?} {channel:?}");
                for wrong in [ClientSecret::Clear(b"Secret"), ClientSecret::Empty] {
                    assert_eq!(login(&account, wrong, default, channel), Ok(None), "{stored:?} {default:?} {channel:?}");
                }
            }
        }
    }
}

/// Clients of `sha256_password` trust nothing but TLS: over a Unix socket they ask for the key.
#[test]
fn sha256_over_a_unix_socket_takes_the_key() {
    let account = Account { stored: Stored::Clear(b"secret"), fast: None, additional: None, key: Some(key()) };
    let mut client = ClientAuth::new(ClientSecret::Clear(b"secret"), Channel::Local);
    let first = client.begin(Plugin::Sha256.name().as_bytes(), &SCRAMBLE).unwrap();
    assert_eq!(first.response, [super::ASK_KEY_SHA256]);
    let mut server = ServerAuth::new(SCRAMBLE, Plugin::Sha256, Channel::Local);
    let asked = server.start(&account, Some(Plugin::Sha256.name().as_bytes()), &first.response);
    assert!(matches!(asked, Ok(Step::Send(_))), "{asked:?}");
    let caching = ClientAuth::new(ClientSecret::Clear(b"secret"), Channel::Local).begin(b"mysql_clear_password", &SCRAMBLE).unwrap();
    assert_eq!(caching.response, b"secret\0");
}

/// The answer in COM_CHANGE_USER is to another scramble, or empty. The client is asked for its own plugin if that will do.
#[test]
fn a_change_of_user_asks_again() {
    let account = Account { stored: Stored::NativeHash(hash::native_stored(b"secret")), fast: None, additional: None, key: None };
    for (offered, asked) in [(&b"mysql_native_password"[..], Plugin::Native), (b"nobody_knows_it", Plugin::Native), (b"", Plugin::Native)] {
        let mut server = ServerAuth::new(SCRAMBLE, Plugin::CachingSha2, Channel::Plain);
        assert_eq!(server.ask(&account, Some(offered)), Ok(Step::Switch(asked)));
        let answer = hash::native_response(&hash::sha1(&[b"secret"]), &SCRAMBLE);
        assert!(matches!(server.feed(&account, &answer), Ok(Step::Done(_))));
    }
    let mut server = ServerAuth::new(SCRAMBLE, Plugin::Native, Channel::Plain);
    let account = Account { stored: Stored::Clear(b"secret"), ..account };
    assert_eq!(server.ask(&account, Some(Plugin::CachingSha2.name().as_bytes())), Ok(Step::Switch(Plugin::CachingSha2)));
    assert_eq!(server.feed(&account, &[0]), Ok(Step::Denied));
}

#[test]
fn clear_text_plugin_needs_a_secure_channel() {
    let account = Account { stored: Stored::NativeHash(hash::native_stored(b"secret")), fast: None, additional: None, key: None };
    let verified = login(&account, ClientSecret::Clear(b"secret"), Plugin::Clear, Channel::Secure).unwrap().unwrap();
    assert_eq!(verified.clear.as_deref(), Some(&b"secret"[..]));
    let mut client = ClientAuth::new(ClientSecret::Clear(b"secret"), Channel::Plain);
    let first = client.begin(b"mysql_clear_password", &SCRAMBLE).unwrap();
    assert_eq!(first.plugin, Plugin::Native);
    assert_eq!(client.feed(b"\xfemysql_clear_password\0"), Err(WireError::InsecureChannel));
}

#[test]
fn empty_passwords() {
    let account = Account { stored: Stored::Empty, fast: None, additional: None, key: None };
    for default in [Plugin::Native, Plugin::CachingSha2, Plugin::Sha256] {
        assert!(login(&account, ClientSecret::Empty, default, Channel::Plain).unwrap().is_some());
        assert_eq!(login(&account, ClientSecret::Clear(b"x"), default, Channel::Plain), Ok(None));
    }
}

#[test]
fn fast_path_and_a_stale_key() {
    let crypted = crypt::generate(b"secret", b"abcdefghijklmnopqrst");
    let slow = Account { stored: Stored::CachingSha2(&crypted), fast: None, additional: None, key: Some(key()) };
    let fast = login(&slow, ClientSecret::Clear(b"secret"), Plugin::CachingSha2, Channel::Plain).unwrap().unwrap().fast.unwrap();
    let quick = Account { fast: Some(&fast), key: None, ..slow };
    let verified = login(&quick, ClientSecret::Clear(b"secret"), Plugin::CachingSha2, Channel::Plain).unwrap().unwrap();
    assert_eq!(verified.before_ok, Some([1, 3]));
    assert_eq!(login(&quick, ClientSecret::Clear(b"wrong"), Plugin::CachingSha2, Channel::Plain), Ok(None));
    let stale = hash::fast_key(b"before");
    let changed = Account { fast: Some(&stale), ..slow };
    assert!(login(&changed, ClientSecret::Clear(b"secret"), Plugin::CachingSha2, Channel::Plain).unwrap().is_some());
}

#[test]
fn a_native_login_gives_what_a_native_backend_needs() {
    let account = Account { stored: Stored::NativeHash(hash::native_stored(b"secret")), fast: None, additional: None, key: None };
    let verified = login(&account, ClientSecret::Clear(b"secret"), Plugin::Native, Channel::Plain).unwrap().unwrap();
    let sha1 = verified.sha1.unwrap();
    assert!(login(&account, ClientSecret::Sha1(sha1), Plugin::CachingSha2, Channel::Plain).unwrap().is_some());
    let crypted = crypt::generate(b"secret", b"abcdefghijklmnopqrst");
    let other = Account { stored: Stored::CachingSha2(&crypted), fast: None, additional: None, key: Some(key()) };
    assert_eq!(login(&other, ClientSecret::Sha1(sha1), Plugin::Native, Channel::Plain), Err(WireError::ClearTextNeeded));
}

#[test]
fn without_plugins_there_is_only_native() {
    let account = Account { stored: Stored::Clear(b"secret"), fast: None, additional: None, key: None };
    let response = hash::native_response(&hash::sha1(&[b"secret"]), &SCRAMBLE);
    let mut server = ServerAuth::new(SCRAMBLE, Plugin::CachingSha2, Channel::Plain);
    assert!(matches!(server.start(&account, None, &response), Ok(Step::Done(_))));
    assert!(server.feed(&account, b"").is_err());
    let crypted = crypt::generate(b"secret", b"abcdefghijklmnopqrst");
    let account = Account { stored: Stored::CachingSha2(&crypted), ..account };
    let mut server = ServerAuth::new(SCRAMBLE, Plugin::CachingSha2, Channel::Secure);
    assert_eq!(server.start(&account, None, &response), Ok(Step::Denied));
}

#[test]
fn a_client_without_the_greetings_plugin_is_asked_again() {
    let account = Account { stored: Stored::Clear(b"secret"), fast: None, additional: None, key: None };
    let mut server = ServerAuth::new(SCRAMBLE, Plugin::Native, Channel::Plain);
    assert_eq!(server.start(&account, Some(b"caching_sha2_password"), b""), Ok(Step::Switch(Plugin::CachingSha2)));
    assert!(matches!(server.feed(&account, &hash::fast_response(b"secret", &SCRAMBLE)), Ok(Step::Done(_))));
    for (response, with_password) in [(&b""[..], false), (&hash::fast_response(b"wrong", &SCRAMBLE), true)] {
        let mut server = ServerAuth::new(SCRAMBLE, Plugin::Native, Channel::Plain);
        server.start(&account, Some(b"caching_sha2_password"), b"").unwrap();
        assert_eq!(server.feed(&account, response), Ok(Step::Denied));
        assert_eq!(server.with_password(), with_password);
    }
}

/// A client with another plugin than the greeting's has answered nothing yet, whatever the account's password. It takes any packet but a
/// switch or an error for a broken login.
#[test]
fn whoever_names_another_plugin_is_asked_for_it() {
    let crypted = crypt::generate(b"secret", b"abcdefghijklmnopqrst");
    let hashed = Stored::NativeHash(hash::native_stored(b"secret"));
    let all = [Stored::Empty, Stored::Clear(b""), Stored::Clear(b"secret"), hashed, Stored::CachingSha2(&crypted)];
    let names: Vec<&[u8]> = Plugin::ALL.iter().map(|plugin| plugin.name().as_bytes()).chain([&b"dialog"[..]]).collect();
    for default in [Plugin::Native, Plugin::CachingSha2, Plugin::Sha256] {
        for (stored, name) in all.iter().flat_map(|stored| names.iter().map(move |name| (*stored, *name))) {
            for channel in [Channel::Plain, Channel::Local, Channel::Secure] {
                if name == default.name().as_bytes() {
                    continue;
                }
                let account = Account { stored, fast: None, additional: None, key: Some(key()) };
                let mut server = ServerAuth::new(SCRAMBLE, default, channel);
                let step = server.start(&account, Some(name), b"").unwrap();
                assert!(matches!(step, Step::Switch(_)), "{stored:?} {default:?} {channel:?} {}: {step:?}", String::from_utf8_lossy(name));
                let proven = matches!(stored, Stored::Empty | Stored::Clear(b""));
                let end = server.feed(&account, b"").unwrap();
                assert_eq!(matches!(end, Step::Done(_)), proven, "{stored:?} {default:?} {channel:?}");
            }
        }
    }
}

/// Two passwords of any kinds, by any plugin, over any channel: either lets in, and it is known which did.
#[test]
fn either_of_two_passwords_lets_in() {
    let crypted = [b"old", b"new"].map(|password| crypt::generate(password, b"abcdefghijklmnopqrst"));
    let fast = [b"old", b"new"].map(|password| hash::fast_key(password));
    let kinds = |nth: usize| {
        let password: &[u8] = [b"old", b"new"][nth];
        [Stored::Clear(password), Stored::NativeHash(hash::native_stored(password)), Stored::CachingSha2(&crypted[nth])]
    };
    let channels = [Channel::Plain, Channel::Local, Channel::Secure];
    let defaults = [Plugin::Native, Plugin::CachingSha2, Plugin::Sha256];
    for (old, new) in kinds(0).into_iter().flat_map(|old| kinds(1).into_iter().map(move |new| (old, new))) {
        for (default, channel) in defaults.into_iter().flat_map(|default| channels.iter().map(move |channel| (default, *channel))) {
            for (first, second) in [(None, None), (Some(&fast[0]), Some(&fast[1])), (None, Some(&fast[1]))] {
                let additional = Some(Known { stored: new, fast: second });
                let account = Account { stored: old, fast: first, additional, key: Some(key()) };
                let enters = |password: &'static [u8]| {
                    let secret = if password.is_empty() { ClientSecret::Empty } else { ClientSecret::Clear(password) };
                    login(&account, secret, default, channel).unwrap()
                };
                for (password, which) in [(b"old", Which::Primary), (b"new", Which::Additional)] {
                    let verified = enters(password).unwrap_or_else(|| panic!("{old:?} {new:?} {default:?} {channel:?} {which:?}"));
                    assert_eq!(verified.which, which);
                    assert!(verified.clear.is_none_or(|clear| clear == password), "{old:?} {new:?} {default:?} {channel:?}");
                    assert!(verified.fast.is_none_or(|fast| fast == hash::fast_key(password)));
                }
                assert_eq!((enters(b"other"), enters(b"")), (None, None), "{old:?} {new:?} {default:?} {channel:?}");
            }
        }
    }
    // A user without a password, who may also come with one.
    let account = Account { stored: Stored::Empty, fast: None, additional: Some(Known { stored: kinds(1)[0], fast: None }), key: None };
    for (secret, which) in [(ClientSecret::Empty, Which::Primary), (ClientSecret::Clear(b"new"), Which::Additional)] {
        let verified = login(&account, secret, Plugin::Native, Channel::Plain).unwrap();
        assert_eq!(verified.map(|verified| verified.which), Some(which));
    }
    assert_eq!(login(&account, ClientSecret::Clear(b"old"), Plugin::Native, Channel::Plain), Ok(None));
}

#[test]
fn ed25519_answers_its_nonce() {
    let mut client = ClientAuth::new(ClientSecret::Clear(b"secret"), Channel::Plain);
    client.begin(b"mysql_native_password", &SCRAMBLE).unwrap();
    let nonce = [0; 32];
    let mut request = Vec::new();
    AuthSwitchRequest { plugin: b"client_ed25519", data: &nonce }.write(&mut request);
    let Ok(ClientStep::Send(answer)) = client.feed(&request) else { panic!("no answer") };
    assert!(super::ed25519::verify(&super::ed25519::public_key(b"secret"), &nonce, &answer));
    assert!(client.feed(b"\xfeclient_ed25519\0short").is_err());
    let says = |client: &mut ClientAuth<'_>, packet: &[u8]| client.feed(packet).map_err(|error| error.to_string());
    assert_eq!(says(&mut client, b"\xfesome_plugin\0"), Err("authentication plugin 'some_plugin' is not supported".to_owned()));
    assert_eq!(says(&mut client, b"\xfe"), Err("authentication plugin 'mysql_old_password' is not supported".to_owned()));
    assert_eq!(says(&mut client, b"\xfea\nb\0"), Err("authentication plugin 'a?b' is not supported".to_owned()));
}

proptest! {
    #[test]
    fn no_bytes_panic(payloads: Vec<Vec<u8>>, plugin in 0usize..5, secure: bool) {
        let (name, channel) = (Plugin::ALL[plugin].name().as_bytes(), if secure { Channel::Secure } else { Channel::Plain });
        let mut client = ClientAuth::new(ClientSecret::Clear(b"secret"), channel);
        let _ = client.begin(name, &SCRAMBLE);
        let account = Account { stored: Stored::NativeHash([7; 20]), fast: None, additional: None, key: Some(key()) };
        let mut server = ServerAuth::new(SCRAMBLE, Plugin::CachingSha2, channel);
        let _ = server.start(&account, Some(name), &[1]);
        for payload in payloads {
            let _ = client.feed(&payload);
            let _ = client.feed(&[&[1], &payload[..]].concat());
            prop_assert!(!matches!(server.feed(&account, &payload), Ok(Step::Done(_))));
        }
    }
}

#[test]
fn clear_text_is_not_asked_for_over_a_plain_channel() {
    // Even when there is no password to prove: the user may type one.
    let account = Account { stored: Stored::Empty, fast: None, additional: None, key: Some(key()) };
    let mut server = ServerAuth::new(SCRAMBLE, Plugin::Clear, Channel::Plain);
    assert_eq!(server.start(&account, Some(b"dialog"), b"x"), Ok(Step::Switch(Plugin::CachingSha2)));
    let mut server = ServerAuth::new(SCRAMBLE, Plugin::Clear, Channel::Secure);
    assert_eq!(server.start(&account, Some(b"dialog"), b"x"), Ok(Step::Switch(Plugin::Clear)));
}

#[test]
fn a_server_may_not_switch_for_ever() {
    let mut request = Vec::new();
    AuthSwitchRequest { plugin: b"mysql_native_password", data: &[7; 20] }.write(&mut request);
    let mut client = ClientAuth::new(ClientSecret::Clear(b"secret"), Channel::Plain);
    client.begin(b"mysql_native_password", &[1; 20]).unwrap();
    let answers = (0..20).take_while(|_| matches!(client.feed(&request), Ok(ClientStep::Send(_)))).count();
    assert_eq!(answers, 8);
    assert!(client.feed(&request).is_err());
}
