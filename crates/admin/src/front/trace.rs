//! A session's lines in the audit log: its begin or its refusal, each change of its user, and its end.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use model::control::{AdminAction, AdminEvent};
use model::refusals::shown_name;

use super::End;
use crate::clock::now_ms;
use crate::handle::EngineHandle;

/// One session's trace; clones are the same one.
#[derive(Clone)]
pub(super) struct Trace {
    engine: EngineHandle,
    known: Arc<Mutex<Known>>,
}

/// The values known so far.
struct Known {
    stage: Stage,
    line: AdminEvent,
    /// The user that a client which has logged in wants to become.
    claimed: Option<String>,
}

/// How far the session came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    LogsIn,
    LoggedIn,
}

impl Trace {
    /// Of a client that has just come.
    pub(super) fn new(engine: EngineHandle, id: u32, peer: Option<SocketAddr>) -> Self {
        let line = AdminEvent {
            action: AdminAction::ConnectOk,
            session_id: u64::from(id),
            user: String::new(),
            schema: String::new(),
            client: peer.map(|peer| peer.to_string()).unwrap_or_default(),
            connected_at_ms: now_ms(),
            is_tls: false,
            extra: None,
        };
        Self { engine, known: Arc::new(Mutex::new(Known { stage: Stage::LogsIn, line, claimed: None })) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The client speaks TLS.
    pub(super) fn is_tls(&self) {
        self.with(|known| known.line.is_tls = true);
    }

    /// The client claims to be `user`. A session that has entered keeps its user until the claim is proven.
    pub(super) fn claims(&self, user: &[u8]) {
        let name = shown_name(user);
        self.with(|known| match known.stage {
            Stage::LogsIn => known.line.user = name,
            Stage::LoggedIn => known.claimed = Some(name),
        });
    }

    /// The client logged in, or changed its user.
    pub(super) fn enters(&self, schema: Option<&str>) {
        self.with(|known| {
            if let Some(user) = known.claimed.take() {
                known.line.user = user;
            }
            known.stage = Stage::LoggedIn;
            known.line.schema = schema.unwrap_or_default().to_owned();
        });
        self.tell(AdminAction::ConnectOk, None);
    }

    /// Is the client logged in?
    pub(super) fn has_entered(&self) -> bool {
        self.with(|known| known.stage == Stage::LoggedIn)
    }

    /// The session is over.
    pub(super) fn ends(&self, end: &End) {
        let (stage, claimed) = self.with(|known| (known.stage, known.claimed.take()));
        if let Some(user) = claimed {
            let line = self.with(|known| known.line.clone());
            let (action, extra) = (AdminAction::ConnectErr, Some(end.reason()));
            self.engine.audit(AdminEvent { action, user, schema: String::new(), extra, ..line });
        }
        match (stage, end) {
            // Probes of the port, which say nothing and leave, are no refusals.
            (Stage::LogsIn, End::Gone) => return,
            (Stage::LogsIn, end) => return self.tell(AdminAction::ConnectErr, Some(end.reason())),
            (Stage::LoggedIn, End::Quit) => self.tell(AdminAction::Quit, None),
            (Stage::LoggedIn, _) => {}
        }
        self.tell(AdminAction::Close, None);
    }

    /// The client was turned away before it could say anything.
    pub(super) fn is_turned_away(&self, why: &str) {
        self.tell(AdminAction::ConnectErr, Some(why.to_owned()));
    }

    fn tell(&self, action: AdminAction, extra: Option<String>) {
        let line = self.with(|known| known.line.clone());
        self.engine.audit(AdminEvent { action, extra, ..line });
    }
}

impl End {
    /// Why, in words for the log.
    fn reason(&self) -> String {
        match self {
            Self::Refused(why) => why.clone(),
            Self::Lost(error) => error.to_string(),
            Self::LoginTimeout => "the login took too long".to_owned(),
            Self::MadeRoom => "made room for a local client".to_owned(),
            Self::NotReading => "the client does not read".to_owned(),
            Self::Gone | Self::Quit | Self::Idle => "the client left".to_owned(),
        }
    }
}
