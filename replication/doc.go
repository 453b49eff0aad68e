// Package replication is one session with PostgreSQL: a replication connection from START_REPLICATION to its end.
//
// It turns the bytes of the stream into Begin, Event, Commit and Keepalive, and sends the confirmed LSN back. A session has
// one owner, which reads, decides and writes; nobody else touches the connection. The only call from other
// goroutines is Wake, which ends a read early.
//
// What is left when the process dies in a session: the slot, with the last confirmed LSN that reached the server (or,
// if PostgreSQL died as well, the last one that a checkpoint made durable). The next session gets everything after it again.
//
// PostgreSQL must be able to stop at any time, and a stopping walsender waits until its client has confirmed everything.
// A session therefore ends by itself, with ErrServerStopping, when the server asks again and again for a confirmation
// that cannot be given.
package replication
