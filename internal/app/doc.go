// Package app is relay's command line: one file per command, and the only place that knows flags, environment variables,
// signals and exit codes.
//
// An invocation goes through four steps, and none connects to anything before the one before it is through:
//
//	scan       the arguments against the tree of commands: unknown flags, commands and arguments      args.go
//	settings   flags over environment over defaults, each value parsed and bounded                    setting.go, flags.go
//	check      what only several values together can get wrong, in the packages' own Validate
//	run        connect, ask or do, answer on stdout                                                   the command's file
//
// Everything that the first three steps find is reported together, with exit code 2. A command's action returns an error;
// exit codes are chosen in exit.go alone.
package app
