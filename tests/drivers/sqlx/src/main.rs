//! Rust programs as they are usually written: sqlx with its pool, prepared statements by default.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::future::Future;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions, MySqlRow, MySqlSslMode};
use sqlx::{Column, Connection, Either, Executor, MySqlConnection, Row, TypeInfo, ValueRef};

/// What a test gives: all that it saw, as text.
type Seen = Result<String, Box<dyn Error + Send + Sync>>;

const LIMIT: Duration = Duration::from_secs(60);

fn setting(name: &str) -> String {
    env::var(format!("DRIVERS_{name}")).unwrap_or_default()
}

fn options() -> MySqlConnectOptions {
    let password = setting("PASSWORD");
    let options = MySqlConnectOptions::new()
        .host(&setting("HOST"))
        .port(setting("PORT").parse().unwrap_or(3306))
        .username(&setting("USER"))
        .database(&setting("DATABASE"))
        .ssl_mode(MySqlSslMode::Disabled);
    // An empty password is not the same as none for sqlx: it would scramble it.
    if password.is_empty() { options } else { options.password(&password) }
}

async fn pool(size: u32) -> Result<MySqlPool, sqlx::Error> {
    MySqlPoolOptions::new().max_connections(size).acquire_timeout(Duration::from_secs(50)).connect_with(options()).await
}

/// Every field as its type's name and raw bytes: no conversion hides a difference.
fn row_text(row: &MySqlRow) -> String {
    let mut text = String::new();
    for column in row.columns() {
        let Ok(value) = row.try_get_raw(column.ordinal()) else { continue };
        let bytes: Option<Vec<u8>> = if value.is_null() { None } else { row.try_get_unchecked(column.ordinal()).ok() };
        let _ = write!(text, "{} {} {bytes:?}; ", column.name(), column.type_info().name());
    }
    text
}

async fn fill(pool: &MySqlPool) -> Result<(), Box<dyn Error + Send + Sync>> {
    pool.execute("DROP TABLE IF EXISTS every_type").await?;
    let text = fs::read_to_string(format!("{}/types.sql", setting("SQL")))?;
    for statement in text.split(";\n").filter(|s| !s.trim().is_empty()) {
        pool.execute(statement).await?;
    }
    Ok(())
}

async fn types_text() -> Seen {
    let pool = pool(2).await?;
    fill(&pool).await?;
    let rows = pool.fetch_all("SELECT * FROM every_type ORDER BY id").await?;
    Ok(rows.iter().map(row_text).collect())
}

async fn types_prepared() -> Seen {
    let pool = pool(2).await?;
    let rows = sqlx::query("SELECT * FROM every_type WHERE id > ? ORDER BY id").bind(0).fetch_all(&pool).await?;
    Ok(rows.iter().map(row_text).collect())
}

async fn tls() -> Seen {
    let mut connection = MySqlConnection::connect_with(&options().ssl_mode(MySqlSslMode::Required)).await?;
    let row: (String,) = sqlx::query_as("SELECT 'over TLS'").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(row.0)
}

async fn transactions() -> Seen {
    let pool = pool(4).await?;
    pool.execute("DROP TABLE IF EXISTS sqlx_trx").await?;
    pool.execute("CREATE TABLE sqlx_trx (i INT)").await?;
    let mut seen = String::new();
    for commit in [false, true] {
        let mut trx = pool.begin().await?;
        sqlx::query("INSERT INTO sqlx_trx VALUES (?)").bind(1).execute(&mut *trx).await?;
        let mut nested = trx.begin().await?;
        sqlx::query("INSERT INTO sqlx_trx VALUES (?)").bind(2).execute(&mut *nested).await?;
        nested.rollback().await?;
        let outside: (i64,) = sqlx::query_as("SELECT COUNT(*) FROM sqlx_trx").fetch_one(&pool).await?;
        if commit { trx.commit().await? } else { trx.rollback().await? }
        let after: (i64,) = sqlx::query_as("SELECT COUNT(*) FROM sqlx_trx").fetch_one(&pool).await?;
        let _ = write!(seen, "{outside:?} {after:?}; ");
    }
    Ok(seen)
}

async fn dropped_transaction() -> Seen {
    let pool = pool(1).await?;
    for _ in 0..5 {
        let mut trx = pool.begin().await?;
        sqlx::query("INSERT INTO sqlx_trx VALUES (99)").execute(&mut *trx).await?;
    }
    let left: (i64,) = sqlx::query_as("SELECT COUNT(*) FROM sqlx_trx WHERE i = 99").fetch_one(&pool).await?;
    Ok(format!("{left:?}"))
}

async fn results() -> Seen {
    let pool = pool(3).await?;
    pool.execute("DROP TABLE IF EXISTS sqlx_ids").await?;
    pool.execute("CREATE TABLE sqlx_ids (i BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, t TEXT)").await?;
    let mut seen = String::new();
    for n in 0..10 {
        let done = sqlx::query("INSERT INTO sqlx_ids (t) VALUES (?), (?)").bind(format!("é{n}")).bind(None::<String>).execute(&pool).await?;
        let _ = write!(seen, "{} {}; ", done.last_insert_id(), done.rows_affected());
    }
    let done = sqlx::query("UPDATE sqlx_ids SET t = 'same'").execute(&pool).await?;
    Ok(format!("{seen}{}", done.rows_affected()))
}

