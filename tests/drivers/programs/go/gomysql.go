// Go programs as they are usually written: database/sql with its own pool, over go-sql-driver/mysql.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// limit is the time one test may take.
const limit = 60 * time.Second

func dsn(options string) string {
	return fmt.Sprintf("%s:%s@tcp(%s:%s)/%s?charset=utf8mb4&%s", os.Getenv("DRIVERS_USER"), os.Getenv("DRIVERS_PASSWORD"),
		os.Getenv("DRIVERS_HOST"), os.Getenv("DRIVERS_PORT"), os.Getenv("DRIVERS_DATABASE"), options)
}

func say(test, status, detail string) {
	line, _ := json.Marshal(map[string]string{"test": test, "status": status, "detail": detail})
	fmt.Println("@@ " + string(line))
}

type test struct {
	name    string
	options string
	run     func(ctx context.Context, db *sql.DB) any
}

// check ends a test that has met an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func exec(ctx context.Context, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) sql.Result {
	result, err := db.ExecContext(ctx, query, args...)
	check(err)
	return result
}

type queryer interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}

// all gives every row of every result set as text.
func all(ctx context.Context, db queryer, query string, args ...any) [][]string {
	rows, err := db.QueryContext(ctx, query, args...)
	check(err)
	return drain(rows)
}

func drain(rows *sql.Rows) [][]string {
	defer rows.Close()
	var answer [][]string
	for {
		columns, err := rows.Columns()
		check(err)
		for rows.Next() {
			values, places := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				places[i] = &values[i]
			}
			check(rows.Scan(places...))
			line := make([]string, len(values))
			for i, value := range values {
				if bytes, ok := value.([]byte); ok {
					line[i] = fmt.Sprintf("%q", bytes)
				} else {
					line[i] = fmt.Sprintf("%T %v", value, value)
				}
			}
			answer = append(answer, line)
		}
		check(rows.Err())
		answer = append(answer, []string{"--"})
		if !rows.NextResultSet() {
			return answer
		}
	}
}

func everyType(ctx context.Context, db *sql.DB) {
	exec(ctx, db, "DROP TABLE IF EXISTS every_type")
	text, err := os.ReadFile(filepath.Join(os.Getenv("DRIVERS_SQL"), "types.sql"))
	check(err)
	for _, statement := range strings.Split(string(text), ";\n") {
		if strings.TrimSpace(statement) != "" {
			exec(ctx, db, statement)
		}
	}
}

func codes(ctx context.Context, db *sql.DB) any {
	var seen []string
	for _, statement := range []string{"SELECT * FROM nowhere", "SELEC 1", "SELECT nothing", "USE nowhere", "INSERT INTO every_type (id) VALUES (1)",
		"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'own'"} {
		_, err := db.ExecContext(ctx, statement)
		var own *mysql.MySQLError
		if !errors.As(err, &own) {
			panic(fmt.Sprintf("%s: %v", statement, err))
		}
		seen = append(seen, fmt.Sprintf("%d %s %s", own.Number, own.SQLState, own.Message))
	}
	return seen
}

func transactions(ctx context.Context, db *sql.DB) any {
	exec(ctx, db, "DROP TABLE IF EXISTS go_trx")
	exec(ctx, db, "CREATE TABLE go_trx (i INT PRIMARY KEY)")
	var seen []any
	for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelSerializable} {
		trx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		check(err)
		exec(ctx, trx, "INSERT INTO go_trx VALUES (1)")
		seen = append(seen, all(ctx, trx, "SELECT COUNT(*) FROM go_trx"), all(ctx, db, "SELECT COUNT(*) FROM go_trx WHERE i < 0"))
		check(trx.Rollback())
		seen = append(seen, all(ctx, db, "SELECT COUNT(*) FROM go_trx"))
	}
	trx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	check(err)
	_, err = trx.ExecContext(ctx, "INSERT INTO go_trx VALUES (2)")
	seen = append(seen, fmt.Sprint(err))
	check(trx.Commit())
	return seen
}

