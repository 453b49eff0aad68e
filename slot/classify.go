package slot

import (
	"context"
	"crypto/x509"
	"errors"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs that decide something here.
const (
	codeObjectInUse     = "55006"
	codeUndefinedObject = "42704"
	codeDuplicateObject = "42710"
)

// Classify says whether an error of a connection or a statement is permanent, that is, whether trying again without a
// change of the configuration or the server is of no use, and gives one line of advice. It looks at SQLSTATEs and types,
// never at texts. The advice is fixed text without names and secrets, or that of an error of this package.
//
// 55000 is permanent here (wal_level), but a lost slot and a server that has just become a standby say the same: who has
// a running relay inspects the state before it believes it. An unknown error is not permanent and has no advice.
func Classify(err error) (permanent bool, advice string) {
	var ours interface {
		error
		Advice() string
	}
	if errors.As(err, &ours) {
		var wait *WaitError
		return !errors.As(err, &wait), ours.Advice()
	}
	if code := sqlState(err); code != "" {
		return classifyCode(code)
	}
	var parse *pgconn.ParseConfigError
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var netErr net.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return false, ""
	case errors.Is(err, ErrConfig):
		return true, "correct the name"
	case errors.Is(err, ErrFailoverVersion):
		return true, "leave --failover out, or upgrade the server"
	case errors.As(err, &parse):
		return true, "check the database URL and the PG* variables"
	case errors.As(err, &authority), errors.As(err, &hostname):
		return false, "the server's certificate is not trusted: check sslmode and sslrootcert of the database URL"
	case errors.As(err, &netErr), errors.Is(err, context.DeadlineExceeded):
		return false, "the server cannot be reached: check host, port and network, and that it is up"
	}
	return false, ""
}

func classifyCode(code string) (permanent bool, advice string) {
	switch code {
	case "28000", "28P01":
		return true, "the server refuses the login: check user and password, and that pg_hba.conf has a line for this user, address and database"
	case "3D000":
		return true, "the database does not exist: check the database URL"
	case "42501":
		return true, "the role lacks a right: streaming and slots need REPLICATION (ALTER ROLE ... REPLICATION), a new publication needs " +
			"CREATE on the database and the table's ownership; superuser is never needed"
	case "08P01":
		return true, "something between relay and server does not speak replication, as a pooler does: connect directly to PostgreSQL"
	case "55000":
		return true, "the server is not in the state for logical replication: check wal_level = logical (needs a restart) and the slot with relay doctor"
	case "53400":
		return true, "all replication slots are taken: drop an unused one (relay slot list) or raise max_replication_slots (needs a restart)"
	case "53300":
		return false, "no free connection: raise max_wal_senders or max_connections, or the limit of the role or database"
	case codeObjectInUse:
		return false, "the slot is held by another relay"
	case codeUndefinedObject, "42P01":
		return false, "the slot, the publication or the table is missing: relay doctor says which"
	case "25006":
		return false, "the server is a standby or read-only: connect to the primary"
	case "57P01", "57P02", "57P03", "57P05":
		return false, "the server is starting, stopping or has ended the connection"
	case "53100":
		return false, "the server's disk is full"
	}
	if len(code) == 5 && code[:2] == "28" {
		return true, "the server refuses the login: check user, password and pg_hba.conf"
	}
	if len(code) == 5 && code[:2] == "08" {
		return false, "the connection to the server failed: check host, port and network, and that it is up"
	}
	return false, ""
}

// sqlState returns the SQLSTATE of a server's error, else "".
func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}