async fn errors() -> Seen {
    let pool = pool(1).await?;
    let mut seen = String::new();
    for statement in ["SELECT * FROM nowhere", "SELEC 1", "SELECT nothing", "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'own é'"] {
        for prepared in [false, true] {
            let outcome = if prepared { sqlx::query(statement).execute(&pool).await } else { pool.execute(statement).await };
            let _ = write!(seen, "{:?}; ", outcome.map(|done| done.rows_affected()).map_err(|e| e.to_string()));
        }
    }
    Ok(seen)
}

async fn multi_statements() -> Seen {
    let pool = pool(1).await?;
    let mut stream = pool.fetch_many("SELECT 1; DO 1; SELECT 'x;y', 2; SELECT 3 WHERE FALSE");
    let mut seen = String::new();
    while let Some(item) = stream.try_next().await? {
        let text = match item {
            Either::Left(done) => format!("done {}; ", done.rows_affected()),
            Either::Right(row) => row_text(&row),
        };
        seen.push_str(&text);
    }
    Ok(seen)
}

async fn blob() -> Seen {
    let pool = pool(1).await?;
    pool.execute("DROP TABLE IF EXISTS sqlx_blob").await?;
    pool.execute("CREATE TABLE sqlx_blob (b LONGBLOB)").await?;
    let bytes: Vec<u8> = (0..20_u32 << 20).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    sqlx::query("INSERT INTO sqlx_blob VALUES (?)").bind(&bytes).execute(&pool).await?;
    let back: (Vec<u8>,) = sqlx::query_as("SELECT b FROM sqlx_blob").fetch_one(&pool).await?;
    Ok(format!("{} {}", back.0.len(), back.0 == bytes))
}

async fn many_tasks() -> Seen {
    let pool = pool(20).await?;
    pool.execute("DROP TABLE IF EXISTS sqlx_tasks").await?;
    pool.execute("CREATE TABLE sqlx_tasks (task INT, n INT, KEY (task))").await?;
    let tasks = (0..40).map(|task| {
        let pool = pool.clone();
        async move {
            for n in 0..10 {
                sqlx::query("INSERT INTO sqlx_tasks VALUES (?, ?)").bind(task).bind(n).execute(&pool).await?;
                let seen: (i64,) = sqlx::query_as("SELECT COUNT(*) FROM sqlx_tasks WHERE task = ?").bind(task).fetch_one(&pool).await?;
                if seen.0 != n + 1 {
                    return Err(sqlx::Error::Protocol(format!("task {task} sees {} rows of {}", seen.0, n + 1)));
                }
            }
            Ok(())
        }
    });
    try_join_all(tasks).await?;
    let all: (i64,) = sqlx::query_as("SELECT COUNT(*) FROM sqlx_tasks").fetch_one(&pool).await?;
    Ok(format!("{all:?}"))
}

async fn stream_dropped() -> Seen {
    let pool = pool(1).await?;
    let mut seen = 0;
    for _ in 0..5 {
        let mut stream = sqlx::query("SELECT a.i, b.i FROM sqlx_ids a, sqlx_ids b, sqlx_ids c").fetch(&pool);
        seen += i32::from(stream.try_next().await?.is_some());
    }
    let one: (i64,) = sqlx::query_as("SELECT 1").fetch_one(&pool).await?;
    Ok(format!("{seen} {one:?}"))
}

async fn many_statements() -> Seen {
    let pool = MySqlPoolOptions::new().max_connections(3).connect_with(options().statement_cache_capacity(5)).await?;
    let mut sum = 0;
    for round in 0..3 {
        for n in 0..60_i64 {
            let row: (i64,) = sqlx::query_as(&format!("SELECT CAST(? + {n} AS SIGNED)")).bind(round).fetch_one(&pool).await?;
            sum += row.0;
        }
    }
    Ok(sum.to_string())
}

async fn report(name: &str, test: impl Future<Output = Seen>) {
    let outcome = tokio::time::timeout(LIMIT, test).await;
    let (status, mut detail) = match outcome {
        Ok(Ok(seen)) => ("pass", seen),
        Ok(Err(error)) => ("fail", error.to_string()),
        Err(_) => ("fail", "no end in time".to_owned()),
    };
    if detail.len() > 20_000 {
        detail = detail.chars().take(20_000).collect();
    }
    println!("@@ {}", serde_json::json!({ "test": name, "status": status, "detail": detail }));
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    report("types_text", types_text()).await;
    report("types_prepared", types_prepared()).await;
    report("tls", tls()).await;
    report("transactions", transactions()).await;
    report("dropped_transaction", dropped_transaction()).await;
    report("results", results()).await;
    report("errors", errors()).await;
    report("multi_statements", multi_statements()).await;
    report("blob", blob()).await;
    report("many_tasks", many_tasks()).await;
    report("stream_dropped", stream_dropped()).await;
    report("many_statements", many_statements()).await;
}
