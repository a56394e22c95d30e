//! COM_CHANGE_USER: another login in the same connection.

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::end::End;
use super::frontend::Frontend;
use super::login::{MAX_LOGIN_PACKET, account, count_session, decoy, denied, learn, malformed, scramble, stored, tls_is_required};
use crate::backends::cleaning::{self, outlives_reset};
use crate::workers::counters::count;
use crate::workers::shared::HostLogin;
use model::snapshot::User;
use session_state::server_info::name_in_utf8;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wire::auth::Plugin;
use wire::auth::server::{ServerAuth, Step};
use wire::flags::Capabilities;
use wire::handshake::{AuthSwitchRequest, ChangeUser};
use wire::packet::{self, HEADER};
use wire::{WireError, codes};

impl Session {
    /// COM_CHANGE_USER: a new login on the same connection.
    pub(super) async fn change_user(&mut self, command: Incoming) -> Result<(), End> {
        let payload = self.client.payload(command).to_vec();
        // The old user's backends are cleaned whatever comes: the session never sees them again.
        if let Some(places) = self.at.places.take() {
            places.clean(&self.worker).await;
        }
        let pins = self.at.pins.set();
        self.at.pins.clear();
        self.recovery.drop_gtid(&self.at, false);
        if let Some(backend) = self.at.backend.take()
            && !outlives_reset(&backend, pins)
            && let Some(backend) = cleaning::cleaned(&self.worker, &self.at.pool, backend, pins).await
        {
            self.at.pool.release_to(&self.worker, &self.at.lane, backend);
        }
        let limit = Duration::from_millis(self.worker.snapshot().vars.connect_timeout_client);
        match tokio::time::timeout(limit, log_in_again(self, &payload)).await {
            Ok(result) => result,
            Err(_) => {
                self.worker.shared.note_host(self.client.peer, HostLogin::Failed);
                Err(End::LoginTimeout)
            }
        }
    }
}

/// The whole login but greeting and TLS. The old user's state is gone whatever comes. What a client with plugins
/// sends along counts for nothing: it is asked.
async fn log_in_again(session: &mut Session, payload: &[u8]) -> Result<(), End> {
    let change = ChangeUser::parse(payload, session.client.caps).map_err(malformed)?;
    let worker = Rc::clone(&session.worker);
    let collation = change.collation.unwrap_or(session.client.collation);
    let name = name_in_utf8(worker.shared.info.get().as_deref(), collation, change.user);
    let user = worker.snapshot().frontend_user(&name).cloned();
    let channel = session.client.link.stream().channel();
    let default = Plugin::from_name(worker.snapshot().vars.default_authentication_plugin.as_str().as_bytes()).unwrap_or(Plugin::Native);
    // Under the greeting's scramble, as MariaDB does: libmariadb 3.3.20 answers that, whatever it is asked.
    let mut auth = ServerAuth::new(session.client.scramble, default, channel);
    let seq = session.client.prove_again(&mut session.at, &mut auth, (&name, user.as_deref()), &change).await?;
    let Some((user, seq)) = user.zip(seq) else {
        let text = denied(&name, &session.client.host(), auth.with_password());
        worker.shared.note_host(session.client.peer, HostLogin::Failed);
        return Err(session.client.refuse_change(&mut session.at, codes::ACCESS_DENIED, "28000", text).await);
    };
    session.client.login_seq = seq;
    if user.use_ssl && !session.client.link.stream().is_tls() {
        let text = tls_is_required(&user, &session.client.host());
        return Err(session.client.refuse_change(&mut session.at, codes::ACCESS_DENIED, "28000", text).await);
    }
    if user.name != session.at.user.name {
        if let Err(text) = count_session(&worker, &user) {
            return Err(session.client.refuse_change(&mut session.at, codes::USER_LIMIT_REACHED, "42000", text).await);
        }
        // From here on the handle's user is the new one: whoever is in the handle is counted, and no longer at the session's end.
        worker.shared.user(&session.at.user.name).disconnected();
    }
    *session.handle.user.borrow_mut() = Some(Arc::clone(&user));
    worker.shared.note_session(session.handle.id, Some(&user.name));
    session.at.pool = worker.pool(user.default_hostgroup);
    session.at.user = user;
    session.forget_rehearsal();
    session.client.collation = collation;
    session.wants.state.schema = None;
    session.drop_session_state();
    session.at.choose_lane(session.client.caps);
    session.client.forget_ignore_space(&mut session.at, &mut session.wants);
    session.begin(Some(change.schema).filter(|s| !s.is_empty()));
    session.client.check_collation(&mut session.at).await?;
    if let Some(schema) = session.wants.state.schema.clone() {
        session.ask_for_schema(&schema).await?;
    }
    session.client.send_login_ok(&mut session.at, &session.wants, seq).await
}

