//! Reads revisions that other proxies published, and has the engine put them in force.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shared_config::{Link, Verdict, judge};

use super::rollout::Trial;
use super::{Fetched, Sharing};
use crate::handle::WeakHandle;
use crate::reply::{Reply, Role, SessionInfo};
use crate::take_over::Frozen;

/// Time between looks when nothing is new.
const LOOK: Duration = Duration::from_secs(1);
/// Time after which a revision that was refused is tried again: files that it needs may be there by now.
const AGAIN: Duration = Duration::from_secs(30);

/// Follows for as long as the engine lives.
pub(super) async fn follow(sharing: Arc<Sharing>, engine: WeakHandle, frozen: Frozen) {
    let mut news = sharing.shared.news();
    let mut refused: Option<(String, Instant)> = None;
    let mut trial = Trial::new(sharing.lock().trial.clone());
    while engine.is_alive() {
        let seen = news.borrow_and_update().clone();
        // While this process is frozen, the one that takes over follows.
        if seen.link != Link::Off && !frozen.is_set() {
            step(&sharing, &engine, &mut refused, &mut trial).await;
            trial.step(&sharing, &engine, &seen).await;
        }
        let _ = tokio::time::timeout(LOOK, news.changed()).await;
    }
}

/// The engine's answer to a statement of the proxy's own.
pub(super) async fn ask(engine: &WeakHandle, user: &str, sql: &str) -> Option<Reply> {
    let session = SessionInfo { user: user.to_owned(), ..SessionInfo::default() };
    engine.execute_async(Role::Admin, &session, sql).await
}

async fn step(sharing: &Arc<Sharing>, engine: &WeakHandle, refused: &mut Option<(String, Instant)>, trial: &mut Trial) {
    // The order matters: a revision published here is known as the head before it is in force.
    let (standing, seen) = (sharing.standing(), sharing.seen());
    let Some(head) = &seen.head else {
        let why = match (&seen.fault, &standing) {
            (Some(fault), _) => fault.clone(),
            (None, Some(_)) if seen.is_known => {
                "etcd has lost the shared configuration: the proxy keeps its own, and CONFIG SHARE stores it again".to_owned()
            }
            _ => String::new(),
        };
        return sharing.shared.report(|line| line.error = why);
    };
    let uuid = sharing.me().uuid;
    let wanted = Sharing::wanted(head, &uuid);
    match judge(&head.manifest, &uuid, standing.as_ref()) {
        Verdict::Same => {
            *refused = None;
            sharing.shared.report(|line| {
                line.wanted = wanted.number;
                line.error.clear();
            });
        }
        Verdict::Keep(why) | Verdict::Conflict(_, why) => {
            if sharing.me().error != why {
                tracing::error!("shared configuration: {why}");
            }
            sharing.shared.report(|line| (line.wanted, line.error) = (wanted.number, why));
        }
        Verdict::Take if sharing.is_under_way(&wanted) => {}
        Verdict::Take => {
            if refused.as_ref().is_some_and(|(id, when)| *id == wanted.id && when.elapsed() < AGAIN) {
                return;
            }
            sharing.shared.report(|line| line.wanted = wanted.number);
            let outcome = match sharing.shared.read(&wanted).await {
                Ok(text) => {
                    let standing = head.manifest.standing_of(&uuid);
                    sharing.lock().fetched = Some(Fetched { standing, revision: wanted.clone(), text });
                    trial.look_before(engine).await;
                    match ask(engine, "shared", "CONFIG FOLLOW").await {
                        Some(Reply::Err { text, .. }) => Err(text),
                        Some(_) => Ok(()),
                        None => return,
                    }
                }
                Err(error) => Err(error.to_string()),
            };
            match outcome {
                Ok(()) => *refused = None,
                Err(why) => {
                    if refused.as_ref().is_none_or(|(id, _)| *id != wanted.id) {
                        tracing::error!(
                            "shared configuration: revision {} is not used: {why}; the earlier revision stays in force",
                            wanted.number
                        );
                    }
                    *refused = Some((wanted.id.clone(), Instant::now()));
                    sharing.shared.report(|line| line.error = why.chars().take(1_000).collect());
                }
            }
        }
    }
}