func manyGoroutines(ctx context.Context, db *sql.DB) any {
	exec(ctx, db, "DROP TABLE IF EXISTS go_many")
	exec(ctx, db, "CREATE TABLE go_many (g INT, n INT, KEY (g))")
	insert, err := db.PrepareContext(ctx, "INSERT INTO go_many VALUES (?, ?)")
	check(err)
	count, err := db.PrepareContext(ctx, "SELECT COUNT(*) FROM go_many WHERE g = ?")
	check(err)
	db.SetMaxOpenConns(40)
	var wait sync.WaitGroup
	failures := make(chan error, 50)
	for g := 0; g < 50; g++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for n := 0; n < 20; n++ {
				if _, err := insert.ExecContext(ctx, g, n); err != nil {
					failures <- err
					return
				}
				var seen int
				if err := count.QueryRowContext(ctx, g).Scan(&seen); err != nil || seen != n+1 {
					failures <- fmt.Errorf("goroutine %d: %d rows of %d, %v", g, seen, n+1, err)
					return
				}
			}
		}()
	}
	wait.Wait()
	close(failures)
	for err := range failures {
		panic(err)
	}
	return all(ctx, db, "SELECT COUNT(*), SUM(n) FROM go_many")
}

func blob(ctx context.Context, db *sql.DB) any {
	exec(ctx, db, "DROP TABLE IF EXISTS go_blob")
	exec(ctx, db, "CREATE TABLE go_blob (b LONGBLOB)")
	bytes := make([]byte, 20<<20)
	for i := range bytes {
		bytes[i] = byte(i * 7 >> 3)
	}
	exec(ctx, db, "INSERT INTO go_blob VALUES (?)", bytes)
	var back []byte
	check(db.QueryRowContext(ctx, "SELECT b FROM go_blob WHERE LENGTH(b) > ?", 0).Scan(&back))
	if sha256.Sum256(back) != sha256.Sum256(bytes) {
		panic("the blob changed")
	}
	return len(back)
}

func infile(ctx context.Context, db *sql.DB) any {
	exec(ctx, db, "DROP TABLE IF EXISTS go_loaded")
	exec(ctx, db, "CREATE TABLE go_loaded (i INT, t VARCHAR(30))")
	path := filepath.Join(os.Getenv("DRIVERS_SCRATCH"), "go.csv")
	check(os.WriteFile(path, []byte(strings.Repeat("1,one\n2,two\n", 5000)), 0o600))
	mysql.RegisterLocalFile(path)
	result := exec(ctx, db, "LOAD DATA LOCAL INFILE '"+path+"' INTO TABLE go_loaded FIELDS TERMINATED BY ','")
	changed, _ := result.RowsAffected()
	return []any{changed, all(ctx, db, "SELECT COUNT(*), SUM(i) FROM go_loaded")}
}

func insertIds(ctx context.Context, db *sql.DB) any {
	exec(ctx, db, "DROP TABLE IF EXISTS go_ids")
	exec(ctx, db, "CREATE TABLE go_ids (i BIGINT PRIMARY KEY AUTO_INCREMENT, t INT)")
	var seen []int64
	for n := 0; n < 5; n++ {
		result := exec(ctx, db, "INSERT INTO go_ids (t) VALUES (?), (?)", n, n)
		id, _ := result.LastInsertId()
		changed, _ := result.RowsAffected()
		seen = append(seen, id, changed)
	}
	result := exec(ctx, db, "UPDATE go_ids SET t = 1")
	changed, _ := result.RowsAffected()
	return append(seen, changed)
}

func cancelled(ctx context.Context, db *sql.DB) any {
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := db.ExecContext(short, "SELECT SLEEP(20)")
	return []any{fmt.Sprint(err), all(ctx, db, "SELECT 'after'")}
}

