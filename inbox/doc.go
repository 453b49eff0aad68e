// Package inbox is the consuming side of the outbox pattern: an event takes effect once in a database, however often it is
// delivered.
//
// Delivery is at least once: a consumer that dies after its commit and before its ack gets the message again, and so does
// one whose ack was lost. So the event's id goes into processed_events in the same transaction as what the event does. The
// second delivery finds it there and does nothing.
//
// What is left when a consumer dies before the commit is nothing: the message is delivered again. After the commit it is
// the row, and the next delivery only acks.
package inbox
