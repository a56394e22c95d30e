//! One cached result: it never changes, and is shared by those who answer with it.

use super::budget::Permit;
use super::columns::Coding;
use super::policy::CachePolicy;
use super::reply::Captured;
use super::rows::{ResultProtocol, convert};
use std::sync::atomic::{AtomicU8, Ordering};
use wire::flags::{Capabilities, StatusFlags};
use wire::message::{EOF, OkPacket};
use wire::packet::{self, HEADER};

/// See the module.
#[derive(Debug)]
pub struct Entry {
    form: ResultProtocol,
    packets: Box<[u8]>,
    rows_at: usize,
    rows: u64,
    status: StatusFlags,
    caps: Capabilities,
    /// When its server was asked for it.
    asked_ms: u64,
    created_ms: u64,
    expires_ms: u64,
    crossing: AtomicU8,
    permit: Permit,
}

/// Whether a result may be given in the protocol that it did not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crossing {
    /// Not tried yet.
    Unknown,
    /// Every value has an exact image.
    Exact,
    /// Some value has none.
    Apart,
}

/// Flags of the stored end that belong to the result and not to the session.
const OF_RESULT: StatusFlags = StatusFlags::NO_GOOD_INDEX_USED.union(StatusFlags::NO_INDEX_USED);

impl Entry {
    pub(super) fn new(
        captured: Captured,
        form: ResultProtocol,
        (asked_ms, created_ms, expires_ms): (u64, u64, u64),
        permit: Permit,
    ) -> Self {
        Self {
            form,
            packets: captured.packets.into_boxed_slice(),
            rows_at: captured.rows_at,
            rows: captured.rows,
            status: captured.status,
            caps: captured.caps,
            asked_ms,
            created_ms,
            expires_ms,
            crossing: AtomicU8::new(Crossing::Unknown as u8),
            permit,
        }
    }

    /// Rows of the result.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Length of its packets in bytes.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.packets.len()
    }

    /// Bytes of the cache's budget that it takes.
    pub(crate) fn charged(&self) -> usize {
        self.permit.bytes()
    }

    /// How its packets are framed: give this to [`Reframe`](wire::reframe::Reframe) as the server's capabilities.
    pub fn caps(&self) -> Capabilities {
        self.caps
    }

    /// True while it may be answered under what the rule says now.
    pub(super) fn is_fresh(&self, policy: CachePolicy, now_ms: u64) -> bool {
        now_ms < self.expires_ms && now_ms < self.created_ms.saturating_add(policy.ttl_ms) && self.is_since(policy.since_ms)
    }

    /// True when its server was asked for it then or later.
    pub(super) fn is_since(&self, since_ms: u64) -> bool {
        self.asked_ms >= since_ms
    }

    /// True when `percent` of its life is over.
    pub(super) fn is_due(&self, ttl_ms: u64, percent: u64, now_ms: u64) -> bool {
        let life = ttl_ms.min(self.expires_ms.saturating_sub(self.created_ms));
        let age = now_ms.saturating_sub(self.created_ms);
        age.saturating_mul(100) >= life.saturating_mul(percent)
    }

    /// True when its time is over under any rule.
    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        now_ms >= self.expires_ms
    }

    /// What is known about the other protocol.
    pub(super) fn crossing(&self) -> Crossing {
        let known = self.crossing.load(Ordering::Relaxed);
        [Crossing::Exact, Crossing::Apart].into_iter().find(|crossing| *crossing as u8 == known).unwrap_or(Crossing::Unknown)
    }

    /// True when it can be given in this form. The first question about the other protocol converts every row.
    pub(crate) fn answers(&self, form: ResultProtocol) -> bool {
        if form == self.form {
            return true;
        }
        if self.crossing() == Crossing::Unknown {
            let verdict = if self.converted(form).is_some() { Crossing::Exact } else { Crossing::Apart };
            self.crossing.store(verdict as u8, Ordering::Relaxed);
        }
        self.crossing() == Crossing::Exact
    }

    /// Appends the whole reply in this form, framed as [`Entry::caps`] says; its sequence ids mean nothing, `Reframe` counts
    /// them. `status` is the session's own. None, and nothing appended, when it cannot be given in this form, which
    /// `Entry::answers` tells before. Warnings that its server gave were those of another session: it announces none.
    pub fn write_reply(&self, form: ResultProtocol, status: StatusFlags, out: &mut Vec<u8>) -> Option<()> {
        out.reserve(self.packets.len() + 16);
        if form == self.form {
            out.extend_from_slice(&self.packets)
        } else {
            out.extend_from_slice(&self.converted(form)?)
        }
        let status = status | (self.status & OF_RESULT);
        let end = OkPacket { status, ..OkPacket::default() };
        let mut payload = Vec::with_capacity(8);
        end.write(&mut payload, EOF, self.caps);
        packet::put_packet(out, &mut 0, &payload);
        Some(())
    }

    fn converted(&self, form: ResultProtocol) -> Option<Vec<u8>> {
        let (head, rows) = self.packets.split_at_checked(self.rows_at)?;
        // The first packet is the column count.
        let codings = payloads(head).skip(1).map(Coding::of).collect::<Option<Vec<_>>>()?;
        let mut out = Vec::with_capacity(self.packets.len() + self.packets.len() / 4);
        out.extend_from_slice(head);
        let mut seq = 0;
        for row in payloads(rows) {
            let start = packet::begin_packet(&mut out);
            convert(row, &codings, form, &mut out)?;
            packet::finish_packet(&mut out, start, &mut seq);
        }
        Some(out)
    }
}

/// The payloads of a run of whole packets, none of which is 16 MiB long.
fn payloads(mut packets: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, _) = packet::header(packets)?;
        let payload = packets.get(HEADER..HEADER + len)?;
        packets = packets.get(HEADER + len..)?;
        Some(payload)
    })
}
