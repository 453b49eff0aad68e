// Package publisher stores events in a JetStream stream: in order, pipelined, fenced. Everything that is known about the
// stream is here as well: how to connect, create it, inspect it and read its tail.
//
// # Order and fence
//
// All writers of one slot map stream sequence to event identically (I7). Every message carries the last sequence that the
// stream must have for it, so an event can be stored at its own place only, and a replaced leader that wakes up can
// store at most the very event that comes next.
//
// That header refuses a message whose place is not free; it does not refuse the one after it. So publishing goes in
// epochs. An epoch starts when the stream's last sequence L is known; it sends one message, then twice as many at each
// turn, and ends at the first answer that is not the predicted one:
//
//	           Resume.Run: settle, dial, ask the leader for L, read ids at <= L
//	no epoch ------------------------------------------------------------------> Apply: epoch(L)
//	    ^                                                                            |
//	    +------------------- first refusal, timeout, lost connection -----------------+
//	                         (the events stay; what was stored is read back)
//
// # What is left when it dies
//
// Nothing of the publisher itself. In the stream: a prefix of what was sent. The ids in the stream's tail tell the next
// epoch, in this process or another, what need not be sent again (I9).
package publisher
