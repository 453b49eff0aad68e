package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/slot"
)

const (
	connectTimeout  = 5 * time.Second  // unless the database URL has a connect_timeout
	questionTimeout = 20 * time.Second // for everything that a command asks PostgreSQL or NATS, dialling included
)

// readDatabase parses the database URL. What the parser says of a URL that it cannot read may quote pieces of a password,
// so no word of it is shown.
func (s *sharedSettings) readDatabase(r *reader) *pgx.ConnConfig {
	text := r.text(s.databaseURL)
	config, err := pgx.ParseConfig(text)
	if err != nil {
		if r.sources[s.databaseURL.name] == "--database-url" && len(s.databaseURL.given) == 0 {
			r.complain(complaint{text: "the PG* variables do not make a connection: " + databaseFault(text, err)})
			return nil
		}
		r.wrong(s.databaseURL, "", databaseFault(text, err))
		return nil
	}
	delete(config.RuntimeParams, "replication") // each connection decides this itself
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "relay"
	}
	if config.ConnectTimeout == 0 || config.ConnectTimeout == 2*time.Minute { // the driver's own default
		config.ConnectTimeout = connectTimeout
	}
	return config
}

func databaseFault(text string, err error) string {
	const want = "cannot be read (not shown, it may hold a password): want postgres://user:password@host:5432/database with special " +
		"characters percent-encoded, or host=... user=... password='...' dbname=..."
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("cannot use the file %s: %v", pathErr.Path, pathErr.Err)
	}
	if scheme := regexp.MustCompile(`^([a-z][a-z0-9+]*)://`).FindStringSubmatch(text); scheme != nil {
		if scheme[1] != "postgres" && scheme[1] != "postgresql" {
			return fmt.Sprintf("scheme %q is not postgres or postgresql", scheme[1])
		}
		if u, err := url.Parse(text); err == nil {
			modes := []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
			if mode := u.Query().Get("sslmode"); mode != "" && !slices.Contains(modes, mode) {
				return fmt.Sprintf("sslmode %q is not one of %s", mode, strings.Join(modes, ", "))
			}
		}
	}
	if text == "" {
		return "check PGPORT, PGSSLMODE, PGSERVICE and the files they name"
	}
	return want
}

// withPostgres runs do with a connection and closes it, whatever becomes of ctx.
func withPostgres(ctx context.Context, c common, do func(ctx context.Context, conn *pgx.Conn) error) error {
	conn, err := pgx.ConnectConfig(ctx, c.database.Copy())
	if err != nil {
		return connectError(c, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // nothing depends on it any more
	}()
	return do(ctx, conn)
}

func connectError(c common, err error) error {
	failure := postgresError("cannot connect to PostgreSQL at "+databaseName(c.database), err)
	if e, ok := errors.AsType[*exitError](failure); ok && !c.databaseGiven {
		e.try = strings.TrimPrefix(e.try+"\nno --database-url was given: these are libpq's defaults and PG* variables", "\n")
	}
	return failure
}

// databaseName says where the database is: host:port/database, never who connects or with what.
func databaseName(c *pgx.ConnConfig) string {
	database := c.Database
	if database == "" {
		database = c.User // PostgreSQL's own default
	}
	if strings.HasPrefix(c.Host, "/") {
		return fmt.Sprintf("%s:%d/%s", c.Host, c.Port, database)
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))) + "/" + database
}

// postgresError makes one sentence and one line of advice of an error of PostgreSQL's or of the slot package.
func postgresError(doing string, err error) error {
	if adviser, ok := errors.AsType[interface {
		error
		Advice() string
	}](err); ok {
		return failed(adviser, adviser.Advice())
	}
	_, advice := slot.Classify(err)
	if doing == "" {
		return failed(cause(err), advice)
	}
	return failed(fmt.Errorf("%s: %w", doing, cause(err)), advice)
}

// cause says of an error what a person can use: the driver repeats host, user and every attempt.
func cause(err error) error {
	if text := slot.Reason(err); text != err.Error() {
		return &restated{text: text, err: err}
	}
	return err
}
