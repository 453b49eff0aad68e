// Package inbox is the consuming side of the outbox pattern: an event takes effect once in a database, however often it is
// delivered.
//
// [Once] is the whole idea: the event's id goes into processed_events in the same transaction as what the event does, so a
// second delivery finds it there and does nothing. [Run] is a consumer around it, for services that do not bring their own.
//
// # Order
//
// A stream of relay has all events in the order of their commits. [Run] keeps that order inside an aggregate
// (Relay-Aggregate-Id) and handles different aggregates at the same time. An event that fails holds up its own aggregate
// until it succeeds or is dead, and nobody else. Events without an aggregate have no order.
//
// That holds for one Run at a time. Several on one consumer share its messages, and two events of an aggregate can be with two
// of them: let each process have a consumer of its own for a part of the subjects, or number the events of each aggregate, choose
// [GapWait], and say that the consumer is Shared.
//
// # What is left when a consumer dies
//
//	before the commit                     nothing: the event is delivered again when its ack deadline has passed
//	after the commit, before the ack      the row in processed_events: the next delivery only acks
//	with events that wait for a retry     nothing: they are delivered again, in the order of the stream
//	while it gives up an event            either the row in inbox_dead, or the event once more
//
// JetStream does not hold back what follows an event that it delivers again. So a runner waits at its start, and whenever a
// delivery did not reach it, until everything that was delivered and not done is here, up to twice the consumer's ack wait.
//
// # Retention
//
// processed_events grows by a row for each event. [Prune] deletes the rows whose events cannot be delivered again.
package inbox
