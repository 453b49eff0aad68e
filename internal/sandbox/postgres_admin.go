package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// adminLimit bounds the waits for the effect of an administrative command.
const adminLimit = 10 * time.Second

// admin runs f on a connection of the superuser to the database postgres.
func (p *Postgres) admin(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // its error says nothing about f
	return f(conn)
}

// CreateDatabase makes an empty database.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	err := p.admin(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
		return err
	})
	if err != nil {
		return fmt.Errorf("create database %q: %w", name, err)
	}
	return nil
}

// DropDatabase removes a database with its connections and its replication slots. One that does not exist is no error.
func (p *Postgres) DropDatabase(ctx context.Context, name string) error {
	err := p.admin(ctx, func(conn *pgx.Conn) error {
		id := pgx.Identifier{name}.Sanitize()
		_, err := conn.Exec(ctx, "ALTER DATABASE "+id+" WITH ALLOW_CONNECTIONS false")
		if hasCode(err, "3D000") {
			return nil
		}
		if err != nil {
			return err
		}
		// FORCE ends sessions, but a slot in use refuses the command before that. Slots that are not in use go with the database.
		return poll(ctx, adminLimit, func() (bool, error) {
			_, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
			if err != nil {
				return true, err
			}
			_, err = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+id+" WITH (FORCE)")
			return !hasCode(err, "55006"), err
		})
	})
	if err != nil {
		return fmt.Errorf("drop database %q: %w", name, err)
	}
	return nil
}

// Set changes a setting of the whole server with ALTER SYSTEM, and waits until new connections have it. An empty value
// goes back to the one the server started with. Settings that need a restart change at the next Start.
//
// A value is one string: of settings that are lists of names, only lists of one can be set this way.
func (p *Postgres) Set(ctx context.Context, name, value string) error {
	command := "ALTER SYSTEM SET " + pgx.Identifier{name}.Sanitize() + " = " + literal(value)
	if value == "" {
		command = "ALTER SYSTEM RESET " + pgx.Identifier{name}.Sanitize()
	}
	var before time.Time
	err := p.admin(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, command); err != nil {
			return err
		}
		return conn.QueryRow(ctx, "SELECT pg_conf_load_time() FROM pg_reload_conf()").Scan(&before)
	})
	if err == nil {
		err = poll(ctx, adminLimit, func() (bool, error) {
			var now time.Time
			err := p.admin(ctx, func(conn *pgx.Conn) error {
				return conn.QueryRow(ctx, "SELECT pg_conf_load_time()").Scan(&now)
			})
			return err != nil || now.After(before), err
		})
	}
	if err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}

func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}
