//! Greeting, TLS request, login, COM_CHANGE_USER, AuthSwitchRequest.

use wire::Capabilities;
use wire::handshake::{AuthSwitchRequest, ChangeUser, Greeting, HandshakeResponse, SslRequest, attributes, auth_more_data};

/// Reads a payload as each of them; what was read must read the same again when written. The input is 4 bytes of
/// capabilities (for COM_CHANGE_USER), then the payload.
pub fn check(data: &[u8]) {
    let (caps, payload) = data.split_first_chunk().unwrap_or((&[0; 4], data));
    let caps = Capabilities::from_parts(u32::from_le_bytes(*caps), 0);
    greeting(payload);
    login(payload);
    change_user(payload, caps);
    auth_switch(payload);
    let _ = auth_more_data(payload);
}

fn greeting(payload: &[u8]) {
    let Ok(first) = Greeting::parse(payload) else { return };
    assert!(first.scramble.len() <= payload.len() && first.version().len() <= first.server_version.len());
    let mut out = Vec::new();
    first.write(&mut out);
    let again = Greeting::parse(&out).expect("a greeting that we wrote");
    assert_eq!((&again.server_version, again.connection_id, again.status), (&first.server_version, first.connection_id, first.status));
    out.clear();
    again.write(&mut out);
    assert_eq!(Greeting::parse(&out).as_ref(), Ok(&again));
}

fn login(payload: &[u8]) {
    if let Ok(Some(request)) = SslRequest::parse(payload) {
        let mut out = Vec::new();
        request.write(&mut out);
        assert_eq!(SslRequest::parse(&out), Ok(Some(request)));
    }
    let Ok(login) = HandshakeResponse::parse(payload) else { return };
    assert!(attributes(login.attributes).count() <= login.attributes.len());
    let mut out = Vec::new();
    login.write(&mut out);
    assert_eq!(HandshakeResponse::parse(&out), Ok(login));
}

fn change_user(payload: &[u8], caps: Capabilities) {
    let Ok(change) = ChangeUser::parse(payload, caps) else { return };
    let mut out = Vec::new();
    change.write(&mut out, caps);
    assert_eq!(ChangeUser::parse(&out, caps), Ok(change));
}

fn auth_switch(payload: &[u8]) {
    let Ok(request) = AuthSwitchRequest::parse(payload) else { return };
    let mut out = Vec::new();
    request.write(&mut out);
    assert_eq!(AuthSwitchRequest::parse(&out), Ok(request));
}
