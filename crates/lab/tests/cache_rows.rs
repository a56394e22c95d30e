//! A result cached in one protocol and answered in the other is, byte for byte, the result that a server would have sent.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use lab::client::ResultSet;
use lab::tidegate::Setting;
use lab::{Client, ConnectOptions, Flavor, Options, Server, Tidegate, wait};
use std::time::Duration;

/// Columns of every type that may be converted.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS test.kinds (id INT PRIMARY KEY AUTO_INCREMENT,
    i8 TINYINT, u8 TINYINT UNSIGNED, i16 SMALLINT, u16 SMALLINT UNSIGNED, i24 MEDIUMINT, u24 MEDIUMINT UNSIGNED,
    i32 INT, u32 INT UNSIGNED, i64 BIGINT, u64 BIGINT UNSIGNED, de DECIMAL(20,5), bi BIT(12), ye YEAR,
    da DATE, dt DATETIME, dt3 DATETIME(3), dt6 DATETIME(6), ts TIMESTAMP NULL, ts6 TIMESTAMP(6) NULL, ti TIME, ti2 TIME(2), ti6 TIME(6),
    ch CHAR(10), va VARCHAR(100), vb VARBINARY(100), tx TEXT, bl BLOB, en ENUM('a','b'), se SET('x','y'), js JSON)";

/// Rows, from the least values to the largest.
const ROWS: [&str; 5] = [
    "-128,0,-32768,0,-8388608,0,-2147483648,0,-9223372036854775808,0,-99999.99999,0,1901,\
     '0000-00-00','0000-00-00 00:00:00','0000-00-00 00:00:00','0000-00-00 00:00:00','1970-01-02 00:00:01','1970-01-02 00:00:01',\
     '-838:59:59','-838:59:58.25','-838:59:58.000001','','','','','','a','','null'",
    "127,255,32767,65535,8388607,16777215,2147483647,4294967295,9223372036854775807,18446744073709551615,99999.99999,4095,2155,\
     '9999-12-31','9999-12-31 23:59:59','9999-12-31 23:59:59.999','9999-12-31 23:59:59.999999','2037-12-31 23:59:59','2037-12-31 23:59:59.5',\
     '838:59:59','838:59:58.75','838:59:58.999999','char','var',x'00ff',REPEAT('t',300),REPEAT(x'fb',70000),'b','x,y','{\"a\":[1,null]}'",
    "0,0,0,0,0,0,0,0,0,0,0,1,0,'2024-02-29','2024-02-29','2024-02-29 00:00:00.5','2024-02-29 10:00:00','2024-02-29','2024-02-29 00:00:00.000001',\
     '00:00:00','00:00:00.5','24:00:00',' ','\\n','\\0','ä','','a','x','\"s\"'",
    "-1,1,-1,1,-1,1,-1,1,-1,1,-0.5,2,0,'0000-01-00','2024-00-00 00:00:01','1000-01-01','1000-01-01','2000-01-01','2000-01-01',\
     '-00:00:01','-00:00:00.01','-00:00:00.000001','x','x','x','x','x',NULL,NULL,'[]'",
    "NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,\
     NULL,NULL,NULL,NULL,NULL,NULL,NULL",
];

/// Values that no table holds.
const QUERIES: [&str; 8] = [
    "SELECT * FROM test.kinds ORDER BY id",
    "SELECT 1, -1, 18446744073709551615, 'a', NULL, 1.50, TRUE, x'41', b'101', CAST(5 AS UNSIGNED), 7 DIV 2, 1=1",
    "SELECT DATE'2024-01-02', TIMESTAMP'2024-01-02 03:04:05', TIMESTAMP'2024-01-02 03:04:05.670', TIME'-01:02:03.4', TIME'00:00:00'",
    "SELECT COUNT(*), SUM(i32), MIN(da), MAX(dt), MAX(dt3), MIN(ti), MAX(ti6), MAX(ye), BIT_OR(u8), GROUP_CONCAT(va) FROM test.kinds",
    "SELECT DATE_ADD(dt, INTERVAL 1 MICROSECOND), TIMEDIFF(dt6, dt), SEC_TO_TIME(i32), MAKETIME(1,2,3), YEAR(da), ye+1, DATE(dt) FROM test.kinds WHERE id = 3",
    "SELECT IF(id=1, ye, NULL), COALESCE(ti6, '00:00:00'), IFNULL(dt3, NOW()), LENGTH(bl), id FROM test.kinds WHERE id < 4",
    "SELECT ye, dt6, ti2, i8 FROM test.kinds WHERE id = 1 UNION ALL SELECT ye, dt, ti, u64 FROM test.kinds WHERE id = 2",
    "SHOW TABLES FROM test",
];