func columnTypes(ctx context.Context, db *sql.DB) any {
	everyType(ctx, db)
	rows, err := db.QueryContext(ctx, "SELECT * FROM every_type")
	check(err)
	defer rows.Close()
	types, err := rows.ColumnTypes()
	check(err)
	var seen []string
	for _, column := range types {
		precision, scale, sized := column.DecimalSize()
		nullable, known := column.Nullable()
		seen = append(seen, fmt.Sprint(column.Name(), column.DatabaseTypeName(), column.ScanType(), precision, scale, sized, nullable, known))
	}
	return seen
}

// stateOfConnection: what is set on one connection of the pool stays there, and only there.
func stateOfConnection(ctx context.Context, db *sql.DB) any {
	var seen []any
	first, err := db.Conn(ctx)
	check(err)
	defer first.Close()
	second, err := db.Conn(ctx)
	check(err)
	defer second.Close()
	exec(ctx, first, "SET time_zone = '+03:00', sql_mode = 'ANSI_QUOTES'")
	exec(ctx, second, "SET NAMES latin1")
	for _, c := range []*sql.Conn{first, second, first} {
		seen = append(seen, all(ctx, c, "SELECT @@time_zone, @@sql_mode, @@character_set_client, ?", 1))
	}
	return seen
}

func tests() []test {
	query := func(text string, args ...any) func(context.Context, *sql.DB) any {
		return func(ctx context.Context, db *sql.DB) any { return all(ctx, db, text, args...) }
	}
	return []test{
		{"types_text", "", func(ctx context.Context, db *sql.DB) any {
			everyType(ctx, db)
			return all(ctx, db, "SELECT * FROM every_type ORDER BY id")
		}},
		{"types_prepared", "", query("SELECT * FROM every_type WHERE id > ? ORDER BY id", 0)},
		{"types_interpolated", "interpolateParams=true", query("SELECT * FROM every_type WHERE id > ? ORDER BY id", 0)},
		{"types_parse_time", "parseTime=true&loc=UTC", query("SELECT c_date, c_datetime6, c_timestamp3 FROM every_type WHERE id > ? ORDER BY id", 0)},
		{"tls", "tls=own", query("SELECT 'over TLS'")},
		{"compressed", "compress=true", query("SELECT REPEAT('abcdefgh', 100000)")},
		{"multi_statements", "multiStatements=true", query("SELECT 1; SELECT 'two', 2; DO 1; SELECT 3 WHERE FALSE; SELECT 'ü;'")},
		{"column_types", "", columnTypes},
		{"unicode", "", query("SELECT ?, 'Ж 漢字 😀 \\\\', HEX(?)", "é 😀 \x00 '", "😀")},
		{"errors", "", codes},
		{"transactions", "", transactions},
		{"many_goroutines", "", manyGoroutines},
		{"many_goroutines_interpolated", "interpolateParams=true", manyGoroutines},
		{"blob", "maxAllowedPacket=67108864", blob},
		{"blob_compressed", "maxAllowedPacket=67108864&compress=true", blob},
		{"load_data", "", infile},
		{"insert_ids", "", insertIds},
		{"insert_ids_found_rows", "clientFoundRows=true", insertIds},
		{"session_variables", "time_zone=%27%2B04%3A00%27&sql_mode=%27ANSI_QUOTES%27", query("SELECT @@time_zone, @@sql_mode, FROM_UNIXTIME(?)", 0)},
		{"connection_attributes", "connectionAttributes=program_name:drivers,x:y", query("SELECT 1")},
		{"cancelled", "", cancelled},
		{"state_of_connection", "", stateOfConnection},
	}
}

func one(t test) {
	defer func() {
		if problem := recover(); problem != nil {
			say(t.name, "fail", fmt.Sprint(problem))
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	db, err := sql.Open("mysql", dsn(t.options))
	check(err)
	defer db.Close()
	seen := fmt.Sprint(t.run(ctx, db))
	if len(seen) > 5000 {
		seen = fmt.Sprintf("%s... %x", seen[:500], sha256.Sum256([]byte(seen)))
	}
	say(t.name, "pass", seen)
}

func main() {
	check(mysql.RegisterTLSConfig("own", &tls.Config{InsecureSkipVerify: true}))
	for _, t := range tests() {
		one(t)
	}
}
