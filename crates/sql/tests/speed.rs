//! Prints the time of the hot path: `cargo test -p sql --release --test speed -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use sql::*;

fn report(name: &str, bytes: usize, mut run: impl FnMut()) {
    let rounds = (200_000_000 / (bytes + 200)).clamp(50, 1_000_000);
    let mut best = f64::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        for _ in 0..rounds / 7 {
            run();
        }
        best = best.min(start.elapsed().as_secs_f64() / (rounds / 7) as f64);
    }
    println!("{name:32} {bytes:8} B {:10.1} ns {:8.2} GB/s", best * 1e9, bytes as f64 / best / 1e9);
}

#[test]
#[ignore = "prints timings"]
fn speed() {
    let long = format!("INSERT INTO t VALUES ('{}')", "x".repeat(100_000));
    let rows = format!("INSERT INTO t (a,b,c,d,e,f) VALUES {}", ["(1,'abc',3.5,NULL,'some text',NOW())"; 300].join(","));
    let numbers = format!("SELECT a FROM t WHERE b IN ({})", vec!["12345678"; 1000].join(","));
    let join = "SELECT u.id, u.name, o.total, o.created_at FROM users u JOIN orders o ON o.user_id = u.id \
                LEFT JOIN items i ON i.order_id = o.id WHERE u.status = 'active' AND o.total > 100.50 \
                AND o.created_at BETWEEN '2024-01-01' AND '2024-12-31' ORDER BY o.created_at DESC LIMIT 50";
    let insert = "INSERT INTO orders (user_id, total, note) VALUES (17, 99.5, 'some note here')";
    let cases = [
        ("point select", "SELECT c FROM sbtest1 WHERE id=501234567"),
        ("join", join),
        ("insert", insert),
        ("insert, 300 rows", &rows),
        ("1000 numbers", &numbers),
        ("long literal", &long),
    ];
    for (name, sql) in cases {
        let sql = sql.as_bytes();
        report(&format!("analyze {name}"), sql.len(), || {
            black_box(analyze(black_box(sql), LexMode::default()));
        });
        let mut shapes = Shapes::default();
        report(&format!("known shape {name}"), sql.len(), || {
            black_box(shapes.analyze(black_box(sql), LexMode::default(), Grouping::default()));
        });
        let mut out = Vec::new();
        let opts = DigestOptions::default();
        report(&format!("digest_text {name}"), sql.len(), || {
            out.clear();
            digest_text(black_box(sql), &opts, &mut out);
            black_box(&out);
        });
    }
    report("insert_id_is_certain", insert.len(), || {
        black_box(insert_id_is_certain(black_box(insert.as_bytes()), LexMode::default(), 12345));
    });
    report("spooky 32", 32, || {
        black_box(spooky_hash64(black_box(b"SELECT c FROM sbtest1 WHERE id=?"), 0));
    });
    report("spooky 2048", 2048, || {
        black_box(spooky_hash64(black_box(&long.as_bytes()[..2048]), 0));
    });
}
