// The admin port through go-sql-driver: text, prepared statements, interpolated parameters, errors, many at once.
package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/go-sql-driver/mysql"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func open(schema, more string) *sql.DB {
	db, err := sql.Open("mysql", "admin:admin@tcp(127.0.0.1:"+os.Getenv("ADMIN_PORT")+")/"+schema+more)
	must(err)
	must(db.Ping())
	return db
}

const comment = `it's "x" \ čaj`

func main() {
	for _, more := range []string{"", "?interpolateParams=true", "?charset=utf8mb4&parseTime=true&multiStatements=true"} {
		db := open("main", more)
		_, err := db.Exec("DELETE FROM mysql_servers WHERE hostgroup_id = ?", 9)
		must(err)
		result, err := db.Exec("INSERT INTO mysql_servers (hostgroup_id, hostname, comment) VALUES (?, ?, ?)", 9, "new", comment)
		must(err)
		if count, _ := result.RowsAffected(); count != 1 {
			must(fmt.Errorf("%d rows affected", count))
		}
		var hostgroup int
		var hostname, found string
		var nothing sql.NullString
		row := db.QueryRow("SELECT hostgroup_id, hostname, comment, NULL FROM mysql_servers WHERE hostname = ?", "new")
		must(row.Scan(&hostgroup, &hostname, &found, &nothing))
		if hostgroup != 9 || hostname != "new" || found != comment || nothing.Valid {
			must(fmt.Errorf("%d %s %s %v", hostgroup, hostname, found, nothing))
		}
		for _, command := range []string{"LOAD MYSQL SERVERS TO RUNTIME", "SAVE MYSQL SERVERS TO DISK"} {
			_, err = db.Exec(command)
			must(err)
		}
		_, err = db.Exec("LOAD MYSQL SERVERS TO NOWHERE")
		var refused *mysql.MySQLError
		if !errors.As(err, &refused) || refused.Number != 1045 {
			must(fmt.Errorf("not refused: %v", err))
		}
		fmt.Println("as", more)
		must(db.Close())
	}
	db := open("", "")
	db.SetMaxOpenConns(8)
	var group sync.WaitGroup
	for i := 0; i < 100; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			var count int
			must(db.QueryRow("SELECT COUNT(*) FROM runtime_mysql_servers").Scan(&count))
		}()
	}
	group.Wait()
	fmt.Println("done")
}
