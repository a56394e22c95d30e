//! The cost of a statement whose digest was seen before: no digest is made, no expression is run, and nothing is allocated.

// An allocator cannot be written without `unsafe`; this one passes each call on to the system's, unchanged.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)] // tests may panic

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::borrow::Cow;
use std::cell::Cell;

use common::{Sender, digest, hostgroup, rule_set, rules, with_request};
use routing::{Digest, Memo, Request};

thread_local! {
    /// Allocations of this thread.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator with the caller's own arguments; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        unsafe { System.realloc(at, layout, size) }
    }
}

/// A digest that counts how often it is asked for.
struct Asked {
    text: Vec<u8>,
    hash: u64,
    times: Cell<u32>,
}

impl Digest for Asked {
    fn hash(&self) -> u64 {
        self.times.set(self.times.get() + 1);
        self.hash
    }

    fn text(&self) -> Option<Cow<'_, [u8]>> {
        self.times.set(self.times.get() + 1);
        Some(Cow::Borrowed(&self.text))
    }
}

#[test]
fn a_known_digest_costs_a_look_up() {
    let mut rows = String::from("rule_id=1 username=\"app\" client_addr=\"10.%\" timeout=5 error_msg=\"no\"\n");
    for id in 2..200 {
        rows.push_str(&format!("rule_id={id} match_digest=\"^SELECT .* FROM t{id} \" digest=\"{id}\" destination_hostgroup=3 apply=1\n"));
    }
    rows.push_str("rule_id=900 match_digest=\"^SELECT (?!x)\" destination_hostgroup=7 apply=1\nrule_id=901 match_pattern=\"x\" destination_hostgroup=8");
    let set = rule_set(&rules(&rows));
    let mut memo = Memo::new();
    let mut route = |text: &[u8]| {
        let (digest, hash) = digest(text);
        let asked = Asked { text: digest, hash, times: Cell::new(0) };
        with_request(&Sender::default(), text, |request| {
            let before = COUNT.get();
            let route = set.route(&Request { digest: &asked, ..*request }, &mut memo, 1);
            let cost = COUNT.get() - before;
            drop(route.clone());
            (hostgroup(&route), asked.times.get(), cost)
        })
    };
    let (first, asked, _) = route(b"SELECT a FROM t WHERE b = 1");
    assert!(first == 7 && asked > 0);
    for value in 2..100 {
        assert_eq!(route(format!("SELECT a FROM t WHERE b = {value}").as_bytes()), (7, 0, 0));
    }
    // The text decides here: it is looked up too.
    assert_eq!(route(b"UPDATE x SET a = 1").0, 8);
    assert_eq!(route(b"UPDATE x SET a = 1"), (8, 0, 0));
    assert_eq!(set.hits().find(|(id, _)| *id == 900), Some((900, 99)));
}