impl Frontend {
    /// Sends the error that ends a COM_CHANGE_USER, and the session with it.
    async fn refuse_change(&mut self, at: &mut Backends, code: u16, sqlstate: &str, text: String) -> End {
        let counters = &at.worker.counters;
        count(if code == codes::ACCESS_DENIED { &counters.denied_password } else { &counters.denied_max_user_connections });
        match self.send_error_at(at, self.login_seq, code, sqlstate, text.as_bytes()).await {
            Ok(()) => End::Refused(text),
            Err(end) => end,
        }
    }

    async fn send_login_packet(&mut self, at: &mut Backends, payload: &[u8], seq: &mut u8) -> Result<(), End> {
        let mut out = Vec::new();
        packet::put_packet(&mut out, seq, payload);
        self.write_front(at, &out).await
    }

    /// A packet behind the command at the front of the input, and the sequence id that follows it.
    async fn receive_login_packet(&mut self, at: &Backends) -> Result<(Vec<u8>, u8), End> {
        loop {
            let bytes = self.input.filled();
            let skip = packet::header(bytes).map_or(0, |(len, _)| HEADER + len);
            if let Some((len, seq)) = bytes.get(skip..).and_then(packet::header) {
                if len > MAX_LOGIN_PACKET {
                    return Err(malformed(WireError::Malformed("login packet is too long")));
                }
                if let Some(payload) = bytes.get(skip + HEADER..skip + HEADER + len) {
                    let payload = payload.to_vec();
                    self.input.consume_behind(skip, HEADER + len);
                    return Ok((payload, seq.wrapping_add(1)));
                }
            }
            self.read_more(at, self.input.len() + HEADER).await?;
        }
    }

    /// The exchange of COM_CHANGE_USER; the sequence id that comes next, or None when the password is wrong.
    async fn prove_again(
        &mut self,
        at: &mut Backends,
        auth: &mut ServerAuth,
        (name, user): (&[u8], Option<&User>),
        change: &ChangeUser<'_>,
    ) -> Result<Option<u8>, End> {
        let worker = Rc::clone(&at.worker);
        let secrets = user.map(|u| worker.shared.user(&u.name).secrets()).unwrap_or_default();
        let secret = scramble();
        let snapshot = worker.snapshot();
        let account = account(&worker.shared, user.map_or_else(|| decoy(&snapshot, name, &secret), stored), &secrets);
        let mut seq = 1;
        // Without plugins a client cannot be asked again: it has answered the greeting.
        let mut step = if self.caps.contains(Capabilities::PLUGIN_AUTH) {
            auth.ask(&account, change.plugin)
        } else {
            auth.start(&account, None, change.auth_response)
        }
        .map_err(malformed)?;
        loop {
            self.login_seq = seq;
            let payload = match step {
                Step::Denied => return Ok(None),
                Step::Check(check) => {
                    step = at.worker.check(move || check.run()).await.unwrap_or(Step::Denied);
                    continue;
                }
                Step::Done(verified) => {
                    if !user.is_some_and(|user| learn(&worker.shared, user, &verified)) {
                        return Ok(None);
                    }
                    if let Some(packet) = verified.before_ok {
                        self.send_login_packet(at, &packet, &mut seq).await?;
                    }
                    return Ok(Some(seq));
                }
                Step::Send(payload) => payload,
                Step::Switch(plugin) => {
                    let data = [&self.scramble[..], &[0]].concat();
                    let mut payload = Vec::new();
                    AuthSwitchRequest { plugin: plugin.name().as_bytes(), data: &data }.write(&mut payload);
                    payload
                }
            };
            self.send_login_packet(at, &payload, &mut seq).await?;
            let (answer, next) = self.receive_login_packet(at).await?;
            seq = next;
            step = auth.feed(&account, &answer).map_err(malformed)?;
        }
    }
}
