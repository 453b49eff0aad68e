// Package outbox says what an event is: the table it is written to, how a row of that table becomes an event, and which
// events can never be stored in a stream.
//
// The writer's side and the relay use the same functions, so what the application could commit the relay can deliver.
package outbox
