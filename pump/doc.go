// Package pump is the relay's program: it holds the slot, reads events, has them stored and confirms them.
//
// One goroutine owns the replication session, the window and the publisher. Work that can block for long (finding out
// where to go on in the stream, looking at the catalogue) runs beside it in a task that owns nothing and hands back a
// result.
//
// # States
//
//	Standby --slot held, preconditions hold--> Resuming      reads into the window, answers PostgreSQL, publishes nothing
//	Resuming --L and the tail are known--> Publishing
//	Publishing --first refusal, timeout, lost connection--> Resuming       the window is kept
//	Resuming, Publishing --session lost--> Standby (backoff)               the window is dropped: the slot's confirmed LSN decides
//	Resuming --no broker for the yield time while events wait--> Standby   another relay may have a better network
//	Resuming --stream came back shorter--> Standby                         what is not confirmed is sent again
//	Resuming, Publishing --asked to stop--> Draining --all stored, or the drain timeout--> Stopped
//	Resuming, Publishing --poison event, undecodable row--> Draining       the events before it are stored, none after it
//	any --slot lost or missing, table or publication unfit--> Stopped
//
// # What is left when it dies, and who picks it up
//
//	Standby      nothing.
//	Resuming     the slot, at its confirmed LSN. PostgreSQL frees it within the session timeout; the next leader reads on.
//	Publishing   the slot, and in the stream a prefix of what comes after the confirmed LSN. The next leader reads its ids
//	             back from the stream and sends the rest.
//	Draining     as Publishing. After the last confirmation: nothing to do again.
package pump
