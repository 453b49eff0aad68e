// Package sandbox makes throwaway servers for the demo, the tests and the benchmark: a PostgreSQL ([StartPostgres]), a JetStream
// server in this process ([StartNATS]) or in one of its own ([StartNATSProcess]), and a TCP proxy that injects faults
// ([StartProxy]). The relay itself never imports it.
//
// Nothing outlives the program that made it. Close removes a server and its folder. When the program is killed instead, the
// kernel ends its children on Linux (parent death signal), a NATS child also ends when its standard input closes, and the next
// program that makes a folder removes those whose owner is gone, with any server that still runs in them.
//
// All ports are on 127.0.0.1 and outside the range from which systems choose the ports of outgoing connections, so a server
// that is stopped finds its port free when it starts again.
//
// Environment:
//
//	RELAY_SANDBOX_POSTGRES    the bin folder of a PostgreSQL to use before any other
//	RELAY_SANDBOX_REPOSITORY  where PostgreSQL binaries are downloaded from, instead of embedded-postgres' own default
//	RELAY_TEST_POSTGRES_MAJOR the major version of the tests' shared PostgreSQL
//	RELAY_TEST_MAJORS         the majors of tests that run once per major, e.g. 14,17,18; missing ones are downloaded
package sandbox