fn fill_table(server: &Server) {
    let mut root = server.root().unwrap();
    root.run("SET sql_mode='', time_zone='+00:00'").unwrap();
    root.run(TABLE).unwrap();
    for row in ROWS {
        root.run(format!("INSERT INTO test.kinds VALUES (NULL,{row})")).unwrap();
    }
}

/// Every read is cached.
fn proxy(server: &Server) -> Tidegate {
    let rule: [(&str, Setting); 4] =
        [("rule_id", 1.into()), ("active", 1.into()), ("match_digest", "^(SELECT|SHOW)".into()), ("cache_ttl", 3_600_000.into())];
    Tidegate::builder().backend(0, server).app_user().row("mysql_query_rules", &rule).start().unwrap()
}

fn connect(options: ConnectOptions) -> Client {
    let mut client = Client::connect(&options.database("test")).unwrap();
    // Strictness would add warnings about zero dates, and results with warnings are not kept.
    client.run("SET sql_mode='', time_zone='+00:00'").unwrap();
    client
}

fn in_text(client: &mut Client, query: &str) -> ResultSet {
    client.run(query).unwrap().rows().unwrap().clone()
}

fn in_binary(client: &mut Client, query: &str) -> ResultSet {
    let statement = client.prepare(query).unwrap();
    let reply = client.execute(&statement, &[]).unwrap();
    client.close_statement(&statement).unwrap();
    reply.rows().unwrap().clone()
}

/// Definitions and rows as they came.
fn raw(set: &ResultSet) -> (Vec<&[u8]>, Vec<&[u8]>) {
    (set.columns.iter().map(|column| &column.raw[..]).collect(), set.rows.iter().map(|row| &row.raw[..]).collect())
}

fn answers_from_the_cache(admin: &mut Client) -> i64 {
    let sql = "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = 'Query_Cache_count_GET_OK'";
    admin.scalar(sql).unwrap().unwrap().parse().unwrap()
}

#[test]
fn a_cached_result_is_the_servers_own_in_the_other_protocol() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = Server::start(flavor, &Options::new()).unwrap();
        fill_table(&server);
        let proxy = proxy(&server);
        // The admin interface comes a moment after the listener.
        let mut admin = wait::until("the admin interface listens", Duration::from_secs(10), || proxy.admin().ok()).unwrap();
        let mut direct = connect(ConnectOptions::app(&server));
        // One of the clients uses the older framing, so the cached answer must also be framed again.
        let mut text = connect(proxy.options("app", "app-pass"));
        let mut binary = connect(proxy.options("app", "app-pass").capabilities(ConnectOptions::CLASSIC));
        let mut hits = 0;
        for query in QUERIES {
            let (as_text, as_binary) = (in_text(&mut direct, query), in_binary(&mut direct, query));
            assert_eq!(raw(&in_text(&mut text, query)), raw(&as_text), "{flavor:?} {query}");
            assert_eq!(raw(&in_binary(&mut binary, query)), raw(&as_binary), "{flavor:?}, was text: {query}");
            admin.run("PROXYSQL FLUSH QUERY CACHE").unwrap();
            assert_eq!(raw(&in_binary(&mut binary, query)), raw(&as_binary), "{flavor:?} {query}");
            assert_eq!(raw(&in_text(&mut text, query)), raw(&as_text), "{flavor:?}, was binary: {query}");
            hits += 2;
            assert_eq!(answers_from_the_cache(&mut admin), hits, "{flavor:?} {query}");
        }
    }
}
