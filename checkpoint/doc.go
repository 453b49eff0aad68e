// Package checkpoint decides which LSN may be confirmed to PostgreSQL: what it may forget.
//
// A confirmed LSN is a promise that everything before it is stored, so it is computed in one place, without IO, clock or
// lock. A Window is fed what the replication stream says (Begin, Commit, Keepalive) and how far the events are stored,
// and knows the highest LSN that may be confirmed. A Delay holds that LSN back for a time, for a broker that can lose
// what it has acked.
package checkpoint
