//! One line of the audit log: a session that began, failed to begin, or ended.

use super::event::client_name;
use super::file::LogFormat;
use super::local_time;
use super::log::Record;
use crate::clients::session_handle::SessionHandle;
use model::control::{AdminAction, AdminEvent};
use model::refusals::{shortened, shown_name};
use serde_json::{Map, Value};

/// What happened. The names are ProxySQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditEvent {
    /// A client logged in.
    ConnectOk,
    /// A client was refused.
    ConnectErr,
    /// A client chose a schema (COM_INIT_DB).
    InitDb,
    /// A client said goodbye.
    Quit,
    /// A session is over.
    Close,
    /// The same on the admin port.
    Admin(AdminAction),
}

impl AuditEvent {
    fn name(self) -> &'static str {
        match self {
            Self::ConnectOk => "MySQL_Client_Connect_OK",
            Self::ConnectErr => "MySQL_Client_Connect_ERR",
            Self::InitDb => "MySQL_Client_Init_DB",
            Self::Quit => "MySQL_Client_Quit",
            Self::Close => "MySQL_Client_Close",
            Self::Admin(AdminAction::ConnectOk) => "Admin_Connect_OK",
            Self::Admin(AdminAction::ConnectErr) => "Admin_Connect_ERR",
            Self::Admin(AdminAction::Quit) => "Admin_Quit",
            Self::Admin(AdminAction::Close) => "Admin_Close",
            Self::Admin(AdminAction::Statement) => "Admin_Statement",
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct AuditRecord {
    event: AuditEvent,
    at_us: u64,
    thread_id: u64,
    user: String,
    schema: String,
    client: String,
    proxy: String,
    extra: Option<String>,
    connected_at_ms: u64,
    is_tls: bool,
}

/// Of what else is said, characters.
const TEXT_MAX: usize = 1024;

impl AuditRecord {
    /// Of a session, as it is now.
    pub(crate) fn of(event: AuditEvent, handle: &SessionHandle, extra: Option<&str>) -> Self {
        let view = &handle.row;
        let user = handle.user.borrow().as_ref().map(|user| user.name.to_string());
        Self {
            event,
            at_us: crate::workers::clock::unix_us(),
            thread_id: handle.id,
            user: user.unwrap_or_else(|| view.claimed.borrow().to_string()),
            schema: view.schema.borrow().as_deref().map(shown_name).unwrap_or_default(),
            client: client_name(view.client.get()),
            proxy: view.proxy.get().map(|p| p.to_string()).unwrap_or_default(),
            extra: extra.map(|extra| shortened(extra, TEXT_MAX).to_owned()),
            connected_at_ms: view.connected_at_ms.get(),
            is_tls: view.is_tls.get(),
        }
    }

    /// Of a session of the admin port.
    pub(crate) fn of_admin(event: AdminEvent) -> Self {
        Self {
            event: AuditEvent::Admin(event.action),
            at_us: crate::workers::clock::unix_us(),
            thread_id: event.session_id,
            user: shown_name(event.user.as_bytes()),
            schema: shown_name(event.schema.as_bytes()),
            client: event.client,
            proxy: String::new(),
            extra: event.extra.map(|extra| shortened(&extra, TEXT_MAX).to_owned()),
            connected_at_ms: event.connected_at_ms,
            is_tls: event.is_tls,
        }
    }

    fn json(&self) -> Value {
        const TIME: &str = "%Y-%m-%d %H:%M:%S.%3f";
        let mut map = Map::new();
        let mut put = |name: &str, value: Value| drop(map.insert(name.to_owned(), value));
        put("timestamp", (self.at_us / 1000).into());
        put("time", local_time(self.at_us, TIME).into());
        put("event", self.event.name().into());
        put("thread_id", self.thread_id.into());
        put("username", self.user.as_str().into());
        put("schemaname", self.schema.as_str().into());
        put("client_addr", self.client.as_str().into());
        put("proxy_addr", self.proxy.as_str().into());
        put("ssl", self.is_tls.into());
        if let Some(extra) = &self.extra {
            put("extra_info", extra.as_str().into());
        }
        if matches!(self.event, AuditEvent::Close | AuditEvent::Admin(AdminAction::Close)) {
            let duration_us = self.at_us.saturating_sub(self.connected_at_ms * 1000);
            put("creation_time", local_time(self.connected_at_ms * 1000, TIME).into());
            put("duration", format!("{}.{:03}ms", duration_us / 1000, duration_us % 1000).into());
        }
        Value::Object(map)
    }
}

impl Record for AuditRecord {
    fn size(&self) -> usize {
        let texts = [&self.user, &self.schema, &self.client, &self.proxy];
        size_of::<Self>() + texts.iter().map(|t| t.len()).sum::<usize>() + self.extra.as_ref().map_or(0, String::len)
    }

    fn encode(&self, _: LogFormat, out: &mut Vec<u8>) {
        out.extend_from_slice(self.json().to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_says_how_long_the_session_lasted() {
        let handle = SessionHandle::new(7, 0);
        *handle.row.claimed.borrow_mut() = "anna".into();
        handle.row.connected_at_ms.set(1_000);
        handle.row.client.set(Some(([10, 0, 0, 1], 5000).into()));
        let mut record = AuditRecord::of(AuditEvent::Close, &handle, Some("why"));
        record.at_us = 3_500_125;
        let value = record.json();
        assert_eq!((&value["duration"], &value["timestamp"]), (&Value::from("2500.125ms"), &Value::from(3500)));
        assert_eq!((&value["username"], &value["client_addr"]), (&Value::from("anna"), &Value::from("10.0.0.1:5000")));
        assert_eq!((&value["event"], &value["ssl"]), (&Value::from("MySQL_Client_Close"), &Value::from(false)));
        let admin = AdminEvent {
            action: AdminAction::Close,
            session_id: 3,
            user: "root".to_owned(),
            schema: String::new(),
            client: "10.0.0.2:1".to_owned(),
            connected_at_ms: 1,
            is_tls: true,
            extra: None,
        };
        let value = AuditRecord::of_admin(admin).json();
        assert_eq!((&value["event"], &value["thread_id"], &value["ssl"]), (&"Admin_Close".into(), &3.into(), &true.into()));
        assert!(value.get("duration").is_some());
        let ok = AuditRecord::of(AuditEvent::ConnectOk, &handle, None).json();
        assert!(ok.get("duration").is_none() && ok.get("extra_info").is_none());
    }
}
