//! Asking the workers from other threads. A worker answers between two polls of its sessions, so a question must be
//! short; long answers are asked for in slices.

use crate::workers::mailbox::Mail;
use crate::workers::shared::Shared;
use crate::workers::worker::Worker;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long the workers have to answer; one that does not is left out.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Puts `question` to worker number `index` and waits for the answer; None when there is none in time. Never called
/// from a worker, which would wait for itself.
pub(crate) fn ask<T: Send + 'static>(shared: &Shared, index: usize, question: impl FnOnce(&Rc<Worker>) -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let mail = Mail::Ask(Box::new(move |worker| drop(sender.try_send(question(worker)))));
    shared.mailboxes.get(index)?.send(mail);
    receiver.recv_timeout(ANSWER_WITHIN).ok()
}

/// Puts `question` to all workers at once; the answers come in any order.
pub(crate) fn ask_all<T: Send + 'static>(shared: &Shared, question: impl Fn(&Rc<Worker>) -> T + Clone + Send + 'static) -> Vec<T> {
    let (sender, receiver) = mpsc::sync_channel(shared.mailboxes.len());
    for mailbox in &shared.mailboxes {
        let (sender, question) = (sender.clone(), question.clone());
        mailbox.send(Mail::Ask(Box::new(move |worker| drop(sender.try_send(question(worker))))));
    }
    drop(sender);
    // The simulator's workers run on the thread that asks: they get to it as soon as it waits for anything.
    #[cfg(feature = "sim")]
    if shared.simulated.get().is_some() {
        return Vec::new();
    }
    let deadline = Instant::now() + ANSWER_WITHIN;
    let mut answers = Vec::new();
    while let Ok(answer) = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        answers.push(answer);
    }
    answers
}
