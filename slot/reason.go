package slot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Reason says in one line what a person can use of an error of a connection or a statement. The driver's own text repeats
// host, user and every attempt, over several lines.
func Reason(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fmt.Sprintf("%s (SQLSTATE %s)", pgErr.Message, pgErr.Code)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Sprintf("host %s is not known", dns.Name)
	}
	if system, ok := errors.AsType[*os.SyscallError](err); ok {
		return system.Err.Error()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = last(err)
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

// last returns the innermost error, of several attempts that of the last one.
func last(err error) error {
	for {
		switch e := err.(type) { //nolint:errorlint // this walks the chain itself
		case interface{ Unwrap() error }:
			if inner := e.Unwrap(); inner != nil {
				err = inner
				continue
			}
		case interface{ Unwrap() []error }:
			if all := e.Unwrap(); len(all) > 0 {
				err = all[len(all)-1]
				continue
			}
		}
		return err
	}
}
