package replication

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrServerStopping ends a session because PostgreSQL is shutting down.
	ErrServerStopping = errors.New("PostgreSQL is shutting down")
	// ErrSilent ends a session because the server did not answer in time: a half-open connection, or a server that is busy.
	ErrSilent = errors.New("PostgreSQL did not answer in time")
	// ErrPublicationUnknown ends a session because the publication did not exist at a position of the WAL that is still
	// to be read. It is permanent: creating the publication now does not change the past.
	ErrPublicationUnknown = errors.New("the publication did not exist yet at a WAL position that the slot still has to read")
)

// SQLSTATEs, https://www.postgresql.org/docs/current/errcodes-appendix.html
const (
	undefinedObject = "42704"
	adminShutdown   = "57P01"
	crashShutdown   = "57P02"
	cannotConnect   = "57P03"
)

// streamError gives an error of the running stream its meaning.
func streamError(err *pgconn.PgError) error {
	switch {
	case err.Code == undefinedObject:
		return errors.Join(ErrPublicationUnknown, err)
	case ServerStopping(err):
		return errors.Join(ErrServerStopping, err)
	}
	return err
}

// ServerStopping reports whether an error of any connection says that the server is shutting down or starting up.
func ServerStopping(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == adminShutdown || pgErr.Code == crashShutdown || pgErr.Code == cannotConnect)
}
